//! Places in the text of a configuration.

/// A range of a file: byte offsets, the end not included. The offsets of each file begin at a base of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceSpan {
    start: usize,
    end: usize,
}

impl SourceSpan {
    /// Its first byte.
    pub(super) fn start(self) -> usize {
        self.start
    }

    /// The end of it.
    pub(super) fn end(self) -> usize {
        self.end
    }
}

impl From<std::ops::Range<usize>> for SourceSpan {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}
