//! Whether a client has begun a head and not ended it: while a block of fields is open, nothing else may come on the
//! connection (RFC 9113 §6.10), so all streams wait for it.

/// Bytes before a frame's payload (RFC 9113 §4.1).
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Reads along as frames pass, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct OpenBlock {
    header: [u8; FRAME_HEADER],
    /// Bytes of `header` that are there.
    come: usize,
    /// Bytes of the payload still to come.
    left: usize,
    open: bool,
}

impl OpenBlock {
    /// Whether a block of fields is open, or a frame that carries one is not whole.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// These bytes come next, behind the client's preface.
    pub fn advance(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            if self.left > 0 {
                let here = self.left.min(bytes.len());
                bytes = bytes.get(here..).unwrap_or_default();
                self.left -= here;
            } else {
                if let Some(place) = self.header.get_mut(self.come) {
                    *place = *first;
                }
                self.come += 1;
                bytes = rest;
                if self.come == FRAME_HEADER {
                    self.frame_begins();
                }
            }
            if self.left == 0 && self.come == 0 {
                self.frame_ends();
            }
        }
    }

    fn frame_begins(&mut self) {
        let [high, middle, low, kind, ..] = self.header;
        self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.come = 0;
        self.open |= matches!(kind, HEADERS | CONTINUATION);
    }

    /// `header` still tells of the frame that has come whole.
    fn frame_ends(&mut self) {
        let [_, _, _, kind, flags, ..] = self.header;
        if matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0 {
            self.open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [.., high, low] = payload.to_be_bytes();
        let mut frame = vec![0, high, low, kind, flags, 0, 0, 0, 1];
        frame.extend(vec![7; payload]);
        frame
    }

    #[test]
    fn a_block_is_open_from_its_first_frame_to_the_end_of_its_last() {
        let frames = [
            frame(4, 0, 300),
            frame(HEADERS, 0, 10),
            frame(CONTINUATION, 0, 0),
            frame(CONTINUATION, END_HEADERS, 5),
        ];
        let end = frames.iter().map(Vec::len).sum::<usize>();
        let opens = frames[0].len() + FRAME_HEADER;
        let bytes: Vec<u8> = frames.concat();
        for piece in [1, 2, 7, 1000] {
            let mut block = OpenBlock::default();
            let mut at = 0;
            for piece in bytes.chunks(piece) {
                block.advance(piece);
                at += piece.len();
                assert_eq!(block.is_open(), (opens..end).contains(&at), "{at} of {end} bytes");
            }
            block.advance(&frame(0, 1, 9));
            assert!(!block.is_open());
        }
    }
}
