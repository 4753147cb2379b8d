//! The state shared while a file is read: the errors so far, the environment, and the directory of other files.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;

use super::report::{Diagnostic, Findings, OtherLine, Severity, SourceSpan};

/// Looks an environment variable up by name; `None` if it is not set or not UTF-8.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The maximum size of a file that `gateway.toml` names; certificates have far less.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// The maximum size of a file with a table: consumers or networks.
pub(super) const MAX_TABLE_BYTES: u64 = 512 << 20;

/// The reading of one file. Every section reports here and goes on, so that all errors are found at once.
pub(super) struct Diagnostics<'a> {
    pub(super) environment: &'a Environment<'a>,
    /// The directory for relative paths.
    directory: &'a Path,
    findings: RefCell<Findings>,
    files: RefCell<Vec<NamedFile>>,
    system_roots: OnceCell<(Arc<RootCertStore>, [u8; 32])>,
}

/// A file that `gateway.toml` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its path.
    pub path: PathBuf,
    /// A hash of its content; `None` if it cannot be read.
    pub hash: Option<[u8; 32]>,
    /// Its length and the time of its last change, if it is too large to be read at every look.
    stamp: Option<(u64, SystemTime)>,
}

impl NamedFile {
    /// The same file as it is now.
    pub fn again(&self) -> Self {
        let stamp = stamp(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return self.clone();
        }
        let hash = read(&self.path, MAX_TABLE_BYTES).ok().map(|bytes| blake3::hash(&bytes).into());
        Self { path: self.path.clone(), hash, stamp }
    }
}

/// The length and the time of the last change of a file that is larger than [`MAX_BYTES`].
fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.len() > MAX_BYTES)?;
    Some((metadata.len(), metadata.modified().ok()?))
}

impl<'a> Diagnostics<'a> {
    /// `directory` is the start of relative paths.
    pub(super) fn new(environment: &'a Environment<'a>, directory: &'a Path) -> Self {
        Self {
            environment,
            directory,
            findings: RefCell::default(),
            files: RefCell::default(),
            system_roots: OnceCell::new(),
        }
    }

    /// The path of another file.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// The bytes of another file, at most this many.
    pub(super) fn file(&self, path: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
        let path = self.path(path);
        // Before the content: a change in between is noticed at the next look.
        let stamp = stamp(&path);
        let bytes = read(&path, max_bytes)?;
        self.files.borrow_mut().push(NamedFile { path, hash: Some(blake3::hash(&bytes).into()), stamp });
        Ok(bytes)
    }

    /// The files that were read.
    pub(super) fn files(&self) -> Vec<NamedFile> {
        self.files.borrow().clone()
    }

    /// The authorities that this machine trusts, with a hash of them. Read once.
    pub(super) fn system_roots(&self) -> &(Arc<RootCertStore>, [u8; 32]) {
        self.system_roots.get_or_init(|| {
            let (mut roots, mut hash) = (RootCertStore::empty(), blake3::Hasher::new());
            // Unreadable ones do no harm as long as there are others.
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().for_each(|certificate| _ = hash.update(certificate));
            roots.add_parsable_certificates(found);
            (Arc::new(roots), hash.finalize().into())
        })
    }

    /// Reports something that makes the file unusable.
    pub(super) fn fault(&self, span: SourceSpan, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Error, span, None, message.into(), help.into());
    }

    /// Reports the same about a line of another file, which is named at `span`.
    pub(super) fn fault_in(
        &self,
        span: SourceSpan,
        other: OtherLine,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Severity::Error, span, Some(other), message.into(), help.into());
    }

    /// Reports a setting in a line of another file that is allowed, but probably unintended.
    pub(super) fn warn_in(
        &self,
        span: SourceSpan,
        other: OtherLine,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Severity::Warning, span, Some(other), message.into(), help.into());
    }

    /// Reports a setting that is allowed, but probably unintended.
    pub(super) fn warn(&self, span: SourceSpan, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Warning, span, None, message.into(), help.into());
    }

    /// Reports a name that belongs to a later version. It is never ignored silently: the user may rely on it.
    pub(super) fn not_available(&self, span: SourceSpan, what: &str) {
        let message = format!("`{what}` is not available in this version of tollgate");
        self.fault(span, message, "leave it out");
    }

    /// The number of errors so far: a part that began and ended at the same count is valid.
    pub(super) fn errors(&self) -> usize {
        self.findings.borrow().errors()
    }

    /// Whether a further error would be shown, so that computing a costly remedy is worthwhile.
    pub(super) fn shows_more_errors(&self) -> bool {
        self.findings.borrow().shows_more_errors()
    }

    /// All errors and warnings.
    pub(super) fn into_findings(self) -> Findings {
        self.findings.into_inner()
    }

    fn push(
        &self,
        severity: Severity,
        span: SourceSpan,
        other: Option<OtherLine>,
        message: String,
        help: String,
    ) {
        self.findings.borrow_mut().push(Diagnostic { severity, message, span: Some(span), other, help });
    }
}

/// A larger file is an error: a part of it would mean something else.
fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > max_bytes) {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", max_bytes >> 20),
        ));
    }
    Ok(bytes)
}
