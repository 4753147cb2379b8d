//! The report of a configuration's errors: each with its file, its position and a remedy, rendered for users.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::named_file::NamedFile;
use super::redact;
pub(super) use super::sources::SourceSpan;
use super::sources::{SourceFile, Sources};
use crate::telemetry::program_log::colour_on;

/// The maximum number of errors, and of warnings, shown of one configuration; the rest are only counted.
const MAX_SHOWN: usize = 100;
/// The maximum number of characters of a file's text quoted in a message.
const MAX_QUOTED: usize = 80;
/// The maximum number of characters kept of a message or a remedy.
const MAX_MESSAGE: usize = 1_000;
/// The maximum number of bytes shown of a line. A position beyond them is only named.
const MAX_LINE: usize = 1_000;

/// All errors and warnings of a configuration, in the order of its files. Empty for a valid one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The files, at least one unless the report is empty.
    texts: Vec<ShownText>,
    findings: Findings,
    named: Vec<NamedFile>,
}

/// The text of a file with [secrets redacted](super::redact).
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownText {
    name: String,
    text: String,
    /// The offset of its first byte in spans.
    base: usize,
}

/// One error or warning, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub help: String,
    /// The file as it is named on the command line, or as another file names it.
    pub file: String,
    /// The line, from 1; 1 for the file as a whole.
    pub line: usize,
    /// The character of the line, from 1; 1 for the line as a whole.
    pub column: usize,
}

/// Errors and warnings while they are being collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    faults: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    /// Errors that were reported before, word for word.
    repeated: u32,
    remarks: Vec<Remark>,
    /// The number of notes that are not kept.
    hidden_notes: u32,
}

/// Something that is neither an error nor a warning, with its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Remark {
    span: SourceSpan,
    text: String,
    kind: RemarkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RemarkKind {
    /// What was not checked.
    Skipped,
    /// What the user may want to look at.
    Note,
}

/// An error or a warning, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Diagnostic {
    /// Whether the file can be used nevertheless.
    pub(super) severity: Severity,
    /// The fault: lower case, user text in back-ticks.
    pub(super) message: String,
    /// Its position; `None`: the file as a whole.
    pub(super) span: Option<SourceSpan>,
    /// Its line in another file, which is named at `span`. That line is never shown: it may hold a secret.
    pub(super) other: Option<OtherLine>,
    /// The remedy.
    pub(super) help: String,
}

/// A line of a file that `gateway.toml` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherLine {
    /// The path as written.
    pub(super) file: String,
    /// Counted from 1.
    pub(super) line: u64,
}

/// Whether a file can be used in spite of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// It cannot.
    Error,
    /// It can.
    Warning,
}

impl Report {
    /// A report of these files.
    pub(super) fn new(sources: &Sources, mut findings: Findings, named: Vec<NamedFile>) -> Self {
        findings.faults.sort_by_key(|fault| (fault.span, fault.other.as_ref().map(|other| other.line)));
        findings.remarks.sort();
        findings.remarks.dedup();
        let shown = |file: &SourceFile| ShownText {
            name: file.name.clone(),
            text: redact::shown(&file.text),
            base: file.base,
        };
        Self { texts: sources.iter().map(shown).collect(), findings, named }
    }

    /// A report of one error without a position in the file.
    pub(super) fn whole_file(file: &str, message: String, help: String) -> Self {
        let mut findings = Findings::default();
        findings.push(Diagnostic { severity: Severity::Error, message, span: None, other: None, help });
        let text = ShownText { name: file.to_owned(), text: String::new(), base: 0 };
        Self { texts: vec![text], findings, named: Vec::new() }
    }

    /// Adds a warning about the machine, which no line of the file has caused.
    pub fn warn(&mut self, message: String, help: &str) {
        let (severity, help) = (Severity::Warning, help.to_owned());
        self.findings.push(Diagnostic { severity, message, span: None, other: None, help });
    }

    /// The same report with these files.
    pub(super) fn with_files(self, named: Vec<NamedFile>) -> Self {
        Self { named, ..self }
    }

    /// The files and patterns that were looked at.
    pub fn files(&self) -> &[NamedFile] {
        &self.named
    }

    /// The number of warnings, including those not shown.
    pub fn warnings(&self) -> usize {
        self.findings.warnings
    }

    /// What was not checked since a variable or a file is not there, in one line each: `gateway.toml:12:8: …`.
    pub fn skipped_lines(&self) -> Vec<String> {
        self.remarks(RemarkKind::Skipped).collect()
    }

    /// Values that are right, but had another meaning in earlier versions, in one line each: `gateway.toml:12:8: …`.
    pub fn note_lines(&self) -> Vec<String> {
        let hidden = self.findings.hidden_notes;
        let more = (hidden > 0).then(|| format!("and {hidden} more"));
        self.remarks(RemarkKind::Note).chain(more).collect()
    }

    fn remarks(&self, kind: RemarkKind) -> impl Iterator<Item = String> {
        let of_kind = self.findings.remarks.iter().filter(move |remark| remark.kind == kind);
        of_kind.map(|Remark { span, text, .. }| {
            let line = self.line_of(*span);
            format!("{}:{}:{}: {text}", line.file, line.number, line.column())
        })
    }

    /// The errors and warnings shown, in the order of the files.
    pub fn findings(&self) -> Vec<ConfigFinding> {
        let finding = |fault: &Diagnostic| {
            let line = fault.span.map(|span| self.line_of(span));
            let (file, line, column) = match (&fault.other, line) {
                (Some(other), line) => {
                    let named_in = line.map_or("", |line| line.file);
                    let folder = Path::new(named_in).parent().unwrap_or(Path::new(""));
                    let file = folder.join(&other.file).display().to_string();
                    (file, usize::try_from(other.line).unwrap_or(usize::MAX), 1)
                }
                (None, Some(line)) => (line.file.to_owned(), line.number, line.column()),
                (None, None) => (self.texts.first().map(|text| text.name.clone()).unwrap_or_default(), 1, 1),
            };
            let (severity, message, help) =
                (fault.severity.word(), fault.message.clone(), fault.help.clone());
            ConfigFinding { severity, message, help, file, line, column }
        };
        self.findings.faults.iter().map(finding).collect()
    }

    /// The number of errors and warnings that are not shown.
    pub fn hidden(&self) -> usize {
        (self.findings.errors + self.findings.warnings).saturating_sub(self.findings.faults.len())
    }

    /// The number of errors, including those not shown.
    pub fn errors(&self) -> usize {
        self.findings.errors
    }

    /// The errors shown, in one line each: `gateway.toml:12:8: unknown key …`.
    pub fn error_lines(&self) -> Vec<String> {
        self.lines(Severity::Error)
    }

    /// The same of the warnings.
    pub fn warning_lines(&self) -> Vec<String> {
        self.lines(Severity::Warning)
    }

    fn lines(&self, severity: Severity) -> Vec<String> {
        let of_it = self.findings.faults.iter().filter(|fault| fault.severity == severity);
        let line = |fault: &Diagnostic| match fault.span.map(|span| self.line_of(span)) {
            _ if let Some(OtherLine { file, line }) = &fault.other => {
                format!("{file}:{line}: {}", fault.message)
            }
            Some(line) => {
                format!("{}:{}:{}: {}", line.file, line.number, line.column(), fault.message)
            }
            None => fault.message.clone(),
        };
        of_it.map(line).collect()
    }

    /// The report as text, one error after the other, with ANSI colours if `colour`. Ends with a line feed unless it is
    /// empty.
    pub fn render(&self, colour: bool) -> String {
        let mut shown: Vec<String> =
            self.findings.faults.iter().map(|fault| self.render_fault(fault, colour)).collect();
        let hidden = self.findings.errors + self.findings.warnings - shown.len();
        if hidden > 0 {
            shown.push(format!("and {hidden} more that are not shown\n"));
        }
        shown.join("\n")
    }

    /// Writes the report to standard error; an empty one writes nothing.
    pub fn print(&self) {
        let stderr = io::stderr();
        // If standard error is closed, the report is lost: only the exit status remains.
        let _ = stderr.lock().write_all(self.render(colour_on(&stderr)).as_bytes());
    }

    fn render_fault(&self, fault: &Diagnostic, colour: bool) -> String {
        let line = fault.span.map(|span| self.line_of(span));
        let gutter = line.as_ref().map_or(2, |line| line.number.to_string().len() + 1);
        if let Some(other) = &fault.other {
            return render_other(fault, other, colour);
        }
        let head = self.render_head(fault, line.as_ref(), colour);
        let (bold, plain) = if colour { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        format!("{head}\n{:gutter$}= {bold}help{plain}: {}\n", "", fault.help)
    }

    fn render_head(&self, fault: &Diagnostic, line: Option<&Line<'_>>, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let title = fault.severity.level().primary_title(fault.message.as_str());
        let Some(line) = line else {
            return renderer.render(&[Group::with_title(title)]);
        };
        let Some(text) = line.shown() else {
            let title = renderer.render(&[Group::with_title(title)]);
            let Line { file, number, .. } = line;
            let indent = number.to_string().len();
            return format!("{title}\n{:indent$}--> {file}:{number}:{}", "", line.column());
        };
        let end = line.end.min(text.len());
        let snippet = Snippet::source(text)
            .path(line.file)
            .line_start(line.number)
            .annotation(AnnotationKind::Primary.span(line.start..end));
        renderer.render(&[title.element(snippet)])
    }

    /// The line on which `span` begins, with the columns of `span`. Only this line is passed to the renderer, so
    /// that an error costs no more in a large file.
    fn line_of(&self, span: SourceSpan) -> Line<'_> {
        let after = self.texts.partition_point(|text| text.base <= span.start());
        let Some(file) = after.checked_sub(1).and_then(|at| self.texts.get(at)) else {
            return Line { file: "", number: 1, text: "", start: 0, end: 0 };
        };
        let source = file.text.as_str();
        let start = source.floor_char_boundary(span.start() - file.base);
        let line_start = source[..start].rfind('\n').map_or(0, |feed| feed + 1);
        let rest = &source[line_start..];
        let text = rest.find('\n').map_or(rest, |feed| &rest[..feed]);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let column = (start - line_start).min(text.len());
        let end = source.floor_char_boundary(span.end() - file.base).saturating_sub(line_start);
        let number = source[..line_start].matches('\n').count() + 1;
        Line { file: &file.name, number, text, start: column, end: end.clamp(column, text.len()) }
    }
}

/// A fault in another file: without its text.
fn render_other(fault: &Diagnostic, other: &OtherLine, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let title =
        renderer.render(&[Group::with_title(fault.severity.level().primary_title(fault.message.as_str()))]);
    let (bold, plain) = if colour { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
    let OtherLine { file, line } = other;
    format!("{title}\n --> {file}:{line}\n  = {bold}help{plain}: {}\n", fault.help)
}

/// One line of a file, with the columns (in bytes) that are marked.
struct Line<'a> {
    file: &'a str,
    number: usize,
    text: &'a str,
    start: usize,
    end: usize,
}

impl Line<'_> {
    /// The first marked character, from 1.
    fn column(&self) -> usize {
        self.text[..self.start].chars().count() + 1
    }

    /// The visible part of it, or `None` if the position is beyond that. The renderer escapes the control characters of
    /// ASCII; those beyond are replaced by a character of as many bytes.
    fn shown(&self) -> Option<String> {
        let text = &self.text[..self.text.floor_char_boundary(MAX_LINE)];
        (self.start <= text.len()).then(|| text.replace(|c: char| ('\u{80}'..='\u{9f}').contains(&c), "·"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

impl Findings {
    /// Adds a fault; beyond [`MAX_SHOWN`] of its severity it is only counted.
    pub(super) fn push(&mut self, fault: Diagnostic) {
        let message = readable(&redact::without_users(&fault.message));
        let fault = Diagnostic { message, help: readable(&fault.help), ..fault };
        // What stands in a set is read for each route that uses it.
        if self.faults.contains(&fault) {
            self.repeated += u32::from(fault.severity == Severity::Error);
            return;
        }
        let count = match fault.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_SHOWN {
            self.faults.push(fault);
        }
    }

    /// Whether one of those that are shown begins inside of this place.
    pub(super) fn has_any_at(&self, place: SourceSpan) -> bool {
        let begins = |span: SourceSpan| (place.start()..place.end()).contains(&span.start());
        self.faults.iter().filter_map(|fault| fault.span).any(begins)
    }

    /// Adds something that was not checked.
    pub(super) fn skip(&mut self, span: SourceSpan, why: &str) {
        self.remark(span, &redact::without_users(why), RemarkKind::Skipped);
    }

    /// Adds a note. Beyond [`MAX_SHOWN`] it is only counted.
    pub(super) fn note(&mut self, span: SourceSpan, text: &str) {
        if !self.remark(span, text, RemarkKind::Note) {
            self.hidden_notes += 1;
        }
    }

    /// Returns whether there was room.
    fn remark(&mut self, span: SourceSpan, text: &str, kind: RemarkKind) -> bool {
        let has_room = self.remarks.iter().filter(|remark| remark.kind == kind).count() < MAX_SHOWN;
        if has_room {
            self.remarks.push(Remark { span, text: readable(text), kind });
        }
        has_room
    }

    /// Whether a further error would be shown, so that computing a costly remedy is worthwhile.
    pub(super) fn shows_more_errors(&self) -> bool {
        self.errors < MAX_SHOWN
    }

    /// How many errors so far.
    pub(super) fn errors(&self) -> usize {
        self.errors + self.repeated as usize
    }
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }

    fn level(self) -> Level<'static> {
        match self {
            Self::Error => Level::ERROR,
            Self::Warning => Level::WARNING,
        }
    }
}

/// A user's text in back-ticks: without control characters, and cut after 80 characters.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", cut(text, MAX_QUOTED))
}

/// Several texts in back-ticks, separated by commas.
pub(super) fn listed<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// A text of the user's in a remedy, without back-ticks.
pub(super) fn cut_for_help(text: &str) -> String {
    cut(text, MAX_QUOTED)
}

/// A message or a remedy without control characters: patterns and keys quote rejected text unchanged.
fn readable(text: &str) -> String {
    cut(text, MAX_MESSAGE)
}

/// The first characters of a text; control characters shown as `␣`, so that no text in a file can control a terminal.
fn cut(text: &str, max: usize) -> String {
    let mut shown: String = text.chars().take(max).map(|c| if c.is_control() { '␣' } else { c }).collect();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}
