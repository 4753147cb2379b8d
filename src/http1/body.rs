//! The framing of a request body.

/// The body after a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// This many bytes; may be 0.
    Length(u64),
    /// Chunked.
    Chunked,
}

impl Body {
    /// Nothing.
    pub const EMPTY: Self = Self::Length(0);
}
