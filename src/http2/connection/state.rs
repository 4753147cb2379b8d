//! The state of a connection that frames change, in parts: each is what one concern needs.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::super::flow::{DEFAULT_WINDOW, ReceiveWindow, SendWindow};
use super::super::frame::ErrorCode;
use super::super::head::{HeadError, ReceivedHead};
use super::super::hpack::decoder::Decoder;
use super::super::overhead::Overhead;
use super::super::reset_rate::ResetRate;
use super::blocks::Block;
use super::receive::Payload;
use super::settings::{LocalSettings, PeerSettings};
use super::streams::StreamMap;
use super::waiting::Waiting;
use super::{ConnectionEnd, PREFACE, Reset, Role};
use crate::clock::now;

/// The size of HPACK's dynamic table in bytes (RFC 7541 §4.2): the default.
const HEADER_TABLE: usize = 4 << 10;

/// The state that frames change.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) role: Role,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) streams: StreamMap,
    /// Requests not returned yet: the stream, and its head.
    pub(super) requests: VecDeque<(u32, Result<ReceivedHead, HeadError>)>,
    pub(super) peer: PeerSettings,
    /// The peer has sent HEADERS or DATA since the last checking PING. Servers of gRPC end connections with more PINGs.
    pub(super) may_ping: bool,
    pub(super) abuse: Abuse,
    pub(super) opened: Instant,
    /// How long the peer took to acknowledge SETTINGS, once it has.
    pub(super) round_trip: Option<Duration>,
    pub(super) goaway: GoAway,
    /// Tasks that wait to open a stream.
    pub(super) open_waiters: Vec<Waker>,
    /// No more frames are read.
    pub(super) end: Option<ConnectionEnd>,
}

/// Frames being received.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Received bytes that are not a whole frame yet.
    pub(super) bytes: BytesMut,
    /// Bytes of the client's preface not skipped yet.
    pub(super) preface: usize,
    /// The peer's first frame was received: SETTINGS.
    pub(super) greeted: bool,
    /// The DATA frame with a payload being received.
    pub(super) payload: Option<Payload>,
    /// The header block that is open.
    pub(super) block: Option<Block>,
    pub(super) decoder: Decoder,
    pub(super) max_header_list: usize,
}

/// Frames being sent.
#[derive(Debug)]
pub(super) struct Outbound {
    /// Frames not sent yet.
    pub(super) bytes: BytesMut,
    /// The socket has not accepted all of them yet: no more bytes of bodies are added.
    pub(super) blocked: bool,
    /// The maximum of them that are replies to control frames, in bytes.
    pub(super) replies: usize,
    /// The peer wants a smaller dynamic table: the next header block has to announce it.
    pub(super) table_update: bool,
}

/// What all streams together may send.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) window: SendWindow,
    /// The largest that the window was, in bytes.
    pub(super) max_window: usize,
    /// Streams that wait for room to send.
    pub(super) waiters: Vec<u32>,
    /// The number of rounds of sharing room.
    pub(super) round: u64,
}

/// What the peer may send on all streams together.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) window: ReceiveWindow,
    /// The window of a new stream, and of one with a body being read.
    pub(super) stream_windows: (u32, u32),
    /// The bytes by which streams' windows have grown, and their maximum: so the connection's window has room for all
    /// streams, even if none is read.
    pub(super) grown: u32,
    pub(super) max_grown: u32,
    /// Bytes of bodies received and not read.
    pub(super) held: usize,
    pub(super) waiting: Waiting,
}

/// Counts of what floods consist of.
#[derive(Debug)]
pub(super) struct Abuse {
    /// The client's overhead frames.
    pub(super) overhead: Overhead,
    /// Streams reset for the peer's errors.
    pub(super) error_resets: ResetRate,
    /// Streams that the client reset in the same read that opened them: see [`Http2Codec::take_unserved_resets`].
    pub(super) unserved_resets: u32,
    /// Received header blocks that are bombs.
    pub(super) bombs: u32,
}

/// The GOAWAY frames of both sides: the last stream of each.
#[derive(Debug, Default)]
pub(super) struct GoAway {
    pub(super) sent: Option<u32>,
    pub(super) received: Option<u32>,
}

impl ConnectionState {
    /// The state before the first frame. `inbound` was received already, and `outbound` is to be sent first.
    pub(super) fn new(
        role: Role,
        (inbound, outbound): (BytesMut, BytesMut),
        settings: &LocalSettings,
    ) -> Self {
        let opened = now();
        Self {
            role,
            inbound: Inbound {
                bytes: inbound,
                preface: if role == Role::Server { PREFACE.len() } else { 0 },
                greeted: false,
                payload: None,
                block: None,
                decoder: Decoder::new(HEADER_TABLE),
                max_header_list: settings.max_header_list,
            },
            outbound: Outbound { bytes: outbound, blocked: false, replies: 0, table_update: false },
            sending: Sending {
                window: SendWindow::new(DEFAULT_WINDOW),
                max_window: DEFAULT_WINDOW as usize,
                waiters: Vec::new(),
                round: 0,
            },
            receiving: Receiving {
                window: ReceiveWindow::new(settings.connection_window),
                stream_windows: (settings.stream_window, settings.max_stream_window),
                grown: 0,
                max_grown: settings.max_grown(),
                held: 0,
                waiting: Waiting::default(),
            },
            streams: StreamMap::new(settings.max_streams),
            requests: VecDeque::new(),
            peer: PeerSettings::default(),
            may_ping: true,
            abuse: Abuse {
                overhead: Overhead::default(),
                error_resets: ResetRate::new(opened),
                unserved_resets: 0,
                bombs: 0,
            },
            opened,
            round_trip: None,
            goaway: GoAway::default(),
            open_waiters: Vec::new(),
            end: None,
        }
    }

    /// Ends the connection for an error. The peer is sent a GOAWAY before the end.
    pub(super) fn fail(&mut self, code: ErrorCode, what: &'static str) {
        if self.end.is_some() {
            return;
        }
        let last = self.streams.newest_of_peer();
        self.put_goaway(last, code);
        if what.is_empty() {
            self.end = Some(ConnectionEnd::Aborted);
        } else {
            self.end = Some(ConnectionEnd::Fault(what));
            self.streams.lose_above(0, Reset::Fault);
        }
        self.lose_streams();
    }

    /// The socket can no longer be used.
    pub(super) fn lose(&mut self) {
        self.end.get_or_insert(ConnectionEnd::Lost);
        self.outbound.bytes.clear();
        self.lose_streams();
    }

    pub(super) fn lose_streams(&mut self) {
        self.end.get_or_insert(ConnectionEnd::Lost);
        self.requests.clear();
        self.streams.lose_all();
        self.open_waiters.drain(..).for_each(Waker::wake);
    }

    /// Whether nothing is left to do. `flushed`: the socket has accepted all bytes.
    pub(super) fn is_over(&self, flushed: bool) -> bool {
        match self.end {
            Some(_) => flushed,
            // The peer's streams are all known once it has read the GOAWAY.
            None => {
                let announced = self.goaway.sent.is_some_and(|last| last <= self.streams.newest_of_peer());
                announced && flushed && self.streams.is_empty() && self.requests.is_empty()
            }
        }
    }
}
