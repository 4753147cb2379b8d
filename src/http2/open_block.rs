//! Whether a client has begun a head and not ended it: while a block of fields is open, nothing else may come on the
//! connection (RFC 9113 §6.10), so all streams wait for it.

use super::frames::Part;

/// Reads along as frames pass.
#[derive(Debug, Default)]
pub struct OpenBlock {
    open: bool,
}

impl OpenBlock {
    /// Whether a block of fields is open, or a frame that carries one is not whole.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// This comes next.
    pub fn see(&mut self, part: &Part<'_>) {
        match part {
            Part::Begin(frame) if frame.carries_fields() => self.open = true,
            Part::End(frame) if frame.ends_fields() => self.open = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frames;
    use super::*;

    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 4;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [.., high, low] = payload.to_be_bytes();
        let mut frame = vec![0, high, low, kind, flags, 0, 0, 0, 1];
        frame.extend(vec![7; payload]);
        frame
    }

    fn advance(frames: &mut Frames, block: &mut OpenBlock, mut bytes: &[u8]) {
        while let Some(part) = frames.next(&mut bytes) {
            block.see(&part);
        }
    }

    #[test]
    fn a_block_is_open_from_its_first_frame_to_the_end_of_its_last() {
        let sent = [
            frame(4, 0, 300),
            frame(HEADERS, 0, 10),
            frame(CONTINUATION, 0, 0),
            frame(CONTINUATION, END_HEADERS, 5),
        ];
        let end = sent.iter().map(Vec::len).sum::<usize>();
        let opens = sent[0].len() + 9;
        let bytes: Vec<u8> = sent.concat();
        for piece in [1, 2, 7, 1000] {
            let (mut frames, mut block) = (Frames::default(), OpenBlock::default());
            let mut at = 0;
            for piece in bytes.chunks(piece) {
                advance(&mut frames, &mut block, piece);
                at += piece.len();
                assert_eq!(block.is_open(), (opens..end).contains(&at), "{at} of {end} bytes");
            }
            advance(&mut frames, &mut block, &frame(0, 1, 9));
            assert!(!block.is_open());
        }
    }
}
