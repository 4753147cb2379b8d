//! What either side says of itself (RFC 9113 §6.5).

use bytes::BytesMut;

use super::super::flow::DEFAULT_WINDOW;
use super::super::frame::{ErrorCode, MAX_31_BITS, put_settings, put_settings_ack, setting};
use super::end::FrameError;
use super::{Role, State};

/// Bytes of the dynamic table that a peer keeps unless it says otherwise (RFC 9113 §6.5.2).
const HEADER_TABLE: u32 = 4096;

/// What this side says.
#[derive(Clone, Copy, Debug)]
pub struct LocalSettings {
    /// Streams at once: those that a client may open, or that are opened at most.
    pub max_streams: usize,
    /// Bytes that the peer may send on one stream before any was taken.
    pub stream_window: u32,
    /// The same once some was taken, so that a stream that is stuck holds less.
    pub max_stream_window: u32,
    /// On all streams together; at least 65,535.
    pub connection_window: u32,
    /// Bytes of a head, each field counting 32 more.
    pub max_header_list: usize,
}

impl LocalSettings {
    pub(super) fn put(&self, role: Role, out: &mut BytesMut) {
        let list = u32::try_from(self.max_header_list).unwrap_or(u32::MAX);
        let first = match role {
            Role::Server => {
                (setting::MAX_CONCURRENT_STREAMS, u32::try_from(self.max_streams).unwrap_or(u32::MAX))
            }
            Role::Client => (setting::ENABLE_PUSH, 0),
        };
        let window = (setting::INITIAL_WINDOW_SIZE, self.stream_window);
        put_settings(&[first, window, (setting::MAX_HEADER_LIST_SIZE, list)], out);
    }
}

/// What the peer says.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    /// The window of a new stream for what this side sends.
    pub(super) initial_window: u32,
    /// Streams that this side may open at once.
    pub(super) max_streams: usize,
}

impl Default for PeerSettings {
    fn default() -> Self {
        // Until a server says how many it takes: it would refuse those above.
        Self { initial_window: DEFAULT_WINDOW, max_streams: 1 }
    }
}

impl State {
    /// SETTINGS of the peer.
    pub(super) fn receive_settings(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        if !self.greeted {
            self.peer.max_streams = usize::MAX;
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(FrameError::Connection(ErrorCode::FRAME_SIZE_ERROR, "SETTINGS of a wrong size"));
        }
        for &[a, b, c, d, e, f] in settings {
            self.receive_setting(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))?;
        }
        self.reply(put_settings_ack);
        self.wake_to_open();
        Ok(())
    }

    fn receive_setting(&mut self, identifier: u16, value: u32) -> Result<(), FrameError> {
        match identifier {
            setting::ENABLE_PUSH if value > u32::from(self.role == Role::Server) => {
                return Err(FrameError::protocol("a wrong ENABLE_PUSH"));
            }
            setting::MAX_CONCURRENT_STREAMS => {
                self.peer.max_streams = usize::try_from(value).unwrap_or(usize::MAX);
            }
            setting::INITIAL_WINDOW_SIZE => {
                let overflow = FrameError::Connection(ErrorCode::FLOW_CONTROL_ERROR, "too large a window");
                if value > MAX_31_BITS {
                    return Err(overflow);
                }
                let difference = i64::from(value) - i64::from(self.peer.initial_window);
                self.peer.initial_window = value;
                for stream in self.streams.iter_mut() {
                    stream.send_window.change(difference).map_err(|_| overflow)?;
                    if stream.wants_room {
                        stream.wake_writer();
                    }
                }
            }
            // The encoder uses no table, but has to say so (RFC 7541 §4.2).
            setting::HEADER_TABLE_SIZE if value < HEADER_TABLE => self.table_update = true,
            // Frames of this side never have more than every peer takes.
            setting::MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                return Err(FrameError::protocol("a wrong MAX_FRAME_SIZE"));
            }
            // MAX_HEADER_LIST_SIZE is advice.
            _ => {}
        }
        Ok(())
    }
}
