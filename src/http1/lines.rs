//! The lines of a head, and where it ends in bytes that arrive piecemeal.

use memchr::memchr;

/// How a line may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// In CR LF only, and without another CR: in a request.
    CrLf,
    /// In LF alone, too (RFC 9112 §2.2): in a response.
    Lf,
}

/// Why a head has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanError {
    /// A line ends in LF alone, or has a CR without LF after it.
    LineEnd,
    /// The line, or the head, is too long.
    TooLong,
}

/// The first line without its end, and its length with its end. `None`: there is no line, or it may not end so.
#[inline(always)]
pub fn split_line(bytes: &[u8], end: LineEnd) -> Option<(&[u8], usize)> {
    let newline = memchr(b'\n', bytes)?;
    Some((end.strip(&bytes[..newline])?, newline + 1))
}

impl LineEnd {
    /// A line, which was followed by LF, without its CR.
    #[inline(always)]
    fn strip(self, line: &[u8]) -> Option<&[u8]> {
        line.strip_suffix(b"\r").or((self == Self::Lf).then_some(line))
    }
}

/// Finds the end of a head in bytes that only ever grow; each byte is searched once. After an error every later call
/// fails, since it finds the same error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineScanner {
    /// Where the line being read begins.
    pub(super) line: usize,
    /// The position up to which the line's end was searched.
    searched: usize,
}

impl LineScanner {
    /// The length of the head, empty line included, once it is complete.
    #[inline(always)]
    pub(super) fn head_end(
        &mut self,
        bytes: &[u8],
        max_head: usize,
        max_line: usize,
        end: LineEnd,
    ) -> Result<Option<usize>, ScanError> {
        loop {
            // One byte more than a line, or the head, may have with its end.
            let bound = (self.line + max_line + 2).min(max_head + 1);
            let bytes = &bytes[..bytes.len().min(bound)];
            let Some(found) = memchr(b'\n', &bytes[self.searched..]) else {
                if end == LineEnd::CrLf && self.has_bare_cr(bytes) {
                    return Err(ScanError::LineEnd);
                }
                self.searched = bytes.len();
                return if bytes.len() == bound { Err(ScanError::TooLong) } else { Ok(None) };
            };
            let newline = self.searched + found;
            let line = end.strip(&bytes[self.line..newline]).ok_or(ScanError::LineEnd)?;
            if end == LineEnd::CrLf && memchr(b'\r', line).is_some() {
                return Err(ScanError::LineEnd);
            }
            if newline >= max_head {
                return Err(ScanError::TooLong);
            }
            if line.is_empty() {
                return Ok(Some(newline + 1));
            }
            (self.line, self.searched) = (newline + 1, newline + 1);
        }
    }

    /// Whether an incomplete line has a CR other than its last byte.
    fn has_bare_cr(&self, bytes: &[u8]) -> bool {
        let from = self.searched.saturating_sub(1).max(self.line);
        let unseen = bytes.get(from..).unwrap_or_default();
        memchr(b'\r', unseen).is_some_and(|cr| cr + 1 < unseen.len())
    }
}
