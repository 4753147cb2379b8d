//! `--watch`: detects that the config file, or a file that it names (a certificate), has changed.
//!
//! Notifications of the system make the detection prompt. They watch the file's directory, because editors and
//! Kubernetes replace files instead of writing them. Some changes cause no notification (network file systems, files
//! mounted singly into containers, symbolic links to elsewhere, certificates in other directories), so the files are
//! also read at intervals. In both cases the contents decide.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::config::{MAX_FILE_BYTES, NamedFile};

/// How long a file must be unchanged: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// The interval of checks without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Triggers a reload whenever `file` no longer has the contents that were `seen`, or one of the `named` files no longer
/// has those with which it was loaded. Needs a tokio runtime around it.
pub(super) fn start(
    file: PathBuf,
    seen: Option<Vec<u8>>,
    named: watch::Receiver<Vec<NamedFile>>,
    triggers: Sender<()>,
) {
    let (notices, noticed) = channel(1);
    let watcher = watcher(&file, notices)
        .inspect_err(|error| {
            tracing::warn!(
                "the system does not tell of changes ({error}); looking every {LOOK_EVERY:?} instead"
            );
        })
        .ok();
    tokio::spawn(async move {
        // Dropped, it would stop.
        let _watcher = watcher;
        run(&file, seen, named, noticed, &triggers).await;
    });
}

/// The contents of the file; `None` if it cannot be read.
pub(super) fn contents(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = u64::try_from(MAX_FILE_BYTES + 1).unwrap_or(u64::MAX);
    File::open(file).ok()?.take(max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

async fn run(
    file: &Path,
    mut seen: Option<Vec<u8>>,
    mut named: watch::Receiver<Vec<NamedFile>>,
    mut noticed: Receiver<()>,
    triggers: &Sender<()>,
) {
    let mut files = named.borrow_and_update().clone();
    loop {
        tokio::select! {
            Some(()) = noticed.recv() => settle(&mut noticed).await,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if named.has_changed().unwrap_or(false) {
            files.clone_from(&named.borrow_and_update());
        }
        let found = (contents(file), files.iter().map(NamedFile::again).collect());
        let last = (seen, files);
        let changed = found != last;
        (seen, files) = found;
        if changed {
            // Full: a reload is due anyway, and it will read the contents found here.
            let _ = triggers.try_send(());
        }
    }
}

/// Waits until there was no notification for [`SETTLE`], but no longer than until the next check.
async fn settle(noticed: &mut Receiver<()>) {
    let quiet = async {
        while tokio::time::timeout(SETTLE, noticed.recv()).await.is_ok_and(|more| more.is_some()) {}
    };
    // Whether the wait ended quietly or was cut short, the file is checked next.
    let _ = tokio::time::timeout(LOOK_EVERY, quiet).await;
}

fn watcher(file: &Path, notices: Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the file causes a notification too, which must not cause another read.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // Full: a check is due anyway.
            let _ = notices.try_send(());
        }
    })?;
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
