//! The names of limits, upstreams and routes: valid names, and look-up.

use std::collections::HashMap;

use super::diagnostics::Diagnostics;
use super::remedies::did_you_mean;
use super::report::{SourceSpan, listed, quoted};
use super::text::Cursor;
use super::value::Entry;

/// Maximum length of a limit's name, which is in every response.
const MAX_LIMIT_NAME: usize = 64;
/// Maximum length of any other name, in bytes.
const MAX_LABEL: usize = 256;
/// Maximum number of names listed in a message.
const MAX_LISTED: usize = 12;

/// A limit's name is sent in the rate-limit headers, as a string of structured fields (RFC 9651): so only plain
/// characters.
pub(super) fn check_limit(name: &str, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || name.len() > MAX_LIMIT_NAME || !name.bytes().all(is_plain) {
        let message = format!("{} cannot be the name of a limit", quoted(name));
        let help =
            format!("it is sent in responses: use 1 to {MAX_LIMIT_NAME} letters, digits, `-`, `_` and `.`");
        diagnostics.fault(span, message, help);
    }
}

/// Names of upstreams and routes are in logs and metrics.
pub(super) fn check_label(name: &str, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    if name.is_empty() || name.len() > MAX_LABEL || name.chars().any(char::is_control) {
        let message = format!("{} cannot be a name", quoted(name));
        diagnostics.fault(span, message, format!("use 1 to {MAX_LABEL} bytes without control characters"));
    }
}

/// All names of one kind, each with its place in the file's order.
pub(super) struct Directory<'a> {
    kind: &'static str,
    names: Vec<&'a str>,
    indices: HashMap<&'a str, usize>,
}

impl<'a> Directory<'a> {
    /// `kind` is the noun in messages: `limit`, `upstream`.
    pub(super) fn new(kind: &'static str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let indices = names.iter().copied().zip(0..).collect();
        Self { kind, names, indices }
    }

    /// Whether there is this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    /// The index of the name `text`. An undefined name is an error.
    pub(super) fn find(&self, text: &Cursor<'_>) -> Option<usize> {
        let found = self.indices.get(text.as_str()).copied();
        if found.is_none() {
            self.report_unknown((text.as_str(), &text.quoted()), text.span(), text.diagnostics());
        }
        found
    }

    /// The same of a key of a table.
    pub(super) fn find_key(&self, entry: &Entry<'_>) -> Option<usize> {
        let found = self.indices.get(entry.key).copied();
        if found.is_none() {
            self.report_unknown((entry.key, &quoted(entry.key)), entry.key_span, entry.value.diagnostics());
        }
        found
    }

    fn report_unknown(
        &self,
        (name, shown): (&str, &impl std::fmt::Display),
        span: SourceSpan,
        diagnostics: &Diagnostics<'_>,
    ) {
        if diagnostics.is_incomplete() {
            let why = format!("{} {shown} may stand in a file that is not known", self.kind);
            return diagnostics.skip(span, &why);
        }
        // Searching all names for each of many errors would take long, for remedies that are not shown.
        let help = match diagnostics.shows_more_errors() {
            true => did_you_mean(name, self.names.iter().copied(), &self.known()),
            false => String::new(),
        };
        diagnostics.fault(span, format!("there is no {} {shown}", self.kind), help);
    }

    fn known(&self) -> String {
        let kind = self.kind;
        let shown = listed(self.names.iter().copied().take(MAX_LISTED));
        match self.names.len() {
            0 if kind == "auth" => "define it: `[auth.NAME]`".to_owned(),
            0 if kind == "listener" => {
                "name a listener: `listen = [{ address = \"0.0.0.0:8080\", name = \"public\" }]` of `[server]`".to_owned()
            }
            0 => format!("define it: `[{kind}s.NAME]`"),
            1 => format!("the only {kind} is {shown}"),
            count if count > MAX_LISTED => format!("the {kind}s are {shown} and {} more", count - MAX_LISTED),
            _ => format!("the {kind}s are {shown}"),
        }
    }
}
