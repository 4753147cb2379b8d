//! One body, from its coded bytes to the values of its sources.

use std::sync::Arc;

use smallvec::SmallVec;

use super::coding::{Coding, ContentDecoder, MAX_CODINGS};
use super::inflate::Damaged;
use super::json::JsonScanner;
use super::sse::SseScanner;
use super::{BodySource, JsonPointer, Reading, TerminalEvents};

/// Maximum number of sources of one body; those after are unreadable.
pub const MAX_SOURCES: usize = 32;
/// Decoded bytes for each coded byte; beyond, the body is a bomb and its values are unreadable.
pub const MAX_RATIO: u64 = 200;
/// Decoded bytes beside these: small bodies may be coded as tightly as they can be.
pub const FREE_OUTPUT: u64 = 4 << 20;
/// Bytes that a decoder writes at once.
const OUTPUT: usize = 16 << 10;
/// What the last line of Ollama's streams has: `"done": true`.
const LAST_LINE: &str = "/done";

/// Reads values from a body as it streams past.
#[derive(Debug)]
pub struct BodyScanner {
    /// Those of the caller, and behind them the one that ends lines.
    sources: Arc<[BodySource]>,
    /// How many are the caller's.
    count: usize,
    /// `None`: the codings are unknown.
    codings: Option<SmallVec<[Coding; MAX_CODINGS]>>,
    /// A decoder for each coding, from the first byte of the body on.
    stages: Vec<Stage>,
    coded: u64,
    decoded: u64,
    end: Option<Stop>,
    texts: Texts,
}

/// A decoder and what it wrote last.
#[derive(Debug)]
struct Stage {
    decoder: ContentDecoder,
    output: Box<[u8]>,
}

/// The scanners of what is decoded.
#[derive(Debug)]
struct Texts {
    json: Option<JsonScanner>,
    sse: Option<SseScanner>,
}

/// Why the rest of a body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The text is not JSON; the values before the fault count.
    NoJson,
    /// An event has ended the measurement; the values so far count.
    TerminalEvent,
    /// The coded data is damaged; the values before the damage count.
    Damaged,
    /// No value counts: an unknown coding, a bomb, no memory.
    Unreadable,
}

impl From<Damaged> for Stop {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl BodyScanner {
    /// Begins a body. `content_encoding` is the value of the header, empty if there is none.
    #[must_use]
    pub fn new(sources: Arc<[BodySource]>, content_encoding: &[u8]) -> Self {
        let codings = Coding::parse(content_encoding);
        let end = codings.is_none().then_some(Stop::Unreadable);
        let count = sources.len().min(MAX_SOURCES);
        let of = |is_own: fn(&BodySource) -> bool| {
            let indexes = sources.iter().take(count).enumerate();
            let own =
                indexes.filter(|(_, source)| is_own(source)).fold(0, |own, (index, _)| own | 1 << index);
            (own != 0).then_some(own)
        };
        let texts = Texts {
            json: of(|source| matches!(source, BodySource::Json(_))).map(|own| JsonScanner::new(own, count)),
            sse: of(|source| matches!(source, BodySource::Sse(_))).map(|own| SseScanner::new(own, count)),
        };
        let count = sources.len();
        Self { sources, count, codings, stages: Vec::new(), coded: 0, decoded: 0, end, texts }
    }

    /// Begins a body of lines of JSON, each a document that counts when it is complete. One with `"done": true` may be the
    /// last one.
    #[must_use]
    pub fn lines(sources: &[BodySource], content_encoding: &[u8]) -> Self {
        let last = JsonPointer::parse(LAST_LINE).ok().filter(|_| sources.len() < MAX_SOURCES);
        let terminal = last.is_some().then_some(sources.len());
        let all = sources.iter().cloned().chain(last.map(BodySource::Json)).collect();
        let mut scanner = Self::new(all, content_encoding);
        scanner.count = sources.len();
        if let Some(json) = &mut scanner.texts.json {
            json.read_stream(terminal);
        }
        scanner
    }

    /// Reads events only up to the first of these, and with it.
    #[must_use]
    pub fn until(mut self, events: TerminalEvents) -> Self {
        if let Some(sse) = &mut self.texts.sse {
            sse.end_at(events);
        }
        self
    }

    /// Whether a terminal event is complete: nothing more is read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end == Some(Stop::TerminalEvent)
    }

    /// Whether some clients leave here: a terminal event is complete, or the data of the present event is that of one so
    /// far, or the last line has said that it is the last.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        let Texts { json, sse } = &self.texts;
        self.has_ended()
            || sse.as_ref().is_some_and(SseScanner::is_at_end)
            || json.as_ref().is_some_and(JsonScanner::is_at_end)
    }

    /// Whether the body is a stream of documents so far, of which a later one may have a larger value.
    #[must_use]
    pub fn awaits_document(&self) -> bool {
        self.texts.json.as_ref().is_some_and(JsonScanner::awaits_document)
    }

    /// Reads the next bytes of the body, as they are sent.
    pub fn scan(&mut self, bytes: &[u8]) {
        if self.end.is_some() || bytes.is_empty() {
            return;
        }
        if let Err(stop) = self.read(bytes) {
            self.end = Some(stop);
            self.stages = Vec::new();
        }
    }

    /// The reading of each source, in their order. A body that is not whole has what was complete.
    pub fn finish(&mut self, is_whole: bool) -> SmallVec<[Reading; 4]> {
        self.stages = Vec::new();
        if let Some(json) = self.texts.json.as_mut().filter(|_| is_whole && self.end.is_none()) {
            json.end();
        }
        let sources = self.sources.iter().take(self.count).enumerate();
        sources.map(|(index, source)| self.reading(index, source)).collect()
    }

    fn reading(&self, index: usize, source: &BodySource) -> Reading {
        let (reading, is_faulty) = match (source, &self.texts) {
            (BodySource::Json(_), Texts { json: Some(json), .. }) => (json.reading(index), json.is_faulty()),
            (BodySource::Sse(_), Texts { sse: Some(sse), .. }) => (sse.reading(index), false),
            _ => (Reading::Unreadable, false),
        };
        let is_damaged = is_faulty || self.end == Some(Stop::Damaged);
        match reading {
            _ if index >= MAX_SOURCES || self.end == Some(Stop::Unreadable) => Reading::Unreadable,
            Reading::Absent if is_damaged => Reading::Unreadable,
            reading => reading,
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let codings = self.codings.as_deref().unwrap_or_default();
        if self.stages.len() < codings.len() {
            let stages = codings.iter().map(|coding| Stage::new(*coding).ok_or(Stop::Unreadable));
            self.stages = stages.collect::<Result<_, _>>()?;
        }
        self.coded = self.coded.saturating_add(bytes.len() as u64);
        let max = self.coded.saturating_mul(MAX_RATIO).saturating_add(FREE_OUTPUT);
        let mut left = max.saturating_sub(self.decoded);
        let before = left;
        let result = self.texts.decode(&self.sources, &mut self.stages, bytes, &mut left);
        self.decoded += before - left;
        result
    }
}

impl Stage {
    fn new(coding: Coding) -> Option<Self> {
        Some(Self { decoder: ContentDecoder::new(coding)?, output: vec![0; OUTPUT].into() })
    }
}

impl Texts {
    /// Sends bytes through the decoders, of which each writes at most what is left of the bound on output.
    fn decode(
        &mut self,
        sources: &[BodySource],
        stages: &mut [Stage],
        mut bytes: &[u8],
        left: &mut u64,
    ) -> Result<(), Stop> {
        let Some((stage, after)) = stages.split_first_mut() else { return self.scan(sources, bytes) };
        loop {
            let step = stage.decoder.decode(bytes, &mut stage.output)?;
            bytes = bytes.get(step.read..).unwrap_or_default();
            *left = left.checked_sub(step.written as u64).ok_or(Stop::Unreadable)?;
            let output = stage.output.get(..step.written).unwrap_or_default();
            if !output.is_empty() {
                self.decode(sources, after, output, left)?;
            }
            let has_room = step.written < stage.output.len();
            if bytes.is_empty() && has_room {
                return Ok(());
            }
            // Bytes after the end.
            if step.read == 0 && step.written == 0 {
                return Err(Stop::Damaged);
            }
        }
    }

    fn scan(&mut self, sources: &[BodySource], bytes: &[u8]) -> Result<(), Stop> {
        if let Some(json) = &mut self.json {
            json.scan(sources, bytes);
        }
        if let Some(sse) = &mut self.sse {
            sse.scan(sources, bytes);
        }
        if self.sse.as_ref().is_some_and(SseScanner::has_ended) {
            return Err(Stop::TerminalEvent);
        }
        let is_over = self.sse.is_none() && self.json.as_ref().is_some_and(JsonScanner::is_faulty);
        if is_over { Err(Stop::NoJson) } else { Ok(()) }
    }
}
