//! Errors of an imported file, and settings that mean something else here: each with its place, rendered for users.

use std::io::{self, Write as _};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::ImportFile;
use crate::telemetry::terminal::{colour_on, safe_text};

/// The maximum number of errors, and of other remarks, shown on standard error; the rest are only counted.
const MAX_SHOWN: usize = 100;
/// The maximum number of remarks kept.
const MAX_KEPT: usize = 20_000;
/// The maximum number of characters of a message or a remedy.
const MAX_MESSAGE: usize = 1_000;
/// The maximum number of characters of a file's text quoted in a message.
const MAX_QUOTED: usize = 80;
/// The maximum number of bytes shown of a line. A position beyond them is only named.
const MAX_LINE: usize = 1_000;

/// A place in one of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImportPlace {
    /// The index of the file.
    pub file: usize,
    /// The offset of the first byte.
    pub start: usize,
    /// The offset behind the last byte.
    pub end: usize,
}

/// What a remark means for the import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemarkLevel {
    /// The file cannot be imported.
    Error,
    /// Other requests are limited than before.
    Warning,
    /// The same requests are limited, and something else differs.
    Note,
}

/// An error, or a setting that means something else here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRemark {
    /// What it means for the import.
    pub level: RemarkLevel,
    /// The fault or the difference.
    pub message: String,
    /// The remedy; empty if there is none.
    pub help: String,
    /// Its place.
    pub place: ImportPlace,
}

/// All remarks of an import, in the order of the files once [sorted](Self::sort).
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    files: Vec<ReportedFile>,
    remarks: Vec<ImportRemark>,
    /// Remarks that are not kept.
    dropped: usize,
}

/// A file, with the offsets at which its lines begin.
#[derive(Clone, Debug)]
struct ReportedFile {
    name: String,
    text: String,
    lines: Vec<usize>,
}

impl ImportReport {
    /// A report of these files, empty at first.
    pub fn new(files: &[ImportFile]) -> Self {
        let file = |file: &ImportFile| {
            let feeds = file.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            let lines = std::iter::once(0).chain(feeds.map(|(at, _)| at + 1)).collect();
            ReportedFile { name: file.name.clone(), text: file.text.clone(), lines }
        };
        Self { files: files.iter().map(file).collect(), remarks: Vec::new(), dropped: 0 }
    }

    /// Adds a remark, without characters that control a terminal.
    pub(super) fn push(&mut self, level: RemarkLevel, place: ImportPlace, message: &str, help: &str) {
        if self.remarks.len() >= MAX_KEPT {
            self.dropped += 1;
            return;
        }
        let (message, help) = (safe_text(message, MAX_MESSAGE), safe_text(help, MAX_MESSAGE));
        self.remarks.push(ImportRemark { level, message, help, place });
    }

    /// Adds an error.
    pub(super) fn error(&mut self, place: ImportPlace, message: &str, help: &str) {
        self.push(RemarkLevel::Error, place, message, help);
    }

    /// Brings the remarks into the order of the files.
    pub(super) fn sort(&mut self) {
        self.remarks.sort_by_key(|remark| remark.place);
    }

    /// All remarks.
    pub fn remarks(&self) -> &[ImportRemark] {
        &self.remarks
    }

    /// Whether the files cannot be imported.
    pub fn has_errors(&self) -> bool {
        self.remarks.iter().any(|remark| remark.level == RemarkLevel::Error)
    }

    /// The place for users: `ratelimit.yaml:12`.
    pub fn line_of(&self, place: ImportPlace) -> String {
        let Some(file) = self.files.get(place.file) else { return String::new() };
        format!("{}:{}", safe_text(&file.name, MAX_MESSAGE), file.line(place.start).0)
    }

    /// All of them as text, errors first if there are any. Ends with a line feed unless it is empty.
    pub fn render(&self, colour: bool) -> String {
        let is_error = |remark: &&ImportRemark| remark.level == RemarkLevel::Error;
        // Remarks on the translation of a file that is not translated help nobody.
        let of_level: Vec<_> = match self.has_errors() {
            true => self.remarks.iter().filter(is_error).collect(),
            false => self.remarks.iter().collect(),
        };
        let mut shown: Vec<_> =
            of_level.iter().take(MAX_SHOWN).map(|remark| self.render_remark(remark, colour)).collect();
        let hidden = of_level.len() - shown.len() + self.dropped;
        if hidden > 0 {
            shown.push(format!("and {hidden} more that are not shown\n"));
        }
        shown.join("\n")
    }

    /// Writes them to standard error.
    pub fn print(&self) {
        let stderr = io::stderr();
        // If standard error is closed, only the exit status remains.
        let _ = stderr.lock().write_all(self.render(colour_on(&stderr)).as_bytes());
    }

    fn render_remark(&self, remark: &ImportRemark, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let level = match remark.level {
            RemarkLevel::Error => Level::ERROR,
            RemarkLevel::Warning => Level::WARNING,
            RemarkLevel::Note => Level::NOTE,
        };
        let title = level.primary_title(remark.message.as_str());
        let ImportPlace { file, start, end } = remark.place;
        let Some(file) = self.files.get(file) else {
            return format!("{}\n", renderer.render(&[Group::with_title(title)]));
        };
        let (number, line_start) = file.line(start);
        let gutter = number.to_string().len() + 1;
        let head = match file.shown(line_start, start, end) {
            Some((text, span)) => {
                let snippet = Snippet::source(text)
                    .path(&*file.name)
                    .line_start(number)
                    .annotation(AnnotationKind::Primary.span(span));
                renderer.render(&[title.element(snippet)])
            }
            None => {
                let title = renderer.render(&[Group::with_title(title)]);
                let before = file.text.get(line_start..start).unwrap_or_default();
                let column = before.chars().count() + 1;
                format!("{title}\n{:width$}--> {}:{number}:{column}", "", file.name, width = gutter - 1)
            }
        };
        let (bold, plain) = if colour { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        match remark.help.as_str() {
            "" => format!("{head}\n"),
            help => format!("{head}\n{:gutter$}= {bold}help{plain}: {help}\n", ""),
        }
    }
}

impl ReportedFile {
    /// The number of the line of this offset, from 1, and where it begins.
    fn line(&self, offset: usize) -> (usize, usize) {
        let number = self.lines.partition_point(|begin| *begin <= offset).max(1);
        (number, self.lines.get(number - 1).copied().unwrap_or(0))
    }

    /// The visible part of a line, with the marked bytes; `None` if the place is beyond that.
    fn shown(&self, line: usize, start: usize, end: usize) -> Option<(String, std::ops::Range<usize>)> {
        let rest = self.text.get(line..)?;
        let text = rest.split('\n').next().unwrap_or_default();
        let text = text.strip_suffix('\r').unwrap_or(text);
        let text = text.get(..text.floor_char_boundary(MAX_LINE))?;
        let (start, end) = (start.saturating_sub(line), end.saturating_sub(line));
        let begin = text.floor_char_boundary(start);
        let span = begin..text.floor_char_boundary(end).max(begin);
        // The renderer escapes the control characters of ASCII; those beyond become a character of as many bytes.
        let shown = text.replace(|letter: char| ('\u{80}'..='\u{9f}').contains(&letter), "·");
        (start <= text.len()).then_some((shown, span))
    }
}

/// A user's text in back-ticks: without control characters, and cut after 80 characters.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", safe_text(text, MAX_QUOTED))
}
