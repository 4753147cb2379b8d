//! The streams of a connection, each from its first frame until its task has dropped it.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::BytesMut;
use smallvec::SmallVec;

use super::super::flow::{ReceiveWindow, SendWindow};
use super::super::head::ReceivedHead;
use super::{READ, Reset};

/// Streams ended by the peer or by both sides that are remembered, to find frames that must not come.
const MAX_CLOSED_BY_PEER: usize = 128;
/// Streams reset by this side that are remembered, since more of their frames may come: a client that has not read SETTINGS
/// yet opens more streams than it may.
const MAX_CLOSED_BY_US: usize = 1024;

/// One stream.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) id: u32,
    /// Bytes of the body received and not read. The window limits them.
    pub(super) received: BytesMut,
    pub(super) receive_window: ReceiveWindow,
    /// The bytes by which the window has grown.
    pub(super) grown: u32,
    /// Bytes read and not released to the connection's window yet.
    pub(super) unreleased: usize,
    /// Bytes of the body still to come, if the head declares a length.
    pub(super) expected: Option<u64>,
    /// Heads of responses not read, each with whether it is the last frame.
    pub(super) heads: SmallVec<[(ReceivedHead, bool); 1]>,
    /// DATA is allowed: the final head was received.
    pub(super) begun: bool,
    /// The peer has sent all.
    pub(super) receive_ended: bool,
    /// The lines of the trailers received.
    pub(super) trailers: BytesMut,
    pub(super) send_window: SendWindow,
    /// Bytes sent for which the peer has not opened the stream's window again.
    pub(super) unread: usize,
    /// This side has sent all.
    pub(super) send_ended: bool,
    /// Bytes that it may send before other streams.
    pub(super) share: usize,
    /// The round of sharing in which it sent last.
    pub(super) served: u64,
    /// Its task is to be woken when there is room to send.
    pub(super) wants_room: bool,
    /// It is among the streams that get a share of the connection's room.
    pub(super) queued: bool,
    /// The request is a HEAD: its response has no body.
    pub(super) to_head: bool,
    /// An extended CONNECT (RFC 8441), or the stream of a WebSocket after it: nothing but DATA may come.
    pub(super) is_connect: bool,
    pub(super) reset: Option<Reset>,
    /// The waker of the task that waits to read.
    reader: Option<Waker>,
    /// The waker of the task that waits to send.
    writer: Option<Waker>,
}

/// What one stream may send of a connection's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadQuota {
    /// Bytes that may be on the way or unread.
    pub(super) own: usize,
    /// Bytes that it may send beyond.
    pub(super) spare: usize,
}

impl StreamState {
    pub(super) fn new(id: u32, receive: u32, send: u32) -> Self {
        Self {
            id,
            receive_window: ReceiveWindow::new(receive),
            send_window: SendWindow::new(send),
            share: usize::MAX,
            ..Self::default()
        }
    }

    /// Bytes that it may send now.
    pub(super) fn window(&self, quota: UploadQuota) -> usize {
        let left = quota.own.saturating_sub(self.unread).max(quota.spare);
        self.send_window.available().min(left)
    }

    /// Whether frames are still allowed in either direction.
    pub(super) fn is_open(&self) -> bool {
        self.reset.is_none() && !(self.receive_ended && self.send_ended)
    }

    /// Whether more of the body may come.
    pub(super) fn is_receiving(&self) -> bool {
        self.reset.is_none() && !self.receive_ended
    }

    /// Keeps received bytes of the body. The buffer never has more room than the window allows beside the bytes that are
    /// read and not released: a reader that stalls costs no more than its window.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        let needed = self.received.len() + bytes.len();
        if needed > self.received.capacity() && needed > READ {
            let window = usize::try_from(self.receive_window.size()).unwrap_or(usize::MAX);
            let room = (2 * needed).min(window.saturating_sub(self.unreleased)).max(needed);
            let mut larger = BytesMut::with_capacity(room);
            larger.extend_from_slice(&self.received);
            self.received = larger;
        }
        self.received.extend_from_slice(bytes);
    }

    /// The received bytes were read. A large buffer is not kept: it would wait empty for a reader that stalls.
    pub(super) fn empty_received(&mut self) {
        if self.received.capacity() > READ {
            self.received = BytesMut::new();
        }
        self.received.clear();
    }

    /// Wakes the task that waits to read.
    pub(super) fn wake_reader(&self) {
        if let Some(waker) = &self.reader {
            waker.wake_by_ref();
        }
    }

    /// Wakes the task that waits to send.
    pub(super) fn wake_writer(&mut self) {
        self.wants_room = false;
        if let Some(waker) = &self.writer {
            waker.wake_by_ref();
        }
    }

    /// Registers the present task to be woken by received frames.
    pub(super) fn wait_to_read(&mut self, context: &Context<'_>) {
        register(&mut self.reader, context);
    }

    /// Registers the present task to be woken when there is room to send.
    pub(super) fn wait_to_write(&mut self, context: &Context<'_>) {
        register(&mut self.writer, context);
        self.wants_room = true;
    }
}

fn register(waker: &mut Option<Waker>, context: &Context<'_>) {
    if waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
        *waker = Some(context.waker().clone());
    }
}

/// How an ended stream is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// This side reset it: the peer may not know yet.
    ByUs,
    /// The peer sent RST_STREAM, or both sides had sent all.
    ByPeer,
}

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct StreamMap {
    /// In the order of their identifiers.
    // Boxed, since they are moved when one before them ends.
    #[expect(clippy::vec_box, reason = "pointers move, not 300 bytes each")]
    open: Vec<Box<StreamState>>,
    /// The number of those on which frames are still allowed.
    active: usize,
    /// The largest number of them.
    max_active: usize,
    /// The newest that the peer has opened.
    newest: u32,
    /// The identifier of the next that this side opens.
    next: u32,
    /// Those that this side reset, and those that ended otherwise. Neither list displaces the other.
    closed: [VecDeque<u32>; 2],
}

impl StreamMap {
    pub(super) fn new(max_active: usize) -> Self {
        Self { open: Vec::new(), active: 0, max_active, newest: 0, next: 1, closed: Default::default() }
    }

    /// The newest stream that the peer has opened.
    pub(super) fn newest_of_peer(&self) -> u32 {
        self.newest
    }

    /// Notes a stream that the peer opens.
    pub(super) fn set_newest(&mut self, id: u32) {
        self.newest = id;
    }

    /// The identifier of a new stream of this side.
    pub(super) fn next_id(&mut self) -> u32 {
        let id = self.next;
        self.next += 2;
        id
    }

    /// Whether the stream was never opened.
    pub(super) fn is_idle(&self, id: u32, of_client: bool) -> bool {
        // Only clients open streams, with odd identifiers.
        id.is_multiple_of(2) || if of_client { id >= self.next } else { id > self.newest }
    }

    /// Whether this side has identifiers left (RFC 9113 §5.1.1).
    pub(super) fn is_exhausted(&self) -> bool {
        self.next > super::MAX_31_BITS - 2
    }

    /// Whether the maximum is reached. Streams not yet dropped by their tasks count too, but less.
    pub(super) fn is_full(&self) -> bool {
        self.active >= self.max_active || self.open.len() >= 2 * self.max_active
    }

    /// The number of streams on which frames are still allowed.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a stream with an identifier above all others.
    pub(super) fn add(&mut self, stream: StreamState) -> &mut StreamState {
        self.active += 1;
        self.open.push_mut(Box::new(stream))
    }

    fn find(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    pub(super) fn get(&self, id: u32) -> Option<&StreamState> {
        self.find(id).and_then(|index| self.open.get(index)).map(|stream| &**stream)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut StreamState> {
        self.find(id).and_then(|index| self.open.get_mut(index)).map(|stream| &mut **stream)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        self.open.iter_mut().map(|stream| &mut **stream)
    }

    /// Changes a stream, and notes whether that closed it.
    pub(super) fn change<T>(&mut self, id: u32, change: impl FnOnce(&mut StreamState) -> T) -> Option<T> {
        let stream = self.get_mut(id)?;
        let was_open = stream.is_open();
        let changed = change(stream);
        let closes = was_open && !stream.is_open();
        self.active -= usize::from(closes);
        Some(changed)
    }

    /// Removes a stream dropped by its task, but remembers how it ended.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some(index) = self.find(id) {
            let stream = self.open.remove(index);
            self.active -= usize::from(stream.is_open());
            if matches!(stream.reset, None | Some(Reset::Remote(_))) {
                self.remember(id, Closed::ByPeer);
            }
        }
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }

    /// Remembers how a stream ended.
    pub(super) fn remember(&mut self, id: u32, closed: Closed) {
        let [by_us, by_peer] = &mut self.closed;
        let (ids, max) = match closed {
            Closed::ByUs => (by_us, MAX_CLOSED_BY_US),
            Closed::ByPeer => (by_peer, MAX_CLOSED_BY_PEER),
        };
        if ids.len() == max {
            ids.pop_front();
        }
        ids.push_back(id);
    }

    /// How a removed stream ended, if known.
    pub(super) fn closed(&self, id: u32) -> Option<Closed> {
        let [by_us, by_peer] = &self.closed;
        let by_us = by_us.contains(&id).then_some(Closed::ByUs);
        by_us.or_else(|| by_peer.contains(&id).then_some(Closed::ByPeer))
    }

    /// All are lost, with their connection.
    pub(super) fn lose_all(&mut self) {
        self.lose_above(0, Reset::Lost);
    }

    /// Ends those with identifiers above `last`.
    pub(super) fn lose_above(&mut self, last: u32, reset: Reset) {
        for stream in self.open.iter_mut().filter(|stream| stream.id > last) {
            let was_open = stream.is_open();
            if was_open {
                stream.reset = Some(reset);
                self.active -= 1;
            }
            stream.wake_reader();
            stream.wake_writer();
        }
    }
}
