//! Where a request's head ends, in bytes that arrive piecemeal.

use super::lines::{LineEnd, LineScanner, ScanError};
use super::request::{
    BAD_LINE, MAX_LINE, RequestError, fault_of_lines, fault_of_long_line, fault_of_protocol,
};

/// Finds the end of a head in bytes that arrive piecemeal; each byte is examined once.
///
/// A head's error does not depend on the pieces: it is that of the first faulty line. Once found, it stays.
#[derive(Debug, Default)]
pub struct HeadScanner {
    lines: LineScanner,
    fault: Option<RequestError>,
}

impl HeadScanner {
    /// The length of the head, once it is complete. `bytes` begins at the request line and only ever grows.
    ///
    /// # Errors
    ///
    /// A line that does not end in CR LF, or an exceeded limit.
    #[inline]
    pub fn advance(&mut self, bytes: &[u8], max_head: usize) -> Result<bool, RequestError> {
        let is_new = self.lines.line == 0 && self.fault.is_none();
        // The usual case: the whole request head, and nothing after it.
        if is_new && bytes.ends_with(b"\r\n\r\n") && bytes.len() <= max_head.min(MAX_LINE) {
            return Ok(true);
        }
        self.search(bytes, max_head)
    }

    #[cold]
    fn search(&mut self, bytes: &[u8], max_head: usize) -> Result<bool, RequestError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let had_request_line = self.lines.line > 0;
        let end = self.lines.head_end(bytes, max_head, MAX_LINE, LineEnd::CrLf);
        // A client of another protocol may send one line and wait: one of HTTP/0.9 does.
        if end == Ok(None)
            && !had_request_line
            && let Some(fault) = fault_of_protocol(bytes.get(..self.lines.line).unwrap_or_default())
        {
            return Err(*self.fault.insert(fault));
        }
        end.map(|end| end.is_some()).map_err(|error| {
            let lines = bytes.get(..self.lines.line).unwrap_or_default();
            let fault = fault_of_lines(lines).unwrap_or_else(|| match error {
                ScanError::LineEnd => BAD_LINE,
                // The request line overflowed, or else a field.
                ScanError::TooLong if lines.is_empty() => {
                    fault_of_long_line(&bytes[..bytes.len().min(max_head + 1)])
                }
                ScanError::TooLong => RequestError::HeadTooLarge,
            });
            *self.fault.insert(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::request::RequestHead;
    use super::*;

    /// The result for a head that is received in pieces: its length, its error, or none yet.
    fn read(bytes: &[u8], cuts: &[usize], max_head: usize) -> Result<Option<usize>, RequestError> {
        let mut scanner = HeadScanner::default();
        for &cut in cuts.iter().chain([&bytes.len()]) {
            if scanner.advance(&bytes[..cut], max_head)? {
                let mut spans = Vec::new();
                return RequestHead::parse(&bytes[..cut], &mut spans).map(|head| Some(head.length));
            }
        }
        Ok(None)
    }

    fn all_cuts_agree(bytes: &[u8], max_head: usize) -> Result<Option<usize>, RequestError> {
        let whole = read(bytes, &[], max_head);
        let status = |read: Result<Option<usize>, RequestError>| read.map_err(RequestError::status);
        for cut in 0..bytes.len() {
            assert_eq!(status(read(bytes, &[cut], max_head)), status(whole), "cut at {cut}");
        }
        let bytewise: Vec<_> = (0..bytes.len()).collect();
        assert_eq!(status(read(bytes, &bytewise, max_head)), status(whole), "byte by byte");
        whole
    }

    #[test]
    fn a_bare_cr_is_refused_at_once() {
        let mut scanner = HeadScanner::default();
        assert_eq!(scanner.advance(b"GET / HTTP/1.1\r\nx: y\r", 1000), Ok(false));
        assert_eq!(scanner.advance(b"GET / HTTP/1.1\r\nx: y\rz", 1000), Err(BAD_LINE));
        assert_eq!(scanner.advance(b"GET / HTTP/1.1\r\nx: y\rz\r\n\r\n", 1000), Err(BAD_LINE), "for ever");
    }

    #[test]
    fn a_line_of_another_protocol_is_refused_before_the_head_is_complete() {
        for (line, status) in [
            ("GET /\r\n", 400),
            ("GET / HTTP/1.2\r\n", 505),
            ("EHLO client.example\r\n", 400),
            ("SSH-2.0-OpenSSH_9.2\r\nx", 400),
        ] {
            let fault = all_cuts_agree(line.as_bytes(), 1000).expect_err("a fault");
            assert_eq!(fault.status().as_u16(), status, "{line:?}");
        }
        // The rest of the head is read, so that what is told of a request is whole.
        for line in ["GET / HTTP/1.1\r\n", "TRACE / HTTP/1.1\r\n", "GET / HTTP/1.0\r\nx"] {
            assert_eq!(all_cuts_agree(line.as_bytes(), 1000), Ok(None), "{line:?}");
        }
    }

    #[test]
    fn a_method_longer_than_any_is_not_implemented() {
        for length in [257, 1000, 100_000] {
            let head = format!("{} / HTTP/1.1\r\nhost: a\r\n\r\n", "A".repeat(length));
            assert_eq!(read(head.as_bytes(), &[], 32 << 10), Err(RequestError::MethodTooLong), "{length}");
            assert_eq!(
                read(head.as_bytes(), &[20_000.min(length)], 32 << 10),
                Err(RequestError::MethodTooLong)
            );
        }
        let head = format!("{} / HTTP/1.1\r\nhost: a\r\n\r\n", "A".repeat(256));
        assert!(read(head.as_bytes(), &[], 32 << 10).is_ok_and(|length| length.is_some()));
    }

    #[test]
    fn the_first_faulty_line_decides() {
        let line = "HTTP/1.1\r\nhost: a\r\n";
        for (head, status) in [
            ("GET / HTTP/1.2\r\nx: y\n\r\n".to_owned(), 505),
            (format!("CONNECT a:1 {line}x\ry: z\r\n\r\n"), 405),
            ("GET /\r HTTP/1.2\r\n\r\n".to_owned(), 400),
            (format!("GET /{} {line}\r\n", "x".repeat(200)), 414),
            (format!("GET / {line}x: {}\r\n\r\n", "y".repeat(200)), 431),
            (format!("GET / {line}x: {}\rz\r\n\r\n", "y".repeat(40)), 400),
        ] {
            let fault = all_cuts_agree(head.as_bytes(), 100).expect_err("a fault");
            assert_eq!(fault.status().as_u16(), status, "{head:?}");
        }
    }

    #[test]
    fn a_line_has_room_for_16_kib() {
        let head =
            |length: usize| format!("GET / HTTP/1.1\r\nhost: a\r\nx:{}\r\n\r\n", "y".repeat(length - 2));
        let cuts = [100, 16_000, 16 << 10, (16 << 10) + 25, (16 << 10) + 26, (16 << 10) + 27];
        for cut in cuts {
            assert!(read(head(MAX_LINE).as_bytes(), &[cut], 32 << 10).is_ok(), "{cut}");
            assert_eq!(
                read(head(MAX_LINE + 1).as_bytes(), &[cut], 32 << 10),
                Err(RequestError::HeadTooLarge),
                "{cut}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_cut_changes_the_outcome(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "GET / HTTP/1.1\r\n", "GET / HTTP/1.3\r\n", "TRACE / HTTP/1.1\r\n", "host: a\r\n", "x: y\r\n", "x:\ry\r\n",
                "x: y\n", "content-length: x\r\n", "\r\n", "\r", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", " ",
            ]), 0..8),
            max_head in 20..120_usize,
        ) {
            let bytes = pieces.concat();
            prop_assume!(!bytes.starts_with("\r\n"));
            let end = all_cuts_agree(bytes.as_bytes(), max_head).ok().flatten();
            prop_assert!(end.is_none_or(|end| bytes[..end].ends_with("\r\n\r\n")));
        }
    }
}
