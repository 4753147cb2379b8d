//! SETTINGS of either side (RFC 9113 §6.5).

use bytes::BytesMut;

use super::super::flow::DEFAULT_WINDOW;
use super::super::frame::{ErrorCode, MAX_31_BITS, put_settings, put_settings_ack, setting};
use super::{ConnectionState, FrameError, Role};

/// The default size of a peer's dynamic table in bytes (RFC 9113 §6.5.2).
const HEADER_TABLE: u32 = 4096;

/// The gateway's settings.
#[derive(Clone, Copy, Debug)]
pub struct LocalSettings {
    /// Maximum number of concurrent streams: those that a client may open, or that are opened to a backend.
    pub max_streams: usize,
    /// The initial flow-control window of a stream, in bytes.
    pub stream_window: u32,
    /// The window of a stream with a body being read; half of it where the peer is near. So a stuck stream holds less.
    pub max_stream_window: u32,
    /// The window of all streams together; at least 65,535.
    pub connection_window: u32,
    /// Maximum bytes of a head, with 32 more for each field.
    pub max_header_list: usize,
    /// Whether clients may open WebSockets (RFC 8441 §3).
    pub connect_protocol: bool,
}

impl LocalSettings {
    /// The bytes by which streams' windows may grow together: what the connection's window has beyond the initial windows
    /// of all streams.
    pub(super) fn max_grown(&self) -> u32 {
        let streams = u32::try_from(self.max_streams).unwrap_or(u32::MAX);
        self.connection_window.saturating_sub(streams.saturating_mul(self.stream_window))
    }

    pub(super) fn put(&self, role: Role, out: &mut BytesMut) {
        let list = u32::try_from(self.max_header_list).unwrap_or(u32::MAX);
        let first = match role {
            Role::Server => {
                (setting::MAX_CONCURRENT_STREAMS, u32::try_from(self.max_streams).unwrap_or(u32::MAX))
            }
            Role::Client => (setting::ENABLE_PUSH, 0),
        };
        let window = (setting::INITIAL_WINDOW_SIZE, self.stream_window);
        let (list, connect) = ((setting::MAX_HEADER_LIST_SIZE, list), (setting::ENABLE_CONNECT_PROTOCOL, 1));
        match self.connect_protocol {
            true => put_settings(&[first, window, list, connect], out),
            false => put_settings(&[first, window, list], out),
        }
    }
}

/// The peer's settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    /// The send window of a new stream.
    pub(super) initial_window: u32,
    /// Streams that this side may open at once.
    pub(super) max_streams: usize,
    /// The peer serves extended CONNECT (RFC 8441 §3).
    pub(super) connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        // The value until a server announces its maximum: it would refuse streams above it.
        Self { initial_window: DEFAULT_WINDOW, max_streams: 1, connect_protocol: false }
    }
}

impl ConnectionState {
    /// The receive window of a new stream: a client that has not read SETTINGS yet uses the default (RFC 9113 §6.9.2).
    pub(super) fn initial_receive_window(&self) -> u32 {
        if self.role == Role::Server && self.round_trip.is_none() {
            self.receiving.stream_windows.0.max(DEFAULT_WINDOW)
        } else {
            self.receiving.stream_windows.0
        }
    }

    /// The client has read SETTINGS, and uses the smaller initial window for all its streams.
    pub(super) fn shrink_windows(&mut self) {
        let difference = DEFAULT_WINDOW.saturating_sub(self.receiving.stream_windows.0);
        if self.role == Role::Server && difference > 0 {
            self.streams.iter_mut().for_each(|stream| stream.receive_window.shrink(difference));
        }
    }

    /// SETTINGS of the peer.
    pub(super) fn receive_settings(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        if !self.inbound.greeted {
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
            // The encoder uses no dynamic table, but has to announce that (RFC 7541 §4.2).
            setting::HEADER_TABLE_SIZE if value < HEADER_TABLE => self.outbound.table_update = true,
            // Frames of this side never exceed the size that every peer accepts.
            setting::MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                return Err(FrameError::protocol("a wrong MAX_FRAME_SIZE"));
            }
            setting::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                return Err(FrameError::protocol("a wrong ENABLE_CONNECT_PROTOCOL"));
            }
            // What was announced once holds on.
            setting::ENABLE_CONNECT_PROTOCOL => self.peer.connect_protocol |= value == 1,
            // MAX_HEADER_LIST_SIZE is advice.
            _ => {}
        }
        Ok(())
    }
}
