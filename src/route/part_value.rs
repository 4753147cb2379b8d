//! The value of a part of a key in a request.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::content::{BodyValue, UnreadableBody};
use super::folding;
use super::mask::Masking;
use crate::http1::fields::Values;

/// The text for a part that a request lacks.
pub const LACKS: &str = "is missing";
/// The text for a part of a body that cannot be read.
const UNREADABLE: &str = "cannot be read";
/// The text for a part with several values.
pub const REPEATED: &str = "has several values";

/// The value of a part in a request.
pub(super) enum PartValue<'r> {
    Missing,
    /// There are several values that differ, and they are not joined.
    Repeated,
    /// The body cannot be read.
    Unreadable(UnreadableBody),
    /// A part that is equal for all requests.
    Nothing,
    Address(IpAddr),
    Bytes(Cow<'r, [u8]>),
    /// The value of a header.
    Value(Cow<'r, [u8]>),
    /// The values of a header, which differ.
    Values(Values<'r, 'r>),
    /// The values of a cookie or a query parameter, which differ.
    Several(Vec<Cow<'r, [u8]>>),
}

impl<'r> PartValue<'r> {
    pub(super) fn or_missing(value: Option<Cow<'r, [u8]>>) -> Self {
        value.filter(|value| !value.is_empty()).map_or(Self::Missing, Self::Bytes)
    }

    /// Of entries that differ, all together are one key: the file that sends them names them on purpose.
    pub(super) fn of_entries(values: impl Iterator<Item = &'r [u8]> + Clone) -> Self {
        let mut others = values.clone();
        match others.next() {
            None => Self::Missing,
            Some(first) if others.any(|other| other != first) => {
                Self::Several(values.map(Cow::Borrowed).collect())
            }
            Some(only) => Self::Bytes(Cow::Borrowed(only)),
        }
    }

    pub(super) fn of_body(value: BodyValue<'r>) -> Self {
        match value {
            BodyValue::Missing => Self::Missing,
            BodyValue::Repeated => Self::Repeated,
            BodyValue::Single(value) => Self::Bytes(value),
            BodyValue::Unreadable(fault) => Self::Unreadable(fault),
        }
    }

    /// The same [folded](folding). A value of blanks alone counts as absent, as an empty one does.
    pub(super) fn folded(self) -> Self {
        let single = |value: &[u8], of: fn(Cow<'r, [u8]>) -> Self| {
            let value = folding::folded(value);
            if value.is_empty() { Self::Missing } else { of(Cow::Owned(value)) }
        };
        match self {
            Self::Bytes(bytes) => single(&bytes, Self::Bytes),
            Self::Value(value) => single(&value, Self::Value),
            Self::Values(values) => {
                Self::Several(values.iter().map(|value| Cow::Owned(folding::folded(value))).collect())
            }
            Self::Several(values) => {
                Self::Several(values.iter().map(|value| Cow::Owned(folding::folded(value))).collect())
            }
            other => other,
        }
    }

    pub(super) fn of_header(values: Values<'r, 'r>, join: bool) -> Self {
        let mut others = values.iter();
        match others.next() {
            None => Self::Missing,
            Some(first) if others.any(|other| other != first) => {
                if join {
                    Self::Values(values)
                } else {
                    Self::Repeated
                }
            }
            Some(b"") => Self::Missing,
            Some(only) => Self::Value(Cow::Borrowed(only)),
        }
    }

    pub(super) fn of_values(values: impl Iterator<Item = Cow<'r, [u8]>> + Clone, join: bool) -> Self {
        let mut others = values.clone();
        match others.next() {
            Some(first) if others.any(|other| other != first) => {
                if join {
                    Self::Several(values.collect())
                } else {
                    Self::Repeated
                }
            }
            only => Self::or_missing(only),
        }
    }

    /// Why there is no value to count by, as in `header:x-key is missing`.
    pub(super) fn lack(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some(LACKS),
            Self::Repeated => Some(REPEATED),
            Self::Unreadable(_) => Some(UNREADABLE),
            _ => None,
        }
    }

    /// For display: masked by `masking`, controls and bytes that are not UTF-8 escaped.
    pub(super) fn words(&self, masking: Masking<'_>, is_authorization: bool) -> Option<String> {
        if matches!(self, Self::Missing | Self::Repeated | Self::Unreadable(_) | Self::Nothing) {
            return None;
        }
        let mut out = String::new();
        self.write(masking, is_authorization, usize::MAX, &mut out);
        Some(out)
    }

    /// Appends the same to `out`; of a long value at most `max` characters and `…`.
    pub(super) fn write(&self, masking: Masking<'_>, is_authorization: bool, max: usize, out: &mut String) {
        let mut write = |text: &str| write_value(text, masking, is_authorization, max, out);
        match self {
            Self::Missing | Self::Repeated | Self::Unreadable(_) | Self::Nothing => {}
            // Writing to a `String` cannot fail.
            Self::Address(address) => _ = write!(out, "{address}"),
            Self::Bytes(bytes) => write(&String::from_utf8_lossy(bytes)),
            Self::Value(value) => write(&String::from_utf8_lossy(value)),
            Self::Values(values) => {
                let texts: Vec<_> = values.iter().map(String::from_utf8_lossy).collect();
                write(&texts.join(", "));
            }
            Self::Several(values) => write(&joined(values)),
        }
    }
}

fn joined(values: &[Cow<'_, [u8]>]) -> String {
    let texts: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
    texts.join(", ")
}

/// Writes a value as [`PartValue::write`] does.
pub(super) fn write_value(
    text: &str,
    masking: Masking<'_>,
    is_authorization: bool,
    max: usize,
    out: &mut String,
) {
    if masking.is_off() { write_cut(text, max, out) } else { masking.write(text, is_authorization, out) }
}

fn write_cut(text: &str, max: usize, out: &mut String) {
    let cut = text.char_indices().nth(max).and_then(|(end, _)| text.get(..end));
    // Writing to a `String` cannot fail.
    let _ = write!(out, "{}", cut.unwrap_or(text).escape_debug());
    if cut.is_some() {
        out.push('…');
    }
}
