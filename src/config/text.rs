//! A string of the file, with `${NAME}` replaced by the environment variable NAME.
//!
//! `${NAME:-default}` stands for the default if the variable is not set or empty. `$${` is an escape for `${`; any other
//! `$` is an ordinary character. The value of a variable is not expanded again,
//! and never appears in a message: it may be a secret.

use std::ops::Range;

use super::diagnostics::{Diagnostics, Environment};
use super::report::{SourceSpan, quoted};
use crate::route::key::KeyFault;
use crate::route::pattern::PatternFault;

/// A string after expansion of the environment, with the text in the file.
pub(super) struct Cursor<'a> {
    content: String,
    /// The parts of `content` that are the text of variables, in order.
    variables: Vec<Range<usize>>,
    written: &'a str,
    span: SourceSpan,
    diagnostics: &'a Diagnostics<'a>,
}

/// The fault of a piece of text, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The fault, with the text in back-ticks.
    pub(super) message: String,
    /// The remedy.
    pub(super) help: String,
}

impl SyntaxError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

impl From<PatternFault> for SyntaxError {
    fn from(fault: PatternFault) -> Self {
        Self::new(fault.message, fault.help)
    }
}

impl From<KeyFault> for SyntaxError {
    fn from(fault: KeyFault) -> Self {
        Self::new(fault.message, fault.help)
    }
}

impl<'a> Cursor<'a> {
    /// Expands the environment. An unset variable is an error at `span`, the position of the string.
    pub(super) fn expand(
        written: &'a str,
        span: SourceSpan,
        diagnostics: &'a Diagnostics<'a>,
    ) -> Option<Self> {
        let mut variables = Vec::new();
        match expand(written, diagnostics.environment, &mut variables) {
            Ok(content) => Some(Self { content, variables, written, span, diagnostics }),
            Err(NotExpanded::Unset(name)) => {
                diagnostics.unset(span, &format!("the environment variable `{name}`"), name);
                None
            }
            Err(NotExpanded::Syntax(refusal)) => {
                diagnostics.fault(span, refusal.message, refusal.help);
                None
            }
        }
    }

    /// The expanded text.
    pub(super) fn as_str(&self) -> &str {
        &self.content
    }

    /// The parts of the expanded text that are the text of variables, in order.
    pub(super) fn variables(&self) -> &[Range<usize>] {
        &self.variables
    }

    /// The expanded text, owned.
    pub(super) fn into_string(self) -> String {
        self.content
    }

    /// The same place with a part of the text.
    pub(super) fn with(self, content: String) -> Self {
        Self { content, variables: Vec::new(), ..self }
    }

    /// The text in the file.
    pub(super) fn written(&self) -> &'a str {
        self.written
    }

    /// The text in the file, in back-ticks.
    pub(super) fn quoted(&self) -> String {
        quoted(self.written)
    }

    /// Its position.
    pub(super) fn span(&self) -> SourceSpan {
        self.span
    }

    /// The collector of errors.
    pub(super) fn diagnostics(&self) -> &'a Diagnostics<'a> {
        self.diagnostics
    }

    /// The result of `parse`. `what` names the expected form (`a rate`), for text from the environment: then the error
    /// of `parse` is not repeated.
    pub(super) fn parse<T, E: Into<SyntaxError>>(
        &self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let refusal: SyntaxError = match parse(&self.content) {
            Ok(parsed) => return Some(parsed),
            Err(refusal) => refusal.into(),
        };
        if self.content == self.written {
            self.diagnostics.fault(self.span, refusal.message, refusal.help);
        } else {
            let message = format!("{} is not {what} once the environment is filled in", self.quoted());
            self.diagnostics.fault(self.span, message, "look at what the variable holds");
        }
        None
    }
}

/// Why a string cannot be expanded.
pub(super) enum NotExpanded<'a> {
    /// A variable of this name is not set.
    Unset(&'a str),
    /// `${` begins no variable. The error quotes the string.
    Syntax(SyntaxError),
}

/// The string after expansion; `None` if a variable is not set, or the string is faulty.
pub(super) fn expanded(written: &str, environment: &Environment<'_>) -> Option<String> {
    expand(written, environment, &mut Vec::new()).ok()
}

/// Whether a string is one variable and nothing else.
pub(super) fn is_one_variable(written: &str) -> bool {
    written.starts_with("${") && written.find('}') == written.len().checked_sub(1)
}

/// The string with its variables filled in. Adds to `variables` the parts of the result that are the text of variables.
///
/// # Errors
///
/// See [`NotExpanded`].
pub(super) fn expand<'a>(
    written: &'a str,
    environment: &Environment<'_>,
    variables: &mut Vec<Range<usize>>,
) -> Result<String, NotExpanded<'a>> {
    let mut expanded = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find("${") {
        let (before, variable) = (&rest[..at], &rest[at + 2..]);
        if let Some(literal) = before.strip_suffix('$') {
            expanded.push_str(literal);
            expanded.push_str("${");
            rest = variable;
            continue;
        }
        let Some((variable, after)) = variable.split_once('}') else {
            let message = format!("`${{` without `}}` in {}", quoted(written));
            let help = "write `${NAME}` for a variable, or `$${` for the characters `${`";
            return Err(NotExpanded::Syntax(SyntaxError::new(message, help)));
        };
        expanded.push_str(before);
        let start = expanded.len();
        expanded.push_str(&lookup(variable, environment)?);
        variables.push(start..expanded.len());
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Whether a variable may have this name.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// The value of `NAME` or `NAME:-default`.
fn lookup<'a>(variable: &'a str, environment: &Environment<'_>) -> Result<String, NotExpanded<'a>> {
    let (name, default) = match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    };
    if !is_variable(name) {
        let message = format!("{} is not the name of an environment variable", quoted(name));
        let help = "a name has letters, digits and `_`; `$${` stands for the characters `${`";
        return Err(NotExpanded::Syntax(SyntaxError::new(message, help)));
    }
    match (environment(name), default) {
        (Some(held), None) => Ok(held),
        (Some(held), Some(_)) if !held.is_empty() => Ok(held),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(NotExpanded::Unset(name)),
    }
}
