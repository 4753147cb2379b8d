//! Reads a cost from a response: numbers of headers, and numbers that stand in a body as it streams past.
//!
//! The body is never held back and never stored. [`BodyScanner`] is given each piece on its way to the client: it decodes
//! a copy where the body is coded, and finds the values of JSON documents and of events (`text/event-stream`). State,
//! memory and work have bounds that no body exceeds: [`scanner::MAX_RATIO`], [`coding::MAX_CODINGS`].
//!
//! What counts:
//! - Of several values (a repeated key, a later document, a later event), the last one counts.
//! - A document of a stream counts when it is complete: an element of a list, a line of NDJSON.
//! - `null` is not a value. A string, a boolean, an object, an array and a negative number are [`Reading::Unreadable`].
//! - A value is complete when the byte after it has arrived; an event is complete at its blank line. Only a number that
//!   is the whole document ends with a body that is complete.
//! - Of a value that no pointer leads to, only strings and brackets are read, so a fault in its grammar stays unseen.
//! - Of a body that breaks off or is damaged, the complete values before that place count.

pub mod coding;
mod format;
mod inflate;
mod json;
mod key_match;
mod number;
pub mod pointer;
pub mod scanner;
mod sse;
mod swar;
mod terminal_events;

pub use format::BodyFormat;
pub use number::number;
pub use pointer::{JsonPointer, PointerFault};
pub use scanner::BodyScanner;
pub use terminal_events::TerminalEvents;

/// What was found at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Nothing, or `null`.
    #[default]
    Absent,
    /// Something that is not a number from 0 on.
    Unreadable,
    /// Whole units, rounded up; [`u64::MAX`] stands for any larger number.
    Value(u64),
}

/// Where a value stands in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodySource {
    /// In a JSON document. Of several documents in a row, and of the elements of a list, in the last that has it.
    Json(JsonPointer),
    /// In the data of an event, which is a JSON document; in the last event that has it.
    Sse(JsonPointer),
}

impl BodySource {
    /// Where the value stands in its document.
    #[must_use]
    pub fn pointer(&self) -> &JsonPointer {
        match self {
            Self::Json(pointer) | Self::Sse(pointer) => pointer,
        }
    }
}
