//! Whom a verified credential names.

use std::fmt;

/// The maximum length of a name or a tier, bytes: backends get both as headers.
pub const MAX_NAME: usize = 256;

/// A field that the backend gets beside those of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedField {
    /// Its name, in lower case.
    pub name: Box<str>,
    /// Its value.
    pub value: Box<[u8]>,
}

/// The consumer that a verified credential names.
#[derive(PartialEq, Eq)]
pub struct Identity {
    /// The name, at most [`MAX_NAME`] bytes; empty: the request is anonymous.
    pub name: Box<str>,
    /// The tier, if it has one: not empty.
    pub tier: Option<Box<str>>,
    /// The claims that limits count by, with their texts.
    pub claims: Box<[(Box<str>, Box<str>)]>,
    /// The claims that routes require, each with a value of those required that it has.
    pub required: Box<[(Box<str>, Box<str>)]>,
    /// Further fields for the backend.
    pub fields: Box<[GrantedField]>,
}

impl Identity {
    /// That of a request without a consumer.
    pub fn anonymous() -> Self {
        Self {
            name: Box::default(),
            tier: None,
            claims: Box::default(),
            required: Box::default(),
            fields: Box::default(),
        }
    }

    /// The text of a claim that limits count by.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.iter().find(|(known, _)| **known == *name).map(|(_, text)| &**text)
    }

    /// Whether it has this value of a claim that some route requires.
    pub fn has(&self, claim: &str, wanted: &str) -> bool {
        self.required.iter().any(|(known, value)| **known == *claim && **value == *wanted)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.name).field("tier", &self.tier).finish_non_exhaustive()
    }
}
