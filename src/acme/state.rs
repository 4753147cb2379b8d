//! The state directory: accounts, certificates and failed orders, in a directory for each authority.
//!
//! A file is written beside the one that it replaces, and then takes its name, so that a crash leaves the old one or the
//! new one. All files have mode 0600. A damaged one is as if it were not there, and stays until a new one takes its
//! name.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::certificate::StoredCertificate;
use super::schedule::FailedOrders;
use super::settings::AcmeSettings;

/// The largest file that is read.
const MAX_FILE: u64 = 1 << 20;
/// The most files that are looked through for a certificate of other names.
const MAX_FILES: usize = 1_000;
/// Characters of the first name in the name of a certificate's file.
const MAX_NAME: usize = 100;
/// Hexadecimal digits of the hashes in names.
const HASH: usize = 16;
/// Others may write here.
const WORLD_WRITABLE: u32 = 0o002;

const ACCOUNT: &str = "account.json";
const FAILED_ORDERS: &str = "attempts.json";
const LOCK: &str = "lock";

/// The directory of one authority.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    root: PathBuf,
    path: PathBuf,
}

/// While it lives, no other process orders with this state directory.
#[derive(Debug)]
pub struct StateLock(#[expect(dead_code, reason = "held, not read")] File);

impl StateDirectory {
    /// Nothing is made before something is written.
    pub fn new(settings: &AcmeSettings) -> Self {
        let host = settings.directory.split("//").nth(1).unwrap_or_default();
        let host: String =
            host.chars().take_while(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).collect();
        let host: String = host.chars().take(MAX_NAME).collect();
        let folder = format!("{host}-{}", hash(&settings.directory));
        Self { root: settings.state.clone(), path: settings.state.join(folder) }
    }

    /// Where its files are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What these names are called: as a file, and in the shared store.
    pub fn id(&self, names: &[String]) -> String {
        let mut sorted = names.to_vec();
        sorted.sort();
        let first: String = sorted.first().iter().flat_map(|name| name.chars()).take(MAX_NAME).collect();
        format!("{first}-{}", hash(&sorted.join("\n")))
    }

    /// The certificate for exactly these names.
    pub fn certificate(&self, names: &[String]) -> Option<StoredCertificate> {
        self.read_certificate(&format!("{}.pem", self.id(names)))
    }

    /// All certificates.
    pub fn certificates(&self) -> Vec<StoredCertificate> {
        let Ok(files) = fs::read_dir(&self.path) else { return Vec::new() };
        let names = files.take(MAX_FILES).filter_map(|file| file.ok()?.file_name().into_string().ok());
        let names: Vec<_> = names.filter(|name| name.ends_with(".pem")).collect();
        names.iter().filter_map(|name| self.read_certificate(name)).collect()
    }

    /// The account, as [`Self::write_account`] was given it.
    pub fn account(&self) -> Option<Vec<u8>> {
        self.read(ACCOUNT)
    }

    /// Keeps the account.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn write_account(&self, account: &[u8]) -> io::Result<()> {
        self.write(ACCOUNT, account)
    }

    /// The account cannot be used: it is kept under another name.
    pub fn set_account_aside(&self) {
        let (from, to) = (self.path.join(ACCOUNT), self.path.join("account.damaged"));
        match fs::rename(&from, &to) {
            Ok(()) => {
                tracing::warn!("the account in {} cannot be used: it is {} now", from.display(), to.display())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!("the account in {} cannot be used, nor moved: {error}", from.display())
            }
        }
    }

    /// Keeps the certificate for these names.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn write_certificate(&self, names: &[String], pem: &str) -> io::Result<()> {
        self.write(&format!("{}.pem", self.id(names)), pem.as_bytes())
    }

    /// The failed orders of certificates, by [`Self::id`].
    pub fn failed_orders(&self) -> BTreeMap<String, FailedOrders> {
        let Some(text) = self.read(FAILED_ORDERS) else { return BTreeMap::new() };
        serde_json::from_slice(&text).unwrap_or_else(|_| {
            damaged(&self.path.join(FAILED_ORDERS), "it is not what was written there");
            BTreeMap::new()
        })
    }

    /// Keeps the failed orders of the certificate for these names; none: forgets them.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn write_failed_orders(&self, names: &[String], failed: &FailedOrders) -> io::Result<()> {
        let mut all = self.failed_orders();
        let id = self.id(names);
        let before = match failed.count {
            0 => all.remove(&id),
            _ => all.insert(id, failed.clone()),
        };
        if before.as_ref().unwrap_or(&FailedOrders::default()) == failed {
            return Ok(());
        }
        self.write(FAILED_ORDERS, &serde_json::to_vec(&all).map_err(io::Error::other)?)
    }

    /// Has other processes with this state directory wait. `None`: one of them orders.
    ///
    /// # Errors
    ///
    /// The file system's. Other processes cannot be seen then.
    pub fn lock(&self) -> io::Result<Option<StateLock>> {
        make(&self.root)?;
        let options = OFlags::NOFOLLOW.bits().cast_signed();
        let path = self.root.join(LOCK);
        let mut opening = OpenOptions::new();
        opening.write(true).create(true).truncate(false).mode(0o600).custom_flags(options);
        let file = opening.open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StateLock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_certificate(&self, file: &str) -> Option<StoredCertificate> {
        let text = self.read(file)?;
        let read = String::from_utf8(text).map_err(|_| "it is no text".to_owned());
        let read = read.and_then(|pem| StoredCertificate::from_pem(&pem).map_err(|fault| fault.to_string()));
        read.map_err(|fault| damaged(&self.path.join(file), &fault)).ok()
    }

    /// A file's content. No symbolic link is followed.
    fn read(&self, file: &str) -> Option<Vec<u8>> {
        let path = self.path.join(file);
        let options = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let read = is_private(&self.root).and_then(|()| {
            let file = OpenOptions::new().read(true).custom_flags(options).open(&path)?;
            let mut content = Vec::new();
            match file.metadata()?.is_file() {
                true => file.take(MAX_FILE + 1).read_to_end(&mut content)?,
                false => return Err(io::Error::other("it is not a file")),
            };
            match content.len() as u64 > MAX_FILE {
                true => Err(io::Error::other("it is too large")),
                false => Ok(content),
            }
        });
        match read {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                damaged(&path, &error.to_string());
                None
            }
        }
    }

    fn write(&self, file: &str, content: &[u8]) -> io::Result<()> {
        make(&self.root)?;
        make(&self.path)?;
        let (path, next) = (self.path.join(file), self.path.join(format!("{file}.new")));
        write_to(&next, content)
            .and_then(|()| {
                fs::rename(&next, &path)?;
                // The name is on the disk only after its folder is.
                File::open(&self.path)?.sync_all()
            })
            .inspect_err(|_| _ = fs::remove_file(&next))
    }
}

fn write_to(path: &Path, content: &[u8]) -> io::Result<()> {
    // One that a crash has left, or another's. Nothing of it is kept, its permissions neither.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes a directory that only this user reads, if there is none.
fn make(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    }
    is_private(path)
}

/// A directory that each user may write to would give the private keys away.
fn is_private(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    match metadata.is_dir() && metadata.mode() & WORLD_WRITABLE == 0 {
        true => Ok(()),
        false => {
            Err(io::Error::other("it is no directory, or each user can write there: `chmod 700` mends that"))
        }
    }
}

fn damaged(path: &Path, fault: &str) {
    tracing::warn!("{} is not used: {fault}", path.display());
}

fn hash(text: &str) -> String {
    let mut digits = blake3::hash(text.as_bytes()).to_hex().to_string();
    digits.truncate(HASH);
    digits
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use proptest::prelude::*;

    use super::*;
    use crate::acme::certificate::self_signed;
    use crate::acme::settings::ChallengeKind;
    use crate::limit::wall_clock::WallTime;

    const NOW: WallTime = WallTime(1_790_000_000_000_000);

    fn state(root: &Path) -> StateDirectory {
        StateDirectory::new(&AcmeSettings {
            email: None,
            directory: "https://ca.example:14000/dir".into(),
            is_plain: false,
            tls: None,
            state: root.join("state"),
            challenge: ChallengeKind::TlsAlpn01,
            external_account: None,
            secret: None,
        })
    }

    fn names() -> Vec<String> {
        vec!["a.example".to_owned(), "b.example".to_owned()]
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_are_read_as_they_were_written_by_this_user_only() {
        let root = tempfile::tempdir().unwrap();
        let state = state(root.path());
        assert_eq!((state.account(), state.certificates().len()), (None, 0));
        assert!(!root.path().join("state").exists(), "reading makes nothing");
        let made = self_signed(&names(), NOW).unwrap();
        state.write_certificate(&names(), &made.pem).unwrap();
        state.write_account(b"{}").unwrap();
        assert_eq!(state.certificate(&names()).unwrap().pem, made.pem);
        let other_order: Vec<_> = names().into_iter().rev().collect();
        assert!(state.certificate(&other_order).is_some());
        assert!(state.certificate(&names()[..1]).is_none());
        assert_eq!((state.certificates().len(), state.account()), (1, Some(b"{}".to_vec())));
        assert_eq!(mode(&root.path().join("state")), 0o700);
        for file in fs::read_dir(state.path()).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
        assert!(state.path().to_str().unwrap().contains("ca.example-"));
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_as_if_it_were_not_there() {
        let root = tempfile::tempdir().unwrap();
        let state = state(root.path());
        let made = self_signed(&names(), NOW).unwrap();
        let failed = FailedOrders { count: 3, failed: 7, wait: 9, error: "no".into() };
        state.write_failed_orders(&names(), &failed).unwrap();
        assert_eq!(state.failed_orders().get(&state.id(&names())), Some(&failed));
        let whole = serde_json::to_vec(&state.failed_orders()).unwrap();
        let pem = format!("{}.pem", state.id(&names()));
        for end in 0..made.pem.trim_end().len() {
            fs::write(state.path().join(&pem), &made.pem[..end]).unwrap();
            assert!(state.certificate(&names()).is_none(), "cut at {end}");
        }
        for end in 0..whole.len() {
            fs::write(state.path().join(FAILED_ORDERS), &whole[..end]).unwrap();
            assert!(state.failed_orders().is_empty(), "cut at {end}");
        }
        fs::write(state.path().join(&pem), [0xff, 0xfe]).unwrap();
        assert!(state.certificate(&names()).is_none());
        fs::write(state.path().join(&pem), vec![b' '; 1 + (1 << 20)]).unwrap();
        assert!(state.certificate(&names()).is_none());
    }

    #[test]
    fn links_are_not_followed_and_a_leftover_stops_nothing() {
        let root = tempfile::tempdir().unwrap();
        let state = state(root.path());
        state.write_account(b"{}").unwrap();
        let outside = root.path().join("outside");
        fs::write(&outside, "secret").unwrap();
        fs::remove_file(state.path().join(ACCOUNT)).unwrap();
        symlink(&outside, state.path().join(ACCOUNT)).unwrap();
        symlink(&outside, state.path().join("account.json.new")).unwrap();
        assert_eq!(state.account(), None);
        state.write_account(b"[]").unwrap();
        assert_eq!(state.account(), Some(b"[]".to_vec()));
        assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
        state.set_account_aside();
        assert_eq!(state.account(), None);
        assert_eq!(fs::read(state.path().join("account.damaged")).unwrap(), b"[]");
    }

    #[test]
    fn a_directory_for_all_users_or_a_file_in_its_place_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let state = state(root.path());
        state.write_account(b"{}").unwrap();
        fs::set_permissions(root.path().join("state"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(state.write_account(b"{}").is_err());
        assert_eq!(state.account(), None);
        fs::remove_dir_all(root.path().join("state")).unwrap();
        fs::write(root.path().join("state"), "").unwrap();
        assert!(state.write_account(b"{}").is_err() && state.lock().is_err());
    }

    #[test]
    fn one_process_at_a_time_orders() {
        let root = tempfile::tempdir().unwrap();
        let state = state(root.path());
        let lock = state.lock().unwrap();
        assert!(lock.is_some() && state.lock().unwrap().is_none());
        drop(lock);
        assert!(state.lock().unwrap().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Whatever stands there: a wait is at most a week, and what is written next is read again.
        #[test]
        fn any_content_of_its_files_is_survived(bytes: Vec<u8>, count: u32, failed: u64, wait: u64) {
            let root = tempfile::tempdir().unwrap();
            let state = state(root.path());
            let pem = format!("{}.pem", state.id(&names()));
            state.write_account(b"{}").unwrap();
            fs::write(state.path().join(pem), &bytes).unwrap();
            fs::write(state.path().join(FAILED_ORDERS), &bytes).unwrap();
            prop_assert!(state.certificate(&names()).is_none() && state.certificates().is_empty());
            state.failed_orders();
            let any = FailedOrders { count, failed, wait, error: String::new() };
            let text = serde_json::to_vec(&BTreeMap::from([(state.id(&names()), any.clone())])).unwrap();
            fs::write(state.path().join(FAILED_ORDERS), text).unwrap();
            let read = state.failed_orders().remove(&state.id(&names())).unwrap();
            prop_assert!(read.next(NOW).0 <= NOW.0 + 7 * 86_400_000_000);
            state.write_failed_orders(&names(), &FailedOrders::default()).unwrap();
            prop_assert!(state.failed_orders().is_empty() || count == 0);
        }
    }
}
