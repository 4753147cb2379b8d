//! Lines of Envoy's default text format
//! (<https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage>), and of Istio's, which has
//! more columns. They have the start of a request.
//!
//! Envoy does not escape quotes within values, and clients choose some of the values. A line whose quotes can be read in
//! two ways is not read.

use memchr::memmem;

use super::columns::{blanks, bracketed, quoted, word};
use super::fields::{LineFields, number, status};
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{client, rfc3339, span};

/// Reads a line.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    read_columns(line, fields).ok_or(ProblemKind::NotReadable)
}

/// `[start] "request" status flags received sent ms ms "x-forwarded-for" "agent" "request-id" "authority" "upstream"`.
fn read_columns<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Option<()> {
    let (time, rest) = bracketed(line)?;
    fields.time = Some(rfc3339(time)?);
    let (request, mut rest) = request(blanks(rest))?;
    fields.set_request_line(request);
    fields.status = status(word(&mut rest));
    let _flags = word(&mut rest);
    rest = after_details(rest)?;
    fields.bytes_in = Some(number(word(&mut rest))?);
    fields.bytes_out = Some(number(word(&mut rest))?);
    fields.duration = span(word(&mut rest).raw(), 3);
    let _of_upstream = word(&mut rest);
    let ([forwarded_for, agent, id, authority, _upstream], rest) = quoted_columns(blanks(rest))?;
    fields.user_agent = Some(LoggedText::plain(agent).known().unwrap_or_default());
    fields.headers.push((LoggedText::plain(b"x-request-id"), LoggedText::plain(id).known()));
    fields.host = LoggedText::plain(authority).known();
    match LoggedText::plain(forwarded_for).known() {
        Some(addresses) => fields.set_client(addresses.raw()),
        None => fields.client = peer_of_istio(rest),
    }
    Some(())
}

/// The request line, whose end is a quote before a status: a path may have quotes, and never a blank.
fn request(text: &[u8]) -> Option<(LoggedText<'_>, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end =
        memmem::find_iter(text, b"\" ").find(|end| text.get(end + 2).is_some_and(u8::is_ascii_digit))?;
    Some((LoggedText::plain(text.get(..end)?), text.get(end + 2..)?))
}

/// Istio's lines have three columns before the sizes: details of the response and of the termination, and the failure of
/// the connection in quotes.
fn after_details(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    if number(word(&mut rest)).is_some() {
        return Some(text);
    }
    let _termination = word(&mut rest);
    quoted(blanks(rest)).map(|(_, rest)| rest)
}

/// The five texts in quotes, and what is after them, which has no quotes.
fn quoted_columns(text: &[u8]) -> Option<([&[u8]; 5], &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut columns = [[].as_slice(); 5];
    let [first @ .., last] = &mut columns;
    for column in first {
        let end = memmem::find(rest, b"\" \"")?;
        (*column, rest) = (rest.get(..end)?, rest.get(end + 3..)?);
    }
    let end = memchr::memchr(b'"', rest)?;
    *last = rest.get(..end)?;
    let rest = rest.get(end + 1..)?;
    memchr::memchr(b'"', rest).is_none().then_some((columns, rest))
}

/// Istio's lines go on: cluster, local addresses on either side, and the address of the peer.
fn peer_of_istio(text: &[u8]) -> Option<std::net::IpAddr> {
    let mut rest = text;
    let _before = [word(&mut rest), word(&mut rest), word(&mut rest)];
    client(word(&mut rest).raw())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::{Micros, Timestamp};

    const LINE: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
    const ISTIO: &str = r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 3 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default"#;

    fn read_line(line: &str) -> Result<LineFields<'_>, ProblemKind> {
        let mut fields = LineFields::default();
        read(line.as_bytes(), &mut fields).map(|()| fields)
    }

    fn text(text: Option<LoggedText<'_>>) -> Option<String> {
        let mut string = String::new();
        text?.assign_to(&mut string);
        Some(string)
    }

    #[test]
    fn a_line_is_read() {
        let fields = read_line(LINE).unwrap();
        assert_eq!(fields.arrival(), Ok(Timestamp(1_460_751_420_310_000)));
        assert_eq!(fields.duration, Some(Micros(226_000)));
        assert_eq!(fields.client, "10.0.35.28".parse().ok());
        assert_eq!((fields.status, fields.bytes_in, fields.bytes_out), (Some(204), Some(154), Some(0)));
        assert_eq!(text(fields.method).as_deref(), Some("POST"));
        assert_eq!(text(fields.target).as_deref(), Some("/api/v1/locations"));
        assert_eq!(text(fields.host).as_deref(), Some("locations"));
        assert_eq!(text(fields.user_agent).as_deref(), Some("nsq2http"));
    }

    #[test]
    fn a_line_of_istio_is_read() {
        let fields = read_line(ISTIO).unwrap();
        assert_eq!((fields.status, fields.duration), (Some(418), Some(Micros(4_000))));
        assert_eq!((fields.bytes_in, fields.bytes_out), (Some(0), Some(135)));
        assert_eq!(fields.client, "10.44.1.23".parse().ok());
        assert_eq!(text(fields.host).as_deref(), Some("httpbin:8000"));
        let line = ISTIO.replace("10.44.1.23:46520", "[2001:db8::7]:46520");
        assert_eq!(read_line(&line).unwrap().client, "2001:db8::7".parse().ok());
        let line = ISTIO.replace(r#"4 3 "-""#, r#"4 3 "192.0.2.7""#);
        assert_eq!(read_line(&line).unwrap().client, "192.0.2.7".parse().ok());
    }

    #[test]
    fn clients_are_none_one_or_several() {
        let none = LINE.replace("10.0.35.28", "-");
        let fields = read_line(&none).unwrap();
        assert_eq!((fields.client, fields.hops), (None, None));
        let list = LINE.replace("10.0.35.28", "192.0.2.7,2001:db8::1");
        let fields = read_line(&list).unwrap();
        assert_eq!((fields.client, fields.hops), (None, Some(b"192.0.2.7,2001:db8::1".as_slice())));
    }

    #[test]
    fn a_request_that_is_none_has_dashes() {
        let line = r#"[2016-04-15T20:17:00.310Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-""#;
        let fields = read_line(line).unwrap();
        assert_eq!((text(fields.target).as_deref(), fields.status), (Some("-"), Some(400)));
        assert!(fields.host.is_none() && fields.client.is_none());
    }

    #[test]
    fn quotes_of_values_end_nothing_or_the_line_is_not_read() {
        let line = LINE.replace("nsq2http", "a\"b").replace("/locations HTTP", "/\"x\" HTTP");
        let fields = read_line(&line).unwrap();
        assert_eq!(text(fields.user_agent).as_deref(), Some("a\"b"));
        assert_eq!(text(fields.target).as_deref(), Some("/api/v1/\"x\""));
        let forged = LINE.replace("10.0.35.28", "198.51.100.1\" \"x, 10.0.35.28");
        assert_eq!(read_line(&forged).err(), Some(ProblemKind::NotReadable));
        let forged = LINE.replace("nsq2http", "a\" \"b\" \"evil.example");
        assert_eq!(read_line(&forged).err(), Some(ProblemKind::NotReadable));
        assert_eq!(text(read_line(&LINE.replace("nsq2http", "")).unwrap().user_agent).as_deref(), Some(""));
    }

    #[test]
    fn a_line_that_is_cut_is_none() {
        for cut in 0..LINE.len() {
            assert_eq!(read_line(&LINE[..cut]).err(), Some(ProblemKind::NotReadable), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_and_mutation_is_read_without_panic(cut in 0..ISTIO.len(), at in 0..LINE.len(), byte: u8) {
            let mut bytes = LINE.as_bytes().to_vec();
            bytes[at] = byte;
            for line in [&bytes, ISTIO.as_bytes().get(..cut).unwrap()] {
                let _ = read(line, &mut LineFields::default());
            }
        }
    }
}
