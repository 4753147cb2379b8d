//! Headers by which a client could pass for somebody else, on any route.
//!
//! With `headers = ["x-user"]` in an `[auth.NAME]` of type `forward`, a backend believes `x-user`. The same backend often
//! serves routes without this auth, so that no client may send `x-user` on any route.

use http::HeaderName;

use crate::http1::name::same_to_cgi;

/// The headers that services answer with, of all `[auth.*]` of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedHeaders {
    names: Box<[HeaderName]>,
    lengths: u64,
}

impl GuardedHeaders {
    /// These.
    pub fn new<'n>(names: impl Iterator<Item = &'n HeaderName>) -> Self {
        let mut names: Vec<_> = names.cloned().collect();
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        let lengths = names.iter().fold(0, |lengths, name| lengths | length_bit(name.as_str()));
        Self { names: names.into(), lengths }
    }

    /// The lengths of the names, as [bits](length_bit).
    pub fn lengths(&self) -> u64 {
        self.lengths
    }

    /// Whether it is one of them, in any spelling.
    pub fn has(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name) != 0
            && self.names.iter().any(|guarded| same_to_cgi(guarded.as_str().as_bytes(), name))
    }
}

/// The bit of a name's length. All long names share one.
pub fn length_bit(name: impl AsRef<[u8]>) -> u64 {
    1 << name.as_ref().len().min(63)
}
