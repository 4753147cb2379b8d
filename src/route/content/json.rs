//! Members of JSON documents that limits count by.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::{BodyValue, Collected, UnreadableBody};
use crate::measure::JsonPointer;

/// The values of a JSON document that limits count by. The document is read once, however many they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonMembers {
    members: Vec<JsonMember>,
    /// Bytes of the document.
    length: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JsonMember {
    pointer: JsonPointer,
    value: BodyValue<'static>,
    /// Whether it is a string, of which the value is the text.
    is_text: bool,
}

impl JsonMembers {
    /// The values at these pointers.
    pub fn read(body: &[u8], pointers: &[JsonPointer]) -> Self {
        let tokens: Vec<Vec<FoldedToken>> = pointers.iter().map(FoldedToken::all_of).collect();
        let mut found: Vec<Collected> = pointers.iter().map(|_| Collected::default()).collect();
        let at = tokens.iter().enumerate().map(|(pointer, tokens)| (pointer, &tokens[..])).collect();
        let is_whole = std::str::from_utf8(body).is_ok_and(|text| {
            let mut reader = serde_json::Deserializer::from_str(text);
            let walked = Walk { at, found: &mut found }.deserialize(&mut reader);
            walked.and_then(|()| reader.end()).is_ok()
        });
        let value = |found: Collected| match is_whole && !found.is_container {
            true => found.value(),
            false => BodyValue::Unreadable(UnreadableBody::Broken),
        };
        let member = |(pointer, found): (&JsonPointer, Collected)| {
            let is_text = found.is_text;
            JsonMember { pointer: pointer.clone(), value: value(found), is_text }
        };
        let members = pointers.iter().zip(found).map(member).collect();
        Self { members, length: body.len() }
    }

    /// A document with these texts at these pointers.
    pub fn of_texts(texts: impl IntoIterator<Item = (JsonPointer, Vec<u8>)>) -> Self {
        let member = |(pointer, text)| JsonMember {
            pointer,
            value: BodyValue::Single(Cow::Owned(text)),
            is_text: true,
        };
        Self { members: texts.into_iter().map(member).collect(), length: 0 }
    }

    /// The number of bytes of the document.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    fn member(&self, pointer: &JsonPointer) -> Option<&JsonMember> {
        self.members.iter().find(|member| member.pointer == *pointer)
    }

    /// The value at one of these pointers.
    pub(super) fn value(&self, pointer: &JsonPointer) -> BodyValue<'_> {
        let broken = BodyValue::Unreadable(UnreadableBody::Broken);
        self.member(pointer).map_or(broken, |member| member.value.borrowed())
    }

    /// The value at one of these pointers, and whether it is a string; others are written alike in JSON. `None`: there is no
    /// single one.
    pub(super) fn scalar(&self, pointer: &JsonPointer) -> Option<(&[u8], bool)> {
        let JsonMember { value, is_text, .. } = self.member(pointer)?;
        if let BodyValue::Single(value) = value { Some((value, *is_text)) } else { None }
    }
}

/// A token of a pointer, and the same in lower case.
#[derive(Debug)]
struct FoldedToken {
    exact: String,
    folded: String,
    /// As the index of an array: RFC 6901 §4 allows no leading zero.
    index: Option<usize>,
}

impl FoldedToken {
    /// The tokens of a pointer.
    fn all_of(pointer: &JsonPointer) -> Vec<Self> {
        let token = |key| {
            let exact = String::from_utf8_lossy(key).into_owned();
            let index = exact.parse().ok().filter(|index: &usize| index.to_string() == exact);
            Self { folded: exact.to_lowercase(), exact, index }
        };
        pointer.keys().map(token).collect()
    }
}

/// Pointers that lead to a value or into it: the index of each, and its further tokens.
type Leads<'t> = SmallVec<[(usize, &'t [FoldedToken]); 4]>;

/// Goes to the values that pointers lead to.
struct Walk<'t, 'w> {
    /// Those of the present value.
    at: Leads<'t>,
    found: &'w mut [Collected],
}

impl<'t> Walk<'t, '_> {
    /// A value that has no members.
    fn scalar(self, text: impl AsRef<[u8]>) {
        for (pointer, tokens) in self.at {
            if tokens.is_empty() {
                self.found[pointer].add(text.as_ref());
            }
        }
    }

    /// A string.
    fn text(mut self, text: &str) {
        for (pointer, tokens) in &mut self.at {
            self.found[*pointer].is_text |= tokens.is_empty();
        }
        self.scalar(text);
    }

    /// Enters an object or a list: a pointer that ends here leads to no value that a limit can count by.
    fn enter(&mut self) {
        let found = &mut *self.found;
        self.at.retain(|(pointer, tokens)| {
            found[*pointer].is_container |= tokens.is_empty();
            !tokens.is_empty()
        });
    }

    /// The pointers that lead into a member.
    fn below(&self, leads: impl Fn(&FoldedToken) -> bool) -> Leads<'t> {
        let next = |(pointer, tokens): &(usize, &'t [FoldedToken])| {
            let (token, rest) = tokens.split_first()?;
            leads(token).then_some((*pointer, rest))
        };
        self.at.iter().filter_map(next).collect()
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text(text);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.scalar(number.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.scalar(number.to_string());
        Ok(())
    }

    /// `1.0` and `1e0` are written as `1`: they are the same number.
    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        // `-0` is 0.
        let number = if number == 0.0 { 0.0 } else { number };
        self.scalar(number.to_string());
        Ok(())
    }

    fn visit_bool<E>(self, truth: bool) -> Result<(), E> {
        self.scalar(truth.to_string());
        Ok(())
    }

    /// `null`.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.enter();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            let folded = key.to_lowercase();
            let at = self.below(|token| token.exact == *key || token.folded == folded);
            if at.is_empty() {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(Walk { at, found: self.found })?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.enter();
        for index in 0.. {
            let at = self.below(|token| token.index == Some(index));
            let more = if at.is_empty() {
                list.next_element::<IgnoredAny>()?.is_some()
            } else {
                list.next_element_seed(Walk { at, found: self.found })?.is_some()
            };
            if !more {
                break;
            }
        }
        Ok(())
    }
}
