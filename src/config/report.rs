//! What is wrong with a file: every fault with its place and a remedy, rendered for people.

use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// At most so many errors, and so many warnings, are shown of one file; the rest are only counted.
const MAX_SHOWN: usize = 100;
/// At most so many characters of a file's text are quoted in a message.
const MAX_QUOTED: usize = 80;

/// Everything found in one file, in file order. Empty for a good file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    file: String,
    source: String,
    findings: Findings,
}

/// Errors and warnings while they are being collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    faults: Vec<Fault>,
    errors: usize,
    warnings: usize,
}

/// One thing that is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Whether the file can be used nevertheless.
    pub(super) severity: Severity,
    /// What is wrong: lower case, user text in back-ticks.
    pub(super) message: String,
    /// Where; `None`: the file as a whole.
    pub(super) place: Option<Place>,
    /// What would be right.
    pub(super) help: String,
}

/// Whether a file can be used in spite of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// It can not.
    Error,
    /// It can.
    Warning,
}

/// A stretch of the file: byte offsets, the end not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    start: usize,
    end: usize,
}

impl Report {
    pub(super) fn new(file: &str, source: &str, mut findings: Findings) -> Self {
        findings.faults.sort_by_key(|fault| fault.place);
        Self { file: file.to_owned(), source: source.to_owned(), findings }
    }

    /// A report of one fault that has no place in the file.
    pub(super) fn whole_file(file: &str, message: String, help: String) -> Self {
        let mut findings = Findings::default();
        findings.push(Fault { severity: Severity::Error, message, place: None, help });
        Self::new(file, "", findings)
    }

    /// How many errors were found, those not shown included.
    pub fn errors(&self) -> usize {
        self.findings.errors
    }

    /// How many warnings were found, those not shown included.
    pub fn warnings(&self) -> usize {
        self.findings.warnings
    }

    /// The report as a person reads it, one fault below the other, with ANSI colours if `colour`. Ends with a line feed
    /// unless it is empty.
    pub fn render(&self, colour: bool) -> String {
        let mut shown: Vec<String> =
            self.findings.faults.iter().map(|fault| self.render_fault(fault, colour)).collect();
        let hidden = self.findings.errors + self.findings.warnings - shown.len();
        if hidden > 0 {
            shown.push(format!("and {hidden} more that are not shown\n"));
        }
        shown.join("\n")
    }

    fn render_fault(&self, fault: &Fault, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let title = fault.severity.level().primary_title(fault.message.as_str());
        let (head, gutter) = match fault.place.map(|place| self.line_of(place)) {
            Some(line) => {
                let snippet = Snippet::source(line.text)
                    .path(self.file.as_str())
                    .line_start(line.number)
                    .annotation(AnnotationKind::Primary.span(line.start..line.end));
                (renderer.render(&[title.element(snippet)]), line.number.to_string().len() + 1)
            }
            None => (renderer.render(&[annotate_snippets::Group::with_title(title)]), 2),
        };
        let (bold, plain) = if colour { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        format!("{head}\n{:gutter$}= {bold}help{plain}: {}\n", "", fault.help)
    }

    /// The line on which `place` begins, with the place's columns in it. Only this line is handed to the renderer, so
    /// that a fault costs no more in a large file.
    fn line_of(&self, place: Place) -> Line<'_> {
        let start = self.source.floor_char_boundary(place.start);
        let line_start = self.source[..start].rfind('\n').map_or(0, |feed| feed + 1);
        let rest = &self.source[line_start..];
        let text = rest.find('\n').map_or(rest, |feed| &rest[..feed]);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let column = (start - line_start).min(text.len());
        let end = self.source.floor_char_boundary(place.end).saturating_sub(line_start);
        let number = self.source[..line_start].matches('\n').count() + 1;
        Line { number, text, start: column, end: end.clamp(column, text.len()) }
    }
}

/// One line of the file, with the columns (in bytes) that a fault marks.
struct Line<'a> {
    number: usize,
    text: &'a str,
    start: usize,
    end: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

impl Findings {
    /// Adds a fault; beyond [`MAX_SHOWN`] of its severity it is only counted.
    pub(super) fn push(&mut self, fault: Fault) {
        let count = match fault.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_SHOWN {
            self.faults.push(fault);
        }
    }

    /// How many errors so far.
    pub(super) fn errors(&self) -> usize {
        self.errors
    }
}

impl Severity {
    fn level(self) -> Level<'static> {
        match self {
            Self::Error => Level::ERROR,
            Self::Warning => Level::WARNING,
        }
    }
}

impl From<std::ops::Range<usize>> for Place {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A text of the user's in back-ticks: control characters shown as `␣`, so that nothing in a file can steer a terminal,
/// and cut after 80 characters.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_QUOTED).map(|c| if c.is_control() { '␣' } else { c }).collect();
    if text.chars().nth(MAX_QUOTED).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// Several texts in back-ticks, separated by commas.
pub(super) fn listed<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}
