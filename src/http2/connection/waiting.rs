//! Bytes that wait for peers or for the tasks of streams, in all connections of a worker. A worker is one thread.

use std::cell::Cell;

/// The total from which on the worker buffers less for each connection; bytes.
const SCARCE: usize = 64 << 20;

thread_local! {
    static TOTAL: Cell<usize> = const { Cell::new(0) };
}

/// Whether connections should buffer less.
pub(super) fn is_scarce() -> bool {
    TOTAL.get() >= SCARCE
}

/// One connection's part of the total, subtracted on drop.
#[derive(Debug, Default)]
pub(super) struct Waiting(usize);

impl Waiting {
    /// Sets the number of waiting bytes.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            TOTAL.set(TOTAL.get() - self.0 + bytes);
            self.0 = bytes;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_all_connections_is_counted_until_they_end() {
        let (mut one, mut other) = (Waiting::default(), Waiting::default());
        one.set(SCARCE / 2);
        other.set(SCARCE / 2 - 1);
        assert!(!is_scarce());
        other.set(SCARCE / 2);
        assert!(is_scarce());
        drop(one);
        assert!(!is_scarce());
    }
}
