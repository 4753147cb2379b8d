//! How long a message's body is.

/// What follows a request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes; may be 0.
    Length(u64),
    /// Chunked.
    Chunked,
}

impl Body {
    /// Nothing.
    pub const EMPTY: Self = Self::Length(0);
}
