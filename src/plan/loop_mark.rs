//! Loop detection: each forwarded request carries an id of this process in `cdn-loop` (RFC 8586).

use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::http1::syntax::items;
use crate::http2::head_sink::HeadSink;

/// The start of the header line.
const NAME: &[u8; 10] = b"cdn-loop: ";
/// The prefix of the id.
const PRODUCT: &[u8; 9] = b"tollgate-";
/// Digits of the id.
const DIGITS: usize = 16;
/// The length of the line, with its line end.
const LENGTH: usize = NAME.len() + PRODUCT.len() + DIGITS + 2;

/// An id of the process, as a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopMark {
    line: [u8; LENGTH],
}

impl LoopMark {
    /// Of a process that drew this number at random.
    pub fn new(random: u64) -> Self {
        let mut line = [b'0'; LENGTH];
        let digits = (0..DIGITS).rev().map(|digit_index| digit(random >> (4 * digit_index)));
        let text = NAME.iter().chain(PRODUCT).copied().chain(digits).chain(*b"\r\n");
        line.iter_mut().zip(text).for_each(|(byte, of_text)| *byte = of_text);
        Self { line }
    }

    /// This process's item of the list.
    fn id(&self) -> &[u8] {
        &self.line[NAME.len()..LENGTH - 2]
    }

    /// How often a request with these headers has passed this process.
    pub fn passes(&self, fields: Fields<'_>) -> usize {
        let of_list = |list| items(list).filter(|item| self.is_ours(item)).count();
        fields.all_known(Name::CdnLoop).map(of_list).sum()
    }

    /// Parameters may follow an id.
    fn is_ours(&self, item: &[u8]) -> bool {
        let id = item.split(|&byte| byte == b';').next().unwrap_or_default();
        id.trim_ascii().eq_ignore_ascii_case(self.id())
    }

    /// Writes the header for the backend: the received values, in one line, then this process.
    pub fn put(&self, fields: Fields<'_>, sink: &mut impl HeadSink) {
        let mut received = fields.all_known(Name::CdnLoop).filter(|list| !list.is_empty()).peekable();
        if received.peek().is_none() {
            return sink.line(&self.line, NAME.len() - 2);
        }
        sink.written(|out| {
            out.extend_from_slice(NAME);
            for list in received {
                out.extend_from_slice(list);
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(&self.line[NAME.len()..]);
        });
    }
}

/// The last four bits as a hexadecimal digit.
fn digit(bits: u64) -> u8 {
    b"0123456789abcdef"[(bits & 15) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::request::RequestHead;

    /// How often the request has passed, and the header for the backend.
    fn seen(fields: &str) -> (usize, String) {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let mut spans = Vec::new();
        let head = RequestHead::parse(head.as_bytes(), &mut spans).expect("a good head");
        let mark = LoopMark::new(0xab);
        let mut written = bytes::BytesMut::new();
        mark.put(head.fields, &mut crate::http2::head_sink::TextHead(&mut written));
        (mark.passes(head.fields), String::from_utf8(written.to_vec()).expect("text"))
    }

    #[test]
    fn a_process_counts_itself_and_goes_behind_the_others() {
        let own = "tollgate-00000000000000ab";
        assert_eq!(seen(""), (0, format!("cdn-loop: {own}\r\n")));
        assert_eq!(seen("cdn-loop:\r\n"), (0, format!("cdn-loop: {own}\r\n")));
        assert_eq!(
            seen("CDN-Loop: a.example; v=1, b\r\ncdn-loop: tollgate-00000000000000ac\r\n"),
            (0, format!("cdn-loop: a.example; v=1, b, tollgate-00000000000000ac, {own}\r\n"))
        );
        let twice = format!("cdn-loop: {own};v=1,x\r\nCdn-Loop: y, {own} ; v=2\r\n");
        assert_eq!(seen(&twice).0, 2);
        assert_eq!(seen(&format!("cdn-loop: x{own}, {own}x, {own} x\r\n")).0, 0);
    }
}
