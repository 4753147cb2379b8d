//! Whom a verified credential names.

use std::fmt;

use crate::limit::units::Timestamp;

/// The maximum length of a name or a tier, bytes: backends get both as headers.
pub const MAX_NAME: usize = 256;

/// The consumer that a verified credential names.
#[derive(PartialEq, Eq)]
pub struct Identity {
    /// The name; not empty, at most [`MAX_NAME`] bytes.
    pub name: Box<str>,
    /// The tier, if it has one: not empty.
    pub tier: Option<Box<str>>,
    /// The claims that limits count by, with their texts.
    pub claims: Box<[(Box<str>, Box<str>)]>,
    /// From when the credential has to be verified again.
    pub expires: Timestamp,
}

impl Identity {
    /// The text of a claim that limits count by.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.iter().find(|(known, _)| **known == *name).map(|(_, text)| &**text)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.name).field("tier", &self.tier).finish_non_exhaustive()
    }
}
