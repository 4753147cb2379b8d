//! The state shared while files are read: the errors so far, the environment, and the other files.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;

use super::named_file::NamedFile;
use super::report::{Diagnostic, Findings, OtherLine, Severity, SourceSpan};
use super::sources::Sources;

/// Looks an environment variable up by name; `None` if it is not set or not UTF-8.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The reading of one configuration. Every section reports here and goes on, so that all errors are found at once.
pub(super) struct Diagnostics<'a> {
    pub(super) environment: &'a Environment<'a>,
    sources: &'a Sources,
    /// Whether variables that are not set and files that are not there are no errors: their values are unknown.
    without_environment: bool,
    findings: RefCell<Findings>,
    files: RefCell<Vec<NamedFile>>,
    /// The number of unknown values.
    unknown: Cell<usize>,
    /// The keys with an unknown value, each after the title of its table.
    uncertain: RefCell<HashSet<String>>,
    /// The first text that has the country of a client.
    country_text: Cell<Option<SourceSpan>>,
    /// Whether it is unknown which files are included.
    is_incomplete: Cell<bool>,
    system_roots: OnceCell<(Arc<RootCertStore>, [u8; 32])>,
}

impl<'a> Diagnostics<'a> {
    /// `sources` are the files, which are added while they are read.
    pub(super) fn new(
        environment: &'a Environment<'a>,
        sources: &'a Sources,
        without_environment: bool,
    ) -> Self {
        Self {
            environment,
            sources,
            without_environment,
            findings: RefCell::default(),
            files: RefCell::default(),
            unknown: Cell::default(),
            uncertain: RefCell::default(),
            country_text: Cell::default(),
            is_incomplete: Cell::default(),
            system_roots: OnceCell::new(),
        }
    }

    /// The files of the configuration.
    pub(super) fn sources(&self) -> &'a Sources {
        self.sources
    }

    /// The path of another file, which is named at `span`: a relative one begins where that file lies.
    pub(super) fn path(&self, path: &str, span: SourceSpan) -> PathBuf {
        self.sources.at(span).map_or_else(|| PathBuf::from(path), |file| file.directory.join(path))
    }

    /// The bytes of another file, which is named at `span`; at most this many.
    pub(super) fn file(&self, path: &str, span: SourceSpan, max_bytes: u64) -> io::Result<Vec<u8>> {
        let path = self.path(path, span);
        let (named, bytes) = NamedFile::read(path, max_bytes);
        self.files.borrow_mut().push(named);
        bytes
    }

    /// Notes a file that was read, or a pattern.
    pub(super) fn saw(&self, named: NamedFile) {
        self.files.borrow_mut().push(named);
    }

    /// The files that were read.
    pub(super) fn files(&self) -> Vec<NamedFile> {
        self.files.borrow().clone()
    }

    /// Whether variables and files need not be there.
    pub(super) fn is_without_environment(&self) -> bool {
        self.without_environment
    }

    /// Reports that the variable `name` is not set; `which` names it in a message. Without the environment its value is
    /// unknown.
    pub(super) fn unset(&self, span: SourceSpan, which: &str, name: &str) {
        if self.without_environment {
            return self.skip(span, &format!("{which} is not set"));
        }
        self.fault(
            span,
            format!("{which} is not set"),
            format!("set it before tollgate starts: `export {name}=…`"),
        );
    }

    /// Notes that the value at `span` is unknown, so that everything that depends on it is not checked.
    pub(super) fn skip(&self, span: SourceSpan, why: &str) {
        self.unknown.set(self.unknown.get() + 1);
        self.findings.borrow_mut().skip(span, why);
    }

    /// Notes a value that is right, but that the user may want to look at. It is not a warning.
    pub(super) fn note(&self, span: SourceSpan, text: &str) {
        self.findings.borrow_mut().note(span, text);
    }

    /// The number of unknown values so far.
    pub(super) fn unknown(&self) -> usize {
        self.unknown.get()
    }

    /// Whether all is known about a part: it is sound, or the errors in it are all that keeps it from being so.
    pub(super) fn is_known(&self, is_sound: bool) -> bool {
        is_sound || self.unknown() == 0
    }

    /// Notes that a key of the table with this title has an unknown value.
    pub(super) fn set_uncertain(&self, title: &str, key: &str) {
        self.uncertain.borrow_mut().insert(format!("{title}.{key}"));
    }

    /// Whether a key of the table with this title has an unknown value.
    pub(super) fn is_uncertain(&self, title: &str, key: &str) -> bool {
        self.unknown() > 0 && self.uncertain.borrow().contains(&format!("{title}.{key}"))
    }

    /// Notes a text that has the country of a client.
    pub(super) fn note_country(&self, span: SourceSpan) {
        self.country_text.set(self.country_text.get().or(Some(span)));
    }

    /// The first text that has the country of a client.
    pub(super) fn country_text(&self) -> Option<SourceSpan> {
        self.country_text.get()
    }

    /// Notes that it is unknown which files are included.
    pub(super) fn set_incomplete(&self) {
        self.is_incomplete.set(true);
    }

    /// Whether it is unknown which files are included, so that any name may be defined and used elsewhere.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete.get()
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

    /// The number of errors and unknown values so far: a part that began and ended at the same count is valid.
    pub(super) fn errors(&self) -> usize {
        self.findings.borrow().errors() + self.unknown()
    }

    /// Whether something was reported at this place, or inside of it.
    pub(super) fn has_finding_at(&self, place: SourceSpan) -> bool {
        self.findings.borrow().has_any_at(place)
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
