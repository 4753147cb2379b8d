//! Events that end what is measured of a stream, such as `data: [DONE]`: by their names, or by their whole data.

use std::sync::Arc;

/// The names and data of the events that end a measurement. The stream may go on after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalEvents(Arc<[Box<str>]>);

impl TerminalEvents {
    /// Those of widespread APIs: OpenAI's chat completions, Anthropic's messages, OpenAI's responses.
    pub const KNOWN: [&str; 5] =
        ["[DONE]", "message_stop", "response.completed", "response.failed", "response.incomplete"];
    /// The maximum number beside [`Self::KNOWN`].
    pub const MAX_MORE: usize = 16;

    /// The known ones, and these; those beyond [`Self::MAX_MORE`] are left out.
    #[must_use]
    pub fn with(more: impl IntoIterator<Item = String>) -> Self {
        let known = Self::KNOWN.into_iter().map(Into::into);
        Self(known.chain(more.into_iter().take(Self::MAX_MORE).map(Into::into)).collect())
    }

    /// Those beside the known ones.
    #[must_use]
    pub fn more(&self) -> &[Box<str>] {
        self.0.get(Self::KNOWN.len()..).unwrap_or_default()
    }
}

/// Which terminal event a name or a text may still be, while its bytes arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventMatch {
    /// A bit for each event that begins with the bytes so far.
    candidates: u32,
    /// The number of bytes so far, while there are candidates.
    length: usize,
}

impl EventMatch {
    /// Begins a text.
    pub(super) fn begin() -> Self {
        Self { candidates: u32::MAX, length: 0 }
    }

    /// Reads the next bytes of the text.
    pub(super) fn read(&mut self, events: &TerminalEvents, bytes: &[u8]) {
        for byte in bytes {
            if self.candidates == 0 {
                return;
            }
            let fits = |event: &str| event.as_bytes().get(self.length) == Some(byte);
            self.candidates = self.fitting(events, fits);
            self.length += 1;
        }
    }

    /// Whether the text so far is a terminal event.
    pub(super) fn is_whole(&self, events: &TerminalEvents) -> bool {
        self.candidates != 0 && self.fitting(events, |event| event.len() == self.length) != 0
    }

    fn fitting(&self, events: &TerminalEvents, fits: impl Fn(&str) -> bool) -> u32 {
        let bits = (0..u32::BITS).map(|index| 1_u32 << index);
        let candidates = events.0.iter().zip(bits).filter(|(_, bit)| self.candidates & bit != 0);
        candidates.filter(|(event, _)| fits(event)).fold(0, |fitting, (_, bit)| fitting | bit)
    }
}
