//! Frames that cost work and carry nothing: WINDOW_UPDATE, PRIORITY, PING, SETTINGS, RST_STREAM, empty DATA, unknown types. The `h2` crate
//! takes any number of them, so they are counted here against the useful work of the connection.
//!
//! The bounds are wider than Envoy's (two WINDOW_UPDATE frames for each ten of DATA sent and a hundred PRIORITY frames for each
//! stream), and of nginx's kind (bytes of overhead against bytes of payload): an honest client sends at most two WINDOW_UPDATE
//! frames for each DATA frame that it reads, and the smallest DATA frame with content has 10 bytes.

use super::frames::{Frame, Part};

/// Frames that a connection may send without any other reason.
const BASE: u64 = 1_000;
/// Frames more for each second of the connection's age: PING frames that ask whether the gateway is there.
const PER_SECOND: u64 = 10;
/// Bytes sent to the client that allow it one frame more.
const BYTES_PER_FRAME: u64 = 4;
/// Frames more for each block of fields, which opens or ends a stream: PRIORITY, WINDOW_UPDATE, an empty DATA with END_STREAM, RST_STREAM.
const PER_BLOCK: u64 = 4;

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;

/// Counts the frames of one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overhead {
    /// Frames without content, at their price.
    cost: u64,
    blocks: u64,
}

impl Overhead {
    /// Counts a part of a frame.
    pub fn see(&mut self, part: &Part<'_>) {
        if let Part::Begin(frame) = part {
            if frame.carries_fields() {
                self.blocks += u64::from(frame.begins_fields());
            } else {
                self.cost += cost(frame);
            }
        }
    }

    /// Whether there were more of them than a connection may send which is `age` seconds old and was sent so many bytes.
    pub fn is_flood(&self, sent: u64, age: impl FnOnce() -> u64) -> bool {
        let earned = BASE + sent / BYTES_PER_FRAME + self.blocks * PER_BLOCK;
        self.cost > earned && self.cost > earned + age() * PER_SECOND
    }
}

/// What is answered costs as much more as its answer earns.
fn cost(frame: &Frame) -> u64 {
    let acknowledges = frame.flags & ACK != 0;
    match frame.kind {
        DATA if frame.length > 0 => 0,
        PING if !acknowledges => 1 + 17_u64.div_ceil(BYTES_PER_FRAME),
        SETTINGS if !acknowledges => 1 + 9_u64.div_ceil(BYTES_PER_FRAME),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: u8 = 1;
    const WINDOW_UPDATE: u8 = 8;

    fn see(overhead: &mut Overhead, kind: u8, length: usize, count: u64) {
        let frame = Frame { length, kind, flags: 0, stream: 1 };
        (0..count).for_each(|_| overhead.see(&Part::Begin(frame)));
    }

    #[test]
    fn frames_without_a_reason_are_a_flood_beyond_the_base_and_the_age() {
        let mut overhead = Overhead::default();
        see(&mut overhead, WINDOW_UPDATE, 4, BASE);
        assert!(!overhead.is_flood(0, || 0));
        see(&mut overhead, WINDOW_UPDATE, 4, 1);
        assert!(overhead.is_flood(0, || 0));
        assert!(!overhead.is_flood(0, || 1), "a second is worth some");
        assert!(!overhead.is_flood(BYTES_PER_FRAME, || 0), "and so are bytes sent");
    }

    /// The answers to PING and SETTINGS are bytes sent, too.
    #[test]
    fn a_flood_does_not_earn_its_own_answers() {
        for (kind, length, answer) in [(PING, 8, 17), (SETTINGS, 0, 9)] {
            let mut overhead = Overhead::default();
            see(&mut overhead, kind, length, BASE + 1);
            assert!(overhead.is_flood((BASE + 1) * answer, || 0), "{kind}");
        }
    }

    #[test]
    fn honest_clients_are_far_from_the_bound() {
        // Two WINDOW_UPDATE frames for each DATA frame of one byte.
        let mut reader = Overhead::default();
        see(&mut reader, WINDOW_UPDATE, 4, 2_000_000);
        assert!(!reader.is_flood(1_000_000 * 10, || 0));
        // Each stream with PRIORITY, a window of its own and RST_STREAM before its answer.
        let mut browser = Overhead::default();
        see(&mut browser, HEADERS, 30, 100_000);
        see(&mut browser, WINDOW_UPDATE, 4, 300_000);
        assert!(!browser.is_flood(0, || 0));
        // An upload, and a PING a second for a day.
        let mut uploader = Overhead::default();
        see(&mut uploader, DATA, 1, 1_000_000);
        see(&mut uploader, PING, 8, 86_400);
        assert!(!uploader.is_flood(0, || 86_400));
    }
}
