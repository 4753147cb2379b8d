//! JSON pointers (RFC 6901).

use std::fmt::{self, Display, Formatter};

use serde_json::{Map, Value};
use thiserror::Error;

/// Maximum number of reference tokens of a pointer, so the maximum depth that a scanner keeps.
pub const MAX_TOKENS: usize = 16;

/// A JSON pointer: `/usage/total_tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer {
    text: Box<str>,
    tokens: Box<[PointerToken]>,
}

/// A step from a container to one of its values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PointerToken {
    /// The key in an object, without escapes.
    pub(super) key: Box<[u8]>,
    /// The index in an array, if the token is one.
    pub(super) index: Option<u64>,
}

/// Why a text is not a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PointerFault {
    /// It does not begin with `/`.
    #[error("a JSON pointer begins with `/`")]
    NotAbsolute,
    /// `~` that is neither `~0` nor `~1`.
    #[error("in a JSON pointer `~` is written `~0`, and `/` in a key is written `~1`")]
    Tilde,
    /// More than [`MAX_TOKENS`] tokens.
    #[error("a JSON pointer has at most {MAX_TOKENS} parts")]
    TooLong,
}

impl JsonPointer {
    /// Parses a pointer; the empty text stands for the whole document.
    ///
    /// # Errors
    ///
    /// [`PointerFault`]
    pub fn parse(text: &str) -> Result<Self, PointerFault> {
        let tokens: Box<[PointerToken]> = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(PointerToken::parse).collect::<Result<_, _>>()?,
            None if text.is_empty() => Box::default(),
            None => return Err(PointerFault::NotAbsolute),
        };
        if tokens.len() > MAX_TOKENS {
            return Err(PointerFault::TooLong);
        }
        Ok(Self { text: text.into(), tokens })
    }

    /// The keys of its tokens, without escapes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.tokens.iter().map(|token| &*token.key)
    }

    /// Whether its first token can be the index of a list.
    pub fn begins_with_index(&self) -> bool {
        self.tokens.first().is_some_and(|token| token.index.is_some())
    }

    /// As it was parsed.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value at this place of an object. `None` for the whole object, and where there is none.
    pub fn find<'v>(&self, object: &'v Map<String, Value>) -> Option<&'v Value> {
        let (first, rest) = self.tokens.split_first()?;
        let member = |object: &'v Map<String, Value>, token: &PointerToken| {
            object.get(std::str::from_utf8(&token.key).ok()?)
        };
        rest.iter().try_fold(member(object, first)?, |value, token| match value {
            Value::Object(object) => member(object, token),
            Value::Array(items) => items.get(usize::try_from(token.index?).ok()?),
            _ => None,
        })
    }

    pub(super) fn tokens(&self) -> &[PointerToken] {
        &self.tokens
    }
}

impl Display for JsonPointer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PointerToken {
    fn parse(text: &str) -> Result<Self, PointerFault> {
        let mut key = Vec::with_capacity(text.len());
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            key.push(match byte {
                b'~' => match bytes.next() {
                    Some(b'0') => b'~',
                    Some(b'1') => b'/',
                    _ => return Err(PointerFault::Tilde),
                },
                byte => byte,
            });
        }
        // `+1` and `01` are keys only.
        let is_index =
            text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let index = if is_index { text.parse().ok() } else { None };
        Ok(Self { key: key.into(), index })
    }
}
