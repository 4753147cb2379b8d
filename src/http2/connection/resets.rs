//! Streams that end by a reset, and what is left of them.

use super::super::frame::{ErrorCode, put_reset};
use super::streams::Closed;
use super::{ConnectionState, Reset};
use crate::clock::now;

/// Maximum number of streams reset within ten seconds for a client's errors (CVE-2025-8671).
pub(super) const MAX_ERROR_RESETS: u32 = 64;

impl ConnectionState {
    /// Resets a stream for an error of the peer.
    pub(super) fn reset_for_fault(&mut self, id: u32, code: ErrorCode) {
        self.abuse.error_resets.count(now());
        self.reset_stream(id, code, Reset::Fault);
        // A response with a fault that is known is not passed on.
        self.streams.change(id, |stream| stream.heads.clear());
    }

    /// Resets a stream, if there is one or may be one. All resets by this side come here.
    pub(super) fn reset_stream(&mut self, id: u32, code: ErrorCode, reset: Reset) {
        self.reply(|out| put_reset(id, code, out));
        self.streams.remember(id, Closed::ByUs);
        self.streams.change(id, |stream| {
            stream.reset.get_or_insert(reset);
            stream.wake_reader();
            stream.wake_writer();
        });
        self.forget_request(id);
        self.wake_to_open();
    }

    /// A request whose stream is reset before it was returned is neither served nor charged, whichever side resets it.
    /// Returns whether there was one.
    pub(super) fn forget_request(&mut self, id: u32) -> bool {
        let Some(index) = self.requests.iter().position(|(stream, ..)| *stream == id) else { return false };
        self.requests.remove(index);
        self.remove_stream(id);
        true
    }

    /// Removes a stream, and opens the window for bytes that were received and not read.
    pub(super) fn remove_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        if stream.queued {
            self.sending.waiters.retain(|&waiter| waiter != id);
        }
        // Its task may have read bytes and not released them.
        let (unread, unreleased) = (stream.received.len(), stream.unreleased);
        self.receiving.grown -= stream.grown;
        self.receiving.held -= unread;
        self.release_connection(unread + unreleased);
        self.streams.remove(id);
    }
}
