//! Overhead: frames that cost work and carry no data: WINDOW_UPDATE, PRIORITY, PING, SETTINGS, RST_STREAM, empty DATA,
//! unknown types. They are compared with the useful work of the connection.
//!
//! The limits are wider than Envoy's (two WINDOW_UPDATE frames for each ten of DATA sent and a hundred PRIORITY frames
//! for each stream), and of nginx's kind (bytes of overhead against bytes of payload): an honest client sends at most
//! two WINDOW_UPDATE frames for each DATA frame that it reads, and the smallest DATA frame with content has 10 bytes.

use super::frame::{FrameHeader, flag, kind};

/// Frames allowed to every connection.
const BASE: u64 = 1_000;
/// Frames allowed for each second of the connection's age: PINGs that check the gateway.
const PER_SECOND: u64 = 10;
/// Bytes sent to the client that allow it one more frame.
const BYTES_PER_FRAME: u64 = 4;
/// Frames allowed for each header block, which opens or ends a stream: PRIORITY, WINDOW_UPDATE, an empty DATA with
/// END_STREAM, RST_STREAM.
const PER_BLOCK: u64 = 4;

/// Counts the frames of one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overhead {
    /// The cost of the frames without content.
    cost: u64,
    blocks: u64,
}

impl Overhead {
    /// Counts a frame.
    #[inline]
    pub fn count(&mut self, frame: &FrameHeader) {
        match frame.kind {
            kind::HEADERS => self.blocks += 1,
            kind::CONTINUATION => {}
            _ => self.cost += cost(frame),
        }
    }

    /// Whether the frames exceed the allowance of a connection that is `age` seconds old and was sent `sent` bytes.
    pub fn is_flood(&self, sent: u64, age: impl FnOnce() -> u64) -> bool {
        let earned = BASE + sent / BYTES_PER_FRAME + self.blocks * PER_BLOCK;
        self.cost > earned && self.cost > earned + age() * PER_SECOND
    }
}

/// A frame with a reply costs as much more as its reply would allow.
fn cost(frame: &FrameHeader) -> u64 {
    match frame.kind {
        kind::DATA if frame.length > 0 => 0,
        kind::PING if !frame.has(flag::ACK) => 1 + 17_u64.div_ceil(BYTES_PER_FRAME),
        kind::SETTINGS if !frame.has(flag::ACK) => 1 + 9_u64.div_ceil(BYTES_PER_FRAME),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(overhead: &mut Overhead, kind: u8, length: usize, count: u64) {
        let frame = FrameHeader { length, kind, flags: 0, stream: 1 };
        (0..count).for_each(|_| overhead.count(&frame));
    }

    #[test]
    fn frames_without_a_reason_are_a_flood_beyond_the_base_and_the_age() {
        let mut overhead = Overhead::default();
        see(&mut overhead, kind::WINDOW_UPDATE, 4, BASE);
        assert!(!overhead.is_flood(0, || 0));
        see(&mut overhead, kind::WINDOW_UPDATE, 4, 1);
        assert!(overhead.is_flood(0, || 0));
        assert!(!overhead.is_flood(0, || 1), "a second is worth some");
        assert!(!overhead.is_flood(BYTES_PER_FRAME, || 0), "and so are bytes sent");
    }

    /// The answers to PING and SETTINGS are bytes sent, too.
    #[test]
    fn a_flood_does_not_earn_its_own_answers() {
        for (kind, length, answer) in [(kind::PING, 8, 17), (kind::SETTINGS, 0, 9)] {
            let mut overhead = Overhead::default();
            see(&mut overhead, kind, length, BASE + 1);
            assert!(overhead.is_flood((BASE + 1) * answer, || 0), "{kind}");
        }
    }

    #[test]
    fn honest_clients_are_far_from_the_bound() {
        // Two WINDOW_UPDATE frames for each DATA frame of one byte.
        let mut reader = Overhead::default();
        see(&mut reader, kind::WINDOW_UPDATE, 4, 2_000_000);
        assert!(!reader.is_flood(1_000_000 * 10, || 0));
        // Each stream with PRIORITY, a window of its own and RST_STREAM before its answer.
        let mut browser = Overhead::default();
        see(&mut browser, kind::HEADERS, 30, 100_000);
        see(&mut browser, kind::WINDOW_UPDATE, 4, 300_000);
        assert!(!browser.is_flood(0, || 0));
        // An upload, and a PING a second for a day.
        let mut uploader = Overhead::default();
        see(&mut uploader, kind::DATA, 1, 1_000_000);
        see(&mut uploader, kind::PING, 8, 86_400);
        assert!(!uploader.is_flood(0, || 86_400));
    }
}
