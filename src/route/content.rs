//! The body of a request as keys see it: the fields of a form, and the members of a JSON document.
//!
//! Backends differ in how they read a body, so that a request counts by every value that one of them may find: names are
//! compared without case, and those of forms in the way of PHP too. Several values that differ are
//! [`BodyValue::Repeated`].
//!
//! A JSON list stands for several calls, as in JSON-RPC: a [batch](JsonBatch).

mod batch;
mod json;

use std::borrow::Cow;

use bytes::Bytes;

use super::descriptor::DescriptorEntry;
use super::query;
use crate::http1::fields::Fields;
use crate::measure::JsonPointer;
pub use batch::{JsonBatch, MAX_CALLS};
pub use json::JsonMembers;

/// The maximum size of a body that keys are read from, bytes, on routes that say nothing else.
pub const DEFAULT_MAX_CONTENT: usize = 64 << 10;

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestContent {
    /// Nothing is known of it: the request comes from a log.
    Unknown,
    /// It was not read yet: each condition on it may hold.
    Unread,
    /// It has no bytes.
    Empty,
    /// `application/x-www-form-urlencoded`.
    Form(Bytes),
    /// `application/json`, or a type that ends with `+json`.
    Json(JsonMembers),
    /// The same types, where the document is a list.
    Batch(JsonBatch),
    /// It cannot be read.
    Unreadable(UnreadableBody),
    /// There is no request: another proxy asks about this descriptor.
    Descriptor(Vec<DescriptorEntry>),
}

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableBody {
    /// It has more bytes than the route reads.
    #[error("the body is larger than `max_key_body`")]
    TooLarge,
    /// It has a content coding, another type, or a character set other than UTF-8.
    #[error("the type or the coding of the body is another one than the limit reads")]
    Type,
    /// It is malformed, or a value that is read of it is a list or an object.
    #[error("the body is malformed, or a value that is read of it is a list or an object")]
    Broken,
    /// It is a list of documents where one is read.
    #[error("the body is a list of calls")]
    Batch,
}

/// The value of a field in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyValue<'b> {
    /// The body can be read, and has no such field, or an empty one.
    Missing,
    /// Several that differ.
    Repeated,
    /// One, perhaps several times.
    Single(Cow<'b, [u8]>),
    /// The body, or the field, cannot be read.
    Unreadable(UnreadableBody),
}

impl RequestContent {
    /// A whole body with these fields of its head. `pointers` are those by which its route is found and by which the limits
    /// of the route count.
    pub fn new(fields: Fields<'_>, body: Bytes, pointers: &[JsonPointer]) -> Self {
        if body.is_empty() {
            return Self::Empty;
        }
        match Kind::of(fields) {
            Some(Kind::Form) => Self::Form(body),
            Some(Kind::Json) if JsonBatch::is_list(&body) => Self::Batch(JsonBatch::read(&body, pointers)),
            Some(Kind::Json) => Self::Json(JsonMembers::read(&body, pointers)),
            None => Self::Unreadable(UnreadableBody::Type),
        }
    }

    /// Whether a body with these fields has a type that can be read.
    pub fn has_readable_type(fields: Fields<'_>) -> bool {
        Kind::of(fields).is_some()
    }

    /// The calls of a batch, each as a body of its own; a body that is none stands for itself.
    pub fn calls(&self) -> &[Self] {
        match self {
            Self::Batch(batch) => batch.calls(),
            single => std::slice::from_ref(single),
        }
    }

    /// The number of its bytes, where it was read.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Empty => Some(0),
            Self::Form(body) => Some(body.len()),
            Self::Json(members) => Some(members.length()),
            Self::Batch(batch) => Some(batch.length()),
            Self::Unknown | Self::Unread | Self::Unreadable(_) | Self::Descriptor(_) => None,
        }
    }

    /// The value at a pointer into a JSON document, and whether it is a string: a number or a boolean is written alike in JSON.
    /// `None`: it is absent, or none of these.
    pub fn scalar(&self, pointer: &JsonPointer) -> Option<(&[u8], bool)> {
        if let Self::Json(members) = self { members.scalar(pointer) } else { None }
    }

    /// The value at a pointer into a JSON document.
    pub fn member(&self, pointer: &JsonPointer) -> BodyValue<'_> {
        match self {
            Self::Unknown | Self::Unread | Self::Empty | Self::Descriptor(_) => BodyValue::Missing,
            Self::Json(members) => members.value(pointer),
            Self::Batch(batch) => batch.value(pointer),
            Self::Form(_) => BodyValue::Unreadable(UnreadableBody::Type),
            Self::Unreadable(fault) => BodyValue::Unreadable(*fault),
        }
    }

    /// The value of a field of a form.
    pub(super) fn field(&self, name: &str) -> BodyValue<'_> {
        match self {
            Self::Unknown | Self::Unread | Self::Empty | Self::Descriptor(_) => BodyValue::Missing,
            Self::Form(body) => field(body, name),
            Self::Json(_) | Self::Batch(_) => BodyValue::Unreadable(UnreadableBody::Type),
            Self::Unreadable(fault) => BodyValue::Unreadable(*fault),
        }
    }

    /// The values of a descriptor's entries with this name, in their order.
    pub(super) fn entries<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c [u8]> + Clone {
        let entries = if let Self::Descriptor(entries) = self { entries.as_slice() } else { &[] };
        entries.iter().filter(move |entry| *entry.name == *name.as_bytes()).map(|entry| &*entry.value)
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Form,
    Json,
}

impl Kind {
    /// `None`: a type that is not read, or a body that another reader may take for another type.
    fn of(fields: Fields<'_>) -> Option<Self> {
        let coded = |value: &[u8]| !value.trim_ascii().eq_ignore_ascii_case(b"identity");
        if fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(b"content-encoding"))
            .any(|field| coded(field.value))
        {
            return None;
        }
        let mut types = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"content-type"));
        let (first, None) = (types.next()?, types.next()) else { return None };
        let text = std::str::from_utf8(first.value).ok()?.to_ascii_lowercase();
        // A comma would begin a second type.
        if text.contains(',') {
            return None;
        }
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next()?;
        let charset = |part: &str| part.split_once('=').is_some_and(|(name, _)| name.trim() == "charset");
        let is_utf8 = |part: &str| {
            let value = part.split_once('=').map_or("", |(_, value)| value).trim().trim_matches('"');
            matches!(value, "utf-8" | "utf8" | "us-ascii")
        };
        if !parts.filter(|part| charset(part)).all(is_utf8) {
            return None;
        }
        match media {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "application/json" => Some(Self::Json),
            _ if media.starts_with("application/") && media.ends_with("+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// Collects values: equal ones count as one.
#[derive(Debug, Default)]
struct Collected {
    first: Option<Vec<u8>>,
    differs: bool,
    /// There is an object or a list instead of a value.
    is_container: bool,
    /// One of them is a string.
    is_text: bool,
}

impl Collected {
    fn add(&mut self, value: &[u8]) {
        match &self.first {
            None => self.first = Some(value.to_vec()),
            Some(first) => self.differs |= first != value,
        }
    }

    fn value<'b>(self) -> BodyValue<'b> {
        match self.first {
            _ if self.differs => BodyValue::Repeated,
            None => BodyValue::Missing,
            Some(value) if value.is_empty() => BodyValue::Missing,
            Some(value) => BodyValue::Single(Cow::Owned(value)),
        }
    }
}

/// Fields are split at `&`. Some backends split at `;` too, so that the fields after one count as well.
fn field<'b>(body: &'b [u8], name: &str) -> BodyValue<'b> {
    let wanted = php_name(name.as_bytes());
    let mut found = Collected::default();
    for pair in body.split(|byte| *byte == b'&') {
        let (key, value) = key_and_value(pair);
        let is_it = php_name(&query::decoded(key)) == wanted;
        if is_it {
            found.add(&query::decoded(value));
        }
        for part in pair.split(|byte| *byte == b';').skip(1) {
            let (key, other) = key_and_value(part);
            if php_name(&query::decoded(key)) == wanted {
                found.add(&query::decoded(other));
                // To such a backend, the first value ends before the `;`.
                if is_it {
                    let end = memchr::memchr(b';', value).unwrap_or(value.len());
                    found.add(&query::decoded(&value[..end]));
                }
            }
        }
    }
    found.value()
}

fn key_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', pair) {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (pair, b""),
    }
}

/// A name as PHP and ASP.NET read it: without case, without blanks before it, up to a NUL, with `_` for a dot or a blank,
/// and without what stands in `[…]`.
fn php_name(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii_start();
    let end =
        name.iter().position(|byte| matches!(byte, b'[' | 0)).filter(|end| *end > 0).unwrap_or(name.len());
    let plain = |byte: &u8| if matches!(byte, b'.' | b' ') { b'_' } else { *byte };
    folded(&name[..end].iter().map(plain).collect::<Vec<u8>>())
}

/// In lower case: by Unicode, or ASCII if it is not UTF-8.
fn folded(text: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(text) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => text.to_ascii_lowercase(),
    }
}

impl BodyValue<'_> {
    fn borrowed(&self) -> BodyValue<'_> {
        match self {
            Self::Missing => BodyValue::Missing,
            Self::Repeated => BodyValue::Repeated,
            Self::Single(value) => BodyValue::Single(Cow::Borrowed(value)),
            Self::Unreadable(fault) => BodyValue::Unreadable(*fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn json(text: &str, pointer: &str) -> BodyValue<'static> {
        let pointer = JsonPointer::parse(pointer).expect("a pointer");
        let members = JsonMembers::read(text.as_bytes(), std::slice::from_ref(&pointer));
        match RequestContent::Json(members).member(&pointer) {
            BodyValue::Single(value) => BodyValue::Single(Cow::Owned(value.into_owned())),
            BodyValue::Missing => BodyValue::Missing,
            BodyValue::Repeated => BodyValue::Repeated,
            BodyValue::Unreadable(fault) => BodyValue::Unreadable(fault),
        }
    }

    fn single(text: impl Into<Vec<u8>>) -> BodyValue<'static> {
        BodyValue::Single(Cow::Owned(text.into()))
    }

    #[test]
    fn a_pointer_leads_through_objects_and_lists() {
        let text =
            r#"{"a":[{"b":"x"},{"b":2,"c":true}],"~/":"y","n":null,"e":"","big":18446744073709551615}"#;
        for (pointer, value) in [
            ("/a/0/b", single("x")),
            ("/a/1/b", single("2")),
            ("/a/1/c", single("true")),
            ("/~0~1", single("y")),
            ("/big", single("18446744073709551615")),
            ("/a/2/b", BodyValue::Missing),
            ("/a/01/b", BodyValue::Missing),
            ("/n", BodyValue::Missing),
            ("/e", BodyValue::Missing),
            ("/n/x", BodyValue::Missing),
            ("/a", BodyValue::Unreadable(UnreadableBody::Broken)),
        ] {
            assert_eq!(json(text, pointer), value, "{pointer}");
        }
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(json(&deep, "/x"), BodyValue::Missing, "it is skipped without recursion");
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ab\u{e9}\\\\\"]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// serde_json's own look-up is the other implementation.
        #[test]
        fn a_member_is_what_another_look_up_finds(document in document(), path in "(/[a-c0-2]){1,4}") {
            let expected = match document.pointer(&path) {
                None | Some(Value::Null) => BodyValue::Missing,
                Some(Value::String(text)) if text.is_empty() => BodyValue::Missing,
                Some(Value::String(text)) => single(text.as_str()),
                Some(Value::Array(_) | Value::Object(_)) => BodyValue::Unreadable(UnreadableBody::Broken),
                Some(value) => single(value.to_string()),
            };
            for text in [document.to_string(), format!("{document:#}")] {
                prop_assert_eq!(json(&text, &path), expected.clone());
                for cut in 1..text.len() {
                    if text.is_char_boundary(cut) && serde_json::from_str::<Value>(&text[..cut]).is_err() {
                        prop_assert_eq!(json(&text[..cut], &path), BodyValue::Unreadable(UnreadableBody::Broken));
                    }
                }
            }
        }

        #[test]
        fn a_form_gives_back_what_was_encoded(values in prop::collection::vec((0..3_u8, ".{0,6}"), 0..5)) {
            let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
            let name = |number: &u8| ["user", "other", "us"][usize::from(*number)];
            let pairs: Vec<_> = values.iter().map(|(key, value)| format!("{}={}", name(key), encode(value))).collect();
            let content = RequestContent::Form(pairs.join("&").into_bytes().into());
            let mut users: Vec<_> = values.iter().filter(|(key, _)| *key == 0).map(|(_, value)| value).collect();
            users.dedup();
            let expected = match users.as_slice() {
                [] => BodyValue::Missing,
                [only] if only.is_empty() => BodyValue::Missing,
                [only] => single(only.as_str()),
                _ => BodyValue::Repeated,
            };
            prop_assert_eq!(content.field("user"), expected);
        }

        #[test]
        fn no_bytes_bring_a_reader_down(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let pointer = JsonPointer::parse("/a/0").expect("a pointer");
            RequestContent::Json(JsonMembers::read(&body, std::slice::from_ref(&pointer))).member(&pointer);
            RequestContent::Form(body.into()).field("a");
        }
    }
}
