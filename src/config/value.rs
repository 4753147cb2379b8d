//! One value of the file, read by type. A value of another type is reported with its position, and read as `None`.

use std::io;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::diagnostics::Diagnostics;
use super::named_file::MAX_BYTES;
use super::redact::is_variable_name;
use super::remedies::{self, did_you_mean};
use super::report::{SourceSpan, listed, quoted};
use super::text::{Cursor, is_one_variable, is_variable};

/// A value with the name that messages give it.
#[derive(Clone)]
pub(super) struct ConfigValue<'a> {
    label: String,
    inner: &'a Spanned<DeValue<'a>>,
    diagnostics: &'a Diagnostics<'a>,
}

/// One key of a table with keys of the user's choice: `[limits.NAME]`, `headers = { NAME = … }`.
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) key_span: SourceSpan,
    pub(super) value: ConfigValue<'a>,
}

impl<'a> ConfigValue<'a> {
    /// The value of `key`.
    pub(super) fn of_key(
        key: &str,
        inner: &'a Spanned<DeValue<'a>>,
        diagnostics: &'a Diagnostics<'a>,
    ) -> Self {
        Self { label: quoted(key), inner, diagnostics }
    }

    /// Its position: the value itself, or for a table its header.
    pub(super) fn span(&self) -> SourceSpan {
        self.inner.span().into()
    }

    /// Its name in messages, back-ticks included.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The collector of errors.
    pub(super) fn diagnostics(&self) -> &'a Diagnostics<'a> {
        self.diagnostics
    }

    /// Whether it is a string.
    pub(super) fn is_text(&self) -> bool {
        self.inner.get_ref().is_str()
    }

    /// The text of a string as written, for a remedy.
    pub(super) fn written(&self) -> Option<&'a str> {
        self.inner.get_ref().as_str()
    }

    /// The strings of a list as written, for a remedy; `None` if it is not a list, or one with other items.
    pub(super) fn written_list(&self) -> Option<Vec<&'a str>> {
        self.inner.get_ref().as_array()?.iter().map(|item| item.get_ref().as_str()).collect()
    }

    /// `true` or `false` as written, for a remedy.
    pub(super) fn written_boolean(&self) -> Option<bool> {
        self.inner.get_ref().as_bool()
    }

    /// Whether it is a whole number.
    pub(super) fn is_whole(&self) -> bool {
        self.inner.get_ref().is_integer()
    }

    /// The digits of a whole number.
    pub(super) fn whole_text(&self) -> Option<&'a str> {
        self.inner.get_ref().as_integer().map(|number| number.as_str())
    }

    /// Whether it is a table.
    pub(super) fn is_table(&self) -> bool {
        self.inner.get_ref().is_table()
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        self.inner.get_ref().is_array()
    }

    /// A string, with `${NAME}` replaced from the environment.
    pub(super) fn text(&self) -> Option<Cursor<'a>> {
        match self.inner.get_ref() {
            DeValue::String(written) => Cursor::expand(written, self.span(), self.diagnostics),
            _ => self.mismatch("a string", "put it in quotes: `\"…\"`"),
        }
    }

    /// The value of the environment variable that this string names: a secret, which no message repeats. A name that
    /// may be the secret itself is not repeated either.
    pub(super) fn variable(&self) -> Option<String> {
        let name = self.text()?;
        if !is_variable(name.as_str()) {
            let help = "a name has letters, digits and `_`; the secret itself stands in the variable";
            self.fault("this is not the name of an environment variable", help);
            return None;
        }
        let usual = is_variable_name(name.as_str());
        let (which, example) = if usual {
            (format!("the environment variable {}", name.quoted()), name.as_str())
        } else {
            ("the environment variable that is named here".to_owned(), "NAME")
        };
        let help = || format!("set it before tollgate starts: `export {example}=…`");
        match (self.diagnostics.environment)(name.as_str()) {
            Some(held) if held.trim().is_empty() => {
                self.fault(format!("{which} is empty"), help());
                None
            }
            Some(held) => Some(held),
            None => {
                self.diagnostics.unset(self.span(), &which, example);
                None
            }
        }
    }

    /// The bytes of the file that this string names; a relative path begins where the file with this string lies.
    pub(super) fn file(&self) -> Option<Vec<u8>> {
        self.file_at(&self.text()?, MAX_BYTES)
    }

    /// The same of a file at `path`, at most this many bytes.
    pub(super) fn file_at(&self, path: &Cursor<'_>, max_bytes: u64) -> Option<Vec<u8>> {
        match self.diagnostics.file(path.as_str(), self.span(), max_bytes) {
            Ok(bytes) => Some(bytes),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && self.diagnostics.is_without_environment() =>
            {
                self.diagnostics.skip(self.span(), &format!("there is no file {}", path.quoted()));
                None
            }
            Err(error) => {
                let help = "a relative path begins where `gateway.toml` lies; the user that tollgate runs as must be able to read it";
                self.fault(format!("cannot read {}: {error}", path.quoted()), help);
                None
            }
        }
    }

    /// The text of a string that is one variable and nothing else: it may stand for a number or a boolean.
    fn one_variable(&self) -> Option<Option<Cursor<'a>>> {
        let is_one = self.inner.get_ref().as_str().is_some_and(is_one_variable);
        is_one.then(|| self.text())
    }

    /// Reports a variable that does not hold what stands for this value.
    fn holds_other<T>(&self, text: &Cursor<'_>, expected: &str) -> Option<T> {
        let message = format!("{} should be {expected}, but {} holds none", self.label, text.quoted());
        self.fault(message, "look at what the variable holds");
        None
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Option<bool> {
        const EXPECTED: &str = "`true` or `false`";
        if let Some(text) = self.one_variable() {
            let text = text?;
            return match text.as_str() {
                "true" => Some(true),
                "false" => Some(false),
                _ => self.holds_other(&text, EXPECTED),
            };
        }
        match self.inner.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => self.mismatch(EXPECTED, "write it without quotes"),
        }
    }

    /// A whole number in `range`.
    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        if let Some(text) = self.one_variable() {
            let text = text?;
            return match DeValue::parse(text.as_str()).as_ref().map(Spanned::get_ref) {
                Ok(DeValue::Integer(number)) => self.in_range(number, text.written(), range),
                _ => self.holds_other(&text, "a whole number"),
            };
        }
        let DeValue::Integer(number) = self.inner.get_ref() else {
            let help = format!("write a number without quotes, from {} to {}", range.start(), range.end());
            return self.mismatch("a whole number", help);
        };
        self.in_range(number, &number.to_string(), range)
    }

    /// `shown` is the number in messages.
    fn in_range(&self, number: &DeInteger<'_>, shown: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix());
        let value = value.ok().filter(|value| range.contains(value));
        if value.is_none() {
            self.out_of_range(shown, &range.start().to_string(), &range.end().to_string());
        }
        value
    }

    /// A whole number from `min` to `max`.
    pub(super) fn count(&self, min: u32, max: u32) -> Option<u32> {
        self.whole(u64::from(min)..=u64::from(max)).and_then(|value| u32::try_from(value).ok())
    }

    /// A number from 0 to 1.
    pub(super) fn share(&self) -> Option<f64> {
        if let Some(text) = self.one_variable() {
            let text = text?;
            let parsed = DeValue::parse(text.as_str());
            return match parsed.as_ref().ok().and_then(|value| digits(value.get_ref())) {
                Some(number) => self.in_unit(number, text.written()),
                None => self.holds_other(&text, "a number"),
            };
        }
        match digits(self.inner.get_ref()) {
            Some(number) => self.in_unit(number, number),
            None => self.mismatch("a number", "write a number from 0 to 1, such as `0.2`"),
        }
    }

    /// `shown` is the number in messages.
    fn in_unit(&self, number: &str, shown: &str) -> Option<f64> {
        let value = number.parse().ok().filter(|value| (0.0..=1.0).contains(value));
        if value.is_none() {
            self.out_of_range(shown, "0", "1");
        }
        value
    }

    /// One of these words, with its meaning.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text.as_str());
        if chosen.is_none() {
            let words = || choices.iter().map(|(word, _)| *word);
            let movers = remedies::value(self.label.trim_matches('`'), text.as_str()).map(str::to_owned);
            let help = movers.unwrap_or_else(|| did_you_mean(text.as_str(), words(), &all(choices)));
            self.fault(format!("{} cannot be {}", self.label, text.quoted()), help);
        }
        chosen.map(|(_, meaning)| *meaning)
    }

    /// The values of a list, which must not be missing.
    pub(super) fn list(&self) -> Option<Vec<ConfigValue<'a>>> {
        let DeValue::Array(items) = self.inner.get_ref() else {
            let help = match self.inner.get_ref() {
                DeValue::String(text) => format!("put it in brackets: `[\"{}\"]`", text.escape_debug()),
                _ => "put it in brackets: `[…]`".to_owned(),
            };
            return self.mismatch("a list", help);
        };
        let label = format!("each of {}", self.label);
        let item = |inner| ConfigValue { label: label.clone(), inner, diagnostics: self.diagnostics };
        Some(items.iter().map(item).collect())
    }

    /// The results of `read` for the items of a list; rejected ones are left out.
    pub(super) fn each<T>(&self, read: impl FnMut(ConfigValue<'a>) -> Option<T>) -> Option<Vec<T>> {
        Some(self.list()?.into_iter().filter_map(read).collect())
    }

    /// As [`Self::each`], for a list that must name at least one.
    pub(super) fn some_of<T>(&self, read: impl FnMut(ConfigValue<'a>) -> Option<T>) -> Option<Vec<T>> {
        let items = self.list()?;
        if items.is_empty() {
            self.fault(format!("{} is an empty list", self.label), "name at least one");
            return None;
        }
        Some(items.into_iter().filter_map(read).collect())
    }

    /// A table with keys of the user's choice.
    pub(super) fn entries(&self) -> Option<Vec<Entry<'a>>> {
        let table = self.entries_of("a table", "write `{ name = \"…\" }`")?;
        let entry = |(key, inner): (&'a Spanned<_>, _)| -> Entry<'a> {
            let text: &'a std::borrow::Cow<'a, str> = key.get_ref();
            Entry {
                key: text,
                key_span: key.span().into(),
                value: ConfigValue::of_key(text, inner, self.diagnostics),
            }
        };
        Some(table.iter().map(entry).collect())
    }

    /// Reports a fault at this value.
    pub(super) fn fault(&self, message: impl Into<String>, help: impl Into<String>) {
        self.diagnostics.fault(self.span(), message, help);
    }

    /// Reports a value of the wrong type.
    pub(super) fn mismatch<T>(&self, expected: &str, help: impl Into<String>) -> Option<T> {
        let found = match self.inner.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "`true` or `false`",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.fault(format!("{} should be {expected}, but this is {found}", self.label), help);
        None
    }

    /// Reports a number or quantity that lies outside its range.
    pub(super) fn out_of_range(&self, found: &str, min: &str, max: &str) {
        let message = format!("{} cannot be {}", self.label, quoted(found));
        self.fault(message, format!("the range is {min} to {max}"));
    }

    /// The keys of a table. `expected` and `help` describe the right type if it is none.
    pub(super) fn entries_of(&self, expected: &str, help: &str) -> Option<&'a DeTable<'a>> {
        match self.inner.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => self.mismatch(expected, help),
        }
    }
}

/// All words of a choice, as text.
fn all<T>(choices: &[(&str, T)]) -> String {
    match choices {
        [(only, _)] => format!("the only choice is {}", quoted(only)),
        _ => format!("the choices are {}", listed(choices.iter().map(|(word, _)| *word))),
    }
}

/// The digits of a whole number or a fraction.
fn digits<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::Float(number) => Some(number.as_str()),
        DeValue::Integer(number) => Some(number.as_str()),
        _ => None,
    }
}
