//! Flow control (RFC 9113 §5.2, §6.9): the number of bytes of DATA that either side may send.

use super::frame::MAX_31_BITS;

/// The window before either side changes it (RFC 9113 §6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;

/// A window exceeds 2^31 - 1, or the peer sent more than its window: FLOW_CONTROL_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowControlError;

/// Bytes that the peer accepts. SETTINGS of the peer may make it negative (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct SendWindow(i64);

impl SendWindow {
    /// A window of this size.
    pub fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    /// Bytes that may be sent now.
    #[inline]
    pub fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Counts bytes that were sent, at most [`Self::available`].
    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        self.0 -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// Changes the window by `difference`: WINDOW_UPDATE, or another initial size.
    ///
    /// # Errors
    /// The window would be larger than 2^31 - 1.
    pub fn change(&mut self, difference: i64) -> Result<(), FlowControlError> {
        let changed = self.0 + difference;
        if changed > i64::from(MAX_31_BITS) {
            return Err(FlowControlError);
        }
        self.0 = changed;
        Ok(())
    }
}

/// Bytes that the peer may send.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveWindow {
    /// The size of the window when all received bytes are released.
    size: u32,
    /// Bytes that the peer may still send. Negative after [`Self::shrink`] (RFC 9113 §6.9.2).
    available: i64,
    /// Bytes released and not announced to the peer yet.
    released: u32,
}

impl ReceiveWindow {
    /// A window of this size, which the peer knows.
    pub fn new(size: u32) -> Self {
        Self { size, available: i64::from(size), released: 0 }
    }

    /// Counts received bytes.
    ///
    /// # Errors
    ///
    /// The peer was not allowed to send that many.
    #[inline]
    pub fn receive(&mut self, bytes: usize) -> Result<(), FlowControlError> {
        let bytes = i64::try_from(bytes).map_err(|_| FlowControlError)?;
        if bytes > self.available && bytes > 0 {
            return Err(FlowControlError);
        }
        self.available -= bytes;
        Ok(())
    }

    /// Releases bytes that have been used. Returns the increment for a WINDOW_UPDATE once half of the window is
    /// released, which saves frames.
    #[inline]
    pub fn release(&mut self, bytes: usize) -> Option<u32> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.released += bytes.min(self.unreleased());
        if self.released < self.size / 2 || self.released == 0 {
            return None;
        }
        self.available += i64::from(self.released);
        Some(std::mem::take(&mut self.released))
    }
}

impl ReceiveWindow {
    /// Bytes received and not released.
    fn unreleased(&self) -> u32 {
        let used = i64::from(self.size) - self.available - i64::from(self.released);
        u32::try_from(used).unwrap_or(0)
    }

    /// Whether the peer may send nothing.
    pub fn is_closed(&self) -> bool {
        self.available <= 0
    }

    /// The size of the window when all received bytes are released.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Enlarges the window by `more`. The peer learns of it with the next [`Self::release`].
    pub fn grow(&mut self, more: u32) {
        self.released += more;
        self.size += more;
    }

    /// Makes the window smaller, as the peer knows.
    pub fn shrink(&mut self, less: u32) {
        let less = less.min(self.size);
        self.size -= less;
        self.available -= i64::from(less);
    }
}

#[cfg(test)]
impl ReceiveWindow {
    /// Bytes received and not released.
    pub fn used(&self) -> u32 {
        self.unreleased()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_be_negative_but_not_too_large() {
        let mut window = SendWindow::new(100);
        window.consume(80);
        window.change(-90).expect("no overflow");
        assert_eq!(window.available(), 0);
        window.change(71).expect("no overflow");
        assert_eq!(window.available(), 1);
        assert_eq!(window.change(i64::from(MAX_31_BITS)), Err(FlowControlError));
        assert_eq!(window.available(), 1);
    }

    #[test]
    fn what_is_released_is_told_in_halves() {
        let mut window = ReceiveWindow::new(100);
        assert_eq!(window.receive(101), Err(FlowControlError));
        window.receive(100).expect("as many as were allowed");
        assert_eq!(window.receive(1), Err(FlowControlError));
        assert_eq!(window.release(49), None);
        assert_eq!(window.release(1), Some(50));
        window.receive(50).expect("as many as were released");
        assert_eq!(window.receive(1), Err(FlowControlError));
        assert_eq!(window.release(1000), Some(100), "no more than was used");
        assert_eq!(window.release(1000), None);
        window.grow(300);
        assert_eq!(window.receive(101), Err(FlowControlError), "the peer does not know");
        window.receive(10).expect("as many as were allowed");
        assert_eq!(window.release(10), Some(310));
        window.receive(400).expect("the larger window");
    }

    #[test]
    fn a_window_that_shrinks_below_what_was_sent_is_closed_until_that_is_released() {
        let mut window = ReceiveWindow::new(100);
        window.receive(80).expect("as many as were allowed");
        window.shrink(90);
        assert_eq!(window.receive(0), Ok(()), "a frame without bytes");
        assert_eq!(window.receive(1), Err(FlowControlError));
        assert_eq!(window.release(75), Some(75));
        assert_eq!(window.receive(6), Err(FlowControlError));
        window.receive(5).expect("10 less the 5 that are used");
        assert_eq!((window.used(), window.release(10)), (10, Some(10)));
    }
}
