//! Where frames begin and end, seen as they pass.

/// Bytes before a frame's payload (RFC 9113 §4.1).
const HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Reads along, in whatever pieces frames come.
#[derive(Debug, Default)]
pub struct Frames {
    header: [u8; HEADER],
    /// Bytes of `header` that are there.
    come: usize,
    /// The frame whose header has come whole.
    frame: Option<Frame>,
    /// Bytes of its payload still to come.
    left: usize,
}

/// What a frame's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of its payload: below 2^24.
    pub length: usize,
    /// Its type.
    pub kind: u8,
    /// What they mean depends on the type.
    pub flags: u8,
    /// The stream that it belongs to; 0: the connection.
    pub stream: u32,
}

/// What is next of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Its header has come.
    Begin(Frame),
    /// Some of its payload, at least one byte.
    Payload(&'a [u8]),
    /// It is over.
    End(Frame),
}

impl Frame {
    fn read([high, middle, low, kind, flags, a, b, c, d]: [u8; HEADER]) -> Self {
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        // The first bit is reserved, and ignored.
        let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
        Self { length, kind, flags, stream }
    }

    /// Whether it begins a block of fields.
    pub fn begins_fields(&self) -> bool {
        self.kind == HEADERS
    }

    /// Whether it carries fields.
    pub fn carries_fields(&self) -> bool {
        matches!(self.kind, HEADERS | CONTINUATION)
    }

    /// Whether it ends a block of fields.
    pub fn ends_fields(&self) -> bool {
        self.carries_fields() && self.flags & END_HEADERS != 0
    }
}

impl Frames {
    /// Takes the next part off `bytes`. `None`: that was all, and more is to come.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Part<'a>> {
        let Some(frame) = self.frame else { return self.begin(bytes).map(Part::Begin) };
        if self.left == 0 {
            self.frame = None;
            return Some(Part::End(frame));
        }
        let here = split(bytes, self.left);
        self.left -= here.len();
        (!here.is_empty()).then_some(Part::Payload(here))
    }

    fn begin(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        let here = split(bytes, HEADER - self.come);
        self.header.iter_mut().skip(self.come).zip(here).for_each(|(place, byte)| *place = *byte);
        self.come += here.len();
        if self.come < HEADER {
            return None;
        }
        self.come = 0;
        let frame = Frame::read(self.header);
        (self.frame, self.left) = (Some(frame), frame.length);
        Some(frame)
    }
}

/// Takes at most so many bytes off the front.
pub(super) fn split<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (here, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    here
}
