//! What the `connection` fields of a message say about its connection.

use super::syntax::has_item;

/// The options that the parsers themselves handle, of all `connection` fields of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionField {
    pub(super) upgrade: bool,
    close: bool,
    keep_alive: bool,
}

impl ConnectionField {
    /// Adds the options of one field.
    #[inline(always)]
    pub(super) fn take(&mut self, value: &[u8]) {
        match value {
            // Nearly always a single option, in the usual spelling.
            b"keep-alive" => self.keep_alive = true,
            b"close" => self.close = true,
            _ => {
                self.upgrade |= has_item(value, b"upgrade");
                self.keep_alive |= has_item(value, b"keep-alive");
                self.close |= has_item(value, b"close");
            }
        }
    }

    /// Whether the connection persists after the message (RFC 9112 §9.3).
    pub(super) fn is_kept(self, http_11: bool) -> bool {
        !self.close && (http_11 || self.keep_alive)
    }
}
