//! `--watch`: detects that a config file, or a file that one names (a certificate), has changed, or that other files match
//! an `include`.
//!
//! Notifications of the system make the detection prompt. They watch the first file's directory, because editors and
//! Kubernetes replace files instead of writing them. Some changes cause no notification (network file systems, files
//! mounted singly into containers, symbolic links to elsewhere, certificates in other directories), so the files are
//! also read at intervals. In both cases the contents decide.

use std::path::Path;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::config::NamedFile;

/// How long a file must be unchanged: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// The interval of checks without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Triggers a reload whenever one of the `named` files no longer has the contents with which it was loaded. `config` is
/// the file or directory that is configured. Needs a tokio runtime around it.
pub(super) fn start(config: &Path, named: watch::Receiver<Vec<NamedFile>>, triggers: Sender<()>) {
    let (notices, noticed) = channel(1);
    let watcher = watcher(config, notices)
        .inspect_err(|error| {
            tracing::warn!(
                "the system does not tell of changes ({error}); looking every {LOOK_EVERY:?} instead"
            );
        })
        .ok();
    tokio::spawn(async move {
        // Dropped, it would stop.
        let _watcher = watcher;
        run(named, noticed, &triggers).await;
    });
}

async fn run(mut named: watch::Receiver<Vec<NamedFile>>, mut noticed: Receiver<()>, triggers: &Sender<()>) {
    let mut files = named.borrow_and_update().clone();
    loop {
        tokio::select! {
            Some(()) = noticed.recv() => settle(&mut noticed).await,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if named.has_changed().unwrap_or(false) {
            files.clone_from(&named.borrow_and_update());
        }
        let found: Vec<_> = files.iter().map(NamedFile::again).collect();
        let changed = found != files;
        files = found;
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
        _ if file.is_dir() => file,
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
