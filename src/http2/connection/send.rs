//! Sending: the buffer of frames, and the share of it for each stream.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};

use super::super::frame::{MAX_PAYLOAD, put_data};
use super::streams::UploadQuota;
use super::waiting::is_scarce;
use super::{ConnectionState, Http2Codec, KEPT_BUFFER, MAX_OUTBOUND, Role, SCARCE_OUTBOUND};

/// The least that each of many streams may send before the next one.
const MIN_SHARE: usize = 2 << 10;
/// Room for control frames in the buffer of a connection whose socket accepts nothing, in bytes.
const CONTROL_FRAMES: usize = 128;

impl Http2Codec {
    /// Sends pending frames. Returns whether the socket has accepted all.
    pub(super) fn poll_send(&self, context: &mut Context<'_>, state: &mut ConnectionState) -> bool {
        let flushed = match self.poll_flush(context, state) {
            Poll::Pending => {
                state.block();
                false
            }
            Poll::Ready(Ok(())) => {
                state.drained();
                true
            }
            Poll::Ready(Err(_)) => {
                state.lose();
                true
            }
        };
        state.receiving.waiting.set(state.outbound.bytes.len() + state.receiving.held);
        flushed
    }

    fn poll_flush(&self, context: &mut Context<'_>, state: &mut ConnectionState) -> Poll<io::Result<()>> {
        while !state.outbound.bytes.is_empty() {
            let written = self.socket.poll_write(context, &state.outbound.bytes, &[]);
            self.traffic.note_write(&self.socket, &written);
            let written = ready!(written)?;
            self.traffic.add_sent(written);
            state.outbound.bytes.advance(written);
        }
        let flushed = self.socket.poll_flush(context);
        self.traffic.note_write(&self.socket, &flushed);
        flushed
    }
}

impl ConnectionState {
    /// The socket accepts no more bytes for now. Those that wait take no more memory than their number, with room for a
    /// few control frames.
    fn block(&mut self) {
        if !std::mem::replace(&mut self.outbound.blocked, true) {
            let mut waiting = BytesMut::with_capacity(self.outbound.bytes.len() + CONTROL_FRAMES);
            waiting.extend_from_slice(&self.outbound.bytes);
            self.outbound.bytes = waiting;
        }
    }

    /// The socket has accepted all bytes.
    fn drained(&mut self) {
        self.outbound.blocked = false;
        self.outbound.replies = 0;
        if self.streams.is_empty() || self.outbound.bytes.capacity() > KEPT_BUFFER {
            self.outbound.bytes = BytesMut::new();
        } else {
            self.outbound.bytes.clear();
        }
        self.wake_to_open();
        self.share_room();
    }

    /// Gives all streams that wait for room an equal share of it.
    pub(super) fn share_room(&mut self) {
        if self.sending.waiters.is_empty() || self.free_room() == 0 {
            return;
        }
        let mut waiters = std::mem::take(&mut self.sending.waiters);
        // Streams that got nothing in the last round come first: there may not be enough for all.
        waiters.sort_by_key(|&id| self.streams.get(id).map_or(u64::MAX, |stream| stream.served));
        self.sending.round += 1;
        let share =
            if waiters.len() > 1 { (self.free_room() / waiters.len()).max(MIN_SHARE) } else { usize::MAX };
        for id in waiters {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.share = share;
                stream.queued = false;
                stream.wake_writer();
            }
        }
    }

    /// Bytes of DATA for which the connection has room. The bytes of a stream whose client reads nothing wait once, here
    /// or in the window of its backend.
    fn free_room(&self) -> usize {
        if self.outbound.blocked {
            return 0;
        }
        let max = if is_scarce() { SCARCE_OUTBOUND } else { MAX_OUTBOUND };
        self.sending.window.available().min(max.saturating_sub(self.outbound.bytes.len()))
    }

    /// What one request may send of its body. While there are others, half of the connection's window is its own, and what
    /// is left above the other half. So a server that does not read one upload still gets the others, and one that reads
    /// all of them stops none, however late it opens the window of a stream.
    fn quota(&self) -> UploadQuota {
        let shared = self.role == Role::Client && self.streams.active() > 1;
        if !shared {
            return UploadQuota { own: usize::MAX, spare: usize::MAX };
        }
        let half = self.sending.max_window / 2;
        UploadQuota { own: half, spare: self.sending.window.available().saturating_sub(half) }
    }

    /// Bytes of DATA that a stream may send now. 0: the present task is woken when it may.
    pub(super) fn poll_room(&mut self, id: u32, context: &Context<'_>) -> usize {
        let (free, quota) = (self.free_room(), self.quota());
        let Some(stream) = self.streams.get_mut(id) else { return 0 };
        if stream.share == 0 && self.outbound.bytes.is_empty() {
            stream.share = usize::MAX;
        }
        let window = stream.window(quota);
        // A stream without a share of its own waits after those that wait already.
        let in_turn = stream.share != usize::MAX || self.sending.waiters.is_empty();
        let room = if in_turn { free.min(window).min(stream.share) } else { 0 };
        if room == 0 {
            stream.wait_to_write(context);
            if window > 0 && !std::mem::replace(&mut stream.queued, true) {
                // A stream that has used its share waits for the others, until the socket has accepted their bytes.
                stream.share = usize::MAX;
                self.sending.waiters.push(id);
            }
        }
        room
    }

    /// Appends DATA: as much of `data` as the stream may send. Returns the number of bytes. `last`: the stream ends
    /// after it.
    pub(super) fn put_data(&mut self, id: u32, data: &[u8], last: bool) -> usize {
        let (free, quota) = (self.free_room(), self.quota());
        let Some(stream) = self.streams.get_mut(id) else { return 0 };
        let sent = data.len().min(free).min(stream.window(quota)).min(stream.share);
        stream.send_window.consume(sent);
        stream.unread = stream.unread.saturating_add(sent);
        if stream.share != usize::MAX {
            stream.share -= sent;
        }
        if sent > 0 {
            stream.served = self.sending.round;
        }
        self.sending.window.consume(sent);
        let ends = last && sent == data.len();
        let mut rest = &data[..sent];
        while rest.len() > MAX_PAYLOAD {
            let (part, after) = rest.split_at(MAX_PAYLOAD);
            put_data(id, part, false, &mut self.outbound.bytes);
            rest = after;
        }
        if !rest.is_empty() || ends {
            put_data(id, rest, ends, &mut self.outbound.bytes);
        }
        if ends {
            self.end_sending(id);
        }
        sent
    }

    /// This side has sent all of a stream.
    pub(super) fn end_sending(&mut self, id: u32) {
        self.streams.change(id, |stream| stream.send_ended = true);
        self.wake_to_open();
    }
}
