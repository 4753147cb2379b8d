//! A table of the file, read key by key. It records the keys that were read, so that the remaining ones are unknown,
//! and the list of known keys is never written twice.
//!
//! Keys of a later version are reported as such, not as mistyped.

use std::sync::LazyLock;

use toml::de::DeTable;

use super::diagnostics::Diagnostics;
use super::keys::{ConfigKey, DefaultedKey};
use super::remedies::{self, did_you_mean};
use super::report::{SourceSpan, listed, quoted};
use super::units::usual_time_unit;
use super::value::ConfigValue;

/// A cursor over one table.
pub(super) struct ConfigTable<'a> {
    title: String,
    span: SourceSpan,
    entries: &'a DeTable<'a>,
    known: Vec<&'static str>,
    foreign: Vec<&'static str>,
    errors_before: usize,
    diagnostics: &'a Diagnostics<'a>,
}

impl<'a> ConfigValue<'a> {
    /// A table with tollgate's keys. `title` is its name in messages, back-ticks included.
    pub(super) fn table(&self, title: &str) -> Option<ConfigTable<'a>> {
        self.table_where(title, "a table")
    }

    /// As [`Self::table`], where a string is allowed too.
    pub(super) fn table_beside_text(&self, title: &str) -> Option<ConfigTable<'a>> {
        self.table_where(title, "a string or a table")
    }

    fn table_where(&self, title: &str, expected: &str) -> Option<ConfigTable<'a>> {
        let help = "the keys of a table stand in braces, `{ … }`, or below its header, `[…]`";
        self.entries_of(expected, help)
            .map(|table| ConfigTable::new(title, self.span(), table, self.diagnostics()))
    }
}

impl<'a> ConfigTable<'a> {
    /// Begins to read a table. `title` is its name in messages, back-ticks included.
    pub(super) fn new(
        title: &str,
        span: SourceSpan,
        entries: &'a DeTable<'a>,
        diagnostics: &'a Diagnostics<'a>,
    ) -> Self {
        let (known, foreign) = (Vec::new(), Vec::new());
        Self {
            title: title.to_owned(),
            span,
            entries,
            known,
            foreign,
            errors_before: diagnostics.errors(),
            diagnostics,
        }
    }

    /// A table without keys: each has its default.
    pub(super) fn empty(title: &str, span: SourceSpan, diagnostics: &'a Diagnostics<'a>) -> Self {
        static NOTHING: LazyLock<DeTable<'static>> = LazyLock::new(DeTable::new);
        Self::new(title, span, &NOTHING, diagnostics)
    }

    /// The table that stands for `key`; where it is absent, one in which each key has its default. `None` if something
    /// else stands there.
    pub(super) fn section<T>(&mut self, key: &ConfigKey<T>, title: &str) -> Option<ConfigTable<'a>> {
        match self.take(key) {
            Some(value) => value.table(title),
            None => Some(Self::empty(title, SourceSpan::default(), self.diagnostics)),
        }
    }

    /// The collector of errors.
    pub(super) fn diagnostics(&self) -> &'a Diagnostics<'a> {
        self.diagnostics
    }

    /// The position for errors of the table as a whole.
    pub(super) fn span(&self) -> SourceSpan {
        self.span
    }

    /// The value of `key`, if it is given.
    pub(super) fn take<T>(&mut self, key: &ConfigKey<T>) -> Option<ConfigValue<'a>> {
        self.known.push(key.name);
        self.entries.get(key.name).map(|inner| ConfigValue::of_key(key.name, inner, self.diagnostics))
    }

    /// What stands for `key`; `None` if it is absent or faulty.
    pub(super) fn get<T: Copy>(&mut self, key: &ConfigKey<T>) -> Option<T> {
        self.optional(key, |value| key.value.read(&value))
    }

    /// What stands for `key`, or its default.
    pub(super) fn value<T: Copy>(&mut self, key: &DefaultedKey<T>) -> T {
        self.get(key).unwrap_or(key.default)
    }

    /// The result of `read` for `key`; `None` if it is absent or faulty.
    pub(super) fn optional<T, R>(
        &mut self,
        key: &ConfigKey<T>,
        read: impl FnOnce(ConfigValue<'a>) -> Option<R>,
    ) -> Option<R> {
        self.take(key).and_then(|value| self.certain(key.name, value, read))
    }

    /// The result of `read`. An unknown value is noted with its key.
    fn certain<R>(
        &self,
        key: &'static str,
        value: ConfigValue<'a>,
        read: impl FnOnce(ConfigValue<'a>) -> Option<R>,
    ) -> Option<R> {
        let unknown = self.diagnostics.unknown();
        let result = read(value);
        if self.diagnostics.unknown() > unknown {
            self.diagnostics.set_uncertain(&self.title, key);
        }
        result
    }

    /// Whether the value of the key with this name, which was read, is unknown.
    pub(super) fn is_uncertain(&self, name: &str) -> bool {
        self.diagnostics.is_uncertain(&self.title, name)
    }

    /// The result of `read` for `key`, or `default`.
    pub(super) fn or<T, R>(
        &mut self,
        key: &ConfigKey<T>,
        default: R,
        read: impl FnOnce(ConfigValue<'a>) -> Option<R>,
    ) -> R {
        self.optional(key, read).unwrap_or(default)
    }

    /// The result of `read` for `key`, or its default.
    pub(super) fn or_default<T: Copy>(
        &mut self,
        key: &DefaultedKey<T>,
        read: impl FnOnce(ConfigValue<'a>) -> Option<T>,
    ) -> T {
        self.or(key, key.default, read)
    }

    /// The result of `read` for `key`, which this table must have.
    pub(super) fn require<T, R>(
        &mut self,
        key: &ConfigKey<T>,
        read: impl FnOnce(ConfigValue<'a>) -> Option<R>,
    ) -> Option<R> {
        self.require_as(key, key.example, read)
    }

    /// The same where the message that it is missing has another example.
    pub(super) fn require_as<T, R>(
        &mut self,
        key: &ConfigKey<T>,
        example: &str,
        read: impl FnOnce(ConfigValue<'a>) -> Option<R>,
    ) -> Option<R> {
        let value = self.take(key);
        if value.is_none() {
            self.missing(key.name, example);
        }
        value.and_then(|value| self.certain(key.name, value, read))
    }

    /// Reports that a required key is missing.
    pub(super) fn missing(&self, key: &str, example: &str) {
        let message = format!("{} has no `{key}`", self.title);
        self.diagnostics.fault(self.span, message, format!("add, for example, `{key} = {example}`"));
    }

    /// The values of unknown keys that are `key` mistyped, where `sections` are all keys of the table: what stands below them
    /// is read, so that no further error follows from the mistake.
    pub(super) fn mistyped(&self, key: &str, sections: &[&'static str]) -> Vec<ConfigValue<'a>> {
        let is_meant = |name: &str| {
            !sections.contains(&name) && remedies::nearest(name, sections.iter().copied()) == Some(key)
        };
        let meant = self.entries.iter().filter(|(name, _)| is_meant(name.get_ref()));
        meant.map(|(name, inner)| ConfigValue::of_key(name.get_ref(), inner, self.diagnostics)).collect()
    }

    /// A key without effect beside the other keys of the table: an error if it is given.
    pub(super) fn misplaced(&mut self, key: &'static str, message: &str, help: &str) {
        if let Some(span) = self.foreign(key) {
            self.diagnostics.fault(span, message, help);
        }
    }

    /// The place of a key, if it is given.
    pub(super) fn given(&self, key: &str) -> Option<SourceSpan> {
        self.entries.get_key_value(key).map(|(written, _)| written.span().into())
    }

    /// The place of a key's value, if the key is given.
    pub(super) fn given_value(&self, key: &str) -> Option<SourceSpan> {
        self.entries.get(key).map(|value| value.span().into())
    }

    /// Keys that are known, but not read this time because the key that gives them their meaning is missing.
    pub(super) fn skip(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Reports unknown keys. Returns whether the whole table is valid.
    pub(super) fn finish(self) -> bool {
        for (key, value) in self.entries {
            let name: &str = key.get_ref();
            if self.known.contains(&name) || self.foreign.contains(&name) {
                continue;
            }
            if is_later(&self.title, name) {
                self.diagnostics.not_available(key.span().into(), name);
            } else {
                let known = || format!("known here: {}", listed(self.known.iter().copied()));
                let elsewhere = || remedies::belongs_to(&self.title, name).unwrap_or_else(known);
                let near = || did_you_mean(name, self.known.iter().copied(), &elsewhere());
                let written = (name, value.get_ref());
                let other = remedies::other_key(&self.title, written, self.entries, usual_time_unit);
                let help = other.unwrap_or_else(near);
                let message = format!("unknown key {} in {}", quoted(name), self.title);
                self.diagnostics.fault(key.span().into(), message, help);
            }
        }
        self.diagnostics.errors() == self.errors_before
    }

    /// The position of a key that is never listed among the known ones.
    fn foreign(&mut self, key: &'static str) -> Option<SourceSpan> {
        self.foreign.push(key);
        self.given(key)
    }
}

/// The keys by the table that they belong to; one that ends in `.` begins the titles of many tables.
const LATER: [(&str, &[&str]); 2] = [("`[store]`", &["on_change"]), ("`[limits.", &["on_change"])];

/// Whether a later version knows this key in the table with this title.
fn is_later(title: &str, key: &str) -> bool {
    let is_of = |of: &str| title == of || (of.ends_with('.') && title.starts_with(of));
    LATER.iter().any(|(of, keys)| is_of(of) && keys.contains(&key))
}
