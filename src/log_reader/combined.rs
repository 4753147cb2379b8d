//! The common and combined log formats of Apache and nginx, also with the host in front (`vhost_combined`), and that of
//! Traefik, which adds the duration.

use super::columns::{blanks, quoted, word};
use super::fields::{LineFields, is_list, number, status};
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{client, common_time, span};
use crate::limit::units::Timestamp;

/// The time of a line.
pub(super) fn time(line: &[u8]) -> Result<Timestamp, ProblemKind> {
    let (_, time, _) = split_time(line).ok_or(ProblemKind::NotReadable)?;
    common_time(time).ok_or(ProblemKind::NoTime)
}

/// Reads a line but its time, which `time` returns: it is known when a line is read.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    let (before, _, rest) = split_time(line).ok_or(ProblemKind::NotReadable)?;
    read_client(before, fields);
    let (request, mut rest) = quoted(blanks(rest)).ok_or(ProblemKind::NotReadable)?;
    fields.set_request_line(request);
    fields.status = status(word(&mut rest));
    // Apache writes `-` for no bytes.
    fields.bytes_out = Some(number(word(&mut rest)).unwrap_or(0));
    if let Some((referer, after)) = quoted(blanks(rest)) {
        fields.referer = Some(referer);
        rest = after;
    }
    if let Some((agent, after)) = quoted(blanks(rest)) {
        fields.user_agent = Some(agent);
        rest = after;
    }
    if let Some(milliseconds) = rest.strip_suffix(b"ms") {
        let digits = milliseconds.rsplit(|byte| *byte == b' ').next();
        fields.duration = digits.and_then(|digits| span(digits, 3));
    }
    Ok(())
}

/// The text before the time, the time, and the text after it.
fn split_time(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    // The bracket of the time is after a blank; an address of IPv6 may have one, too.
    let mut brackets = memchr::memchr_iter(b'[', line);
    let open = brackets.find_map(|at| at.checked_sub(1).filter(|blank| line.get(*blank) == Some(&b' ')))?;
    let (before, rest) = line.split_at(open);
    let rest = rest.get(2..)?;
    let close = memchr::memchr(b']', rest)?;
    Some((before, rest.get(..close)?, rest.get(close + 1..)?))
}

/// `client identity user`, or `host:port client identity user`. A user may have blanks. In place of a client there may be
/// a list, `192.0.2.7, 10.0.0.1`, where the header of a proxy is logged.
fn read_client<'l>(before: &'l [u8], fields: &mut LineFields<'l>) {
    let mut rest = before;
    let first = hops(&mut rest);
    fields.set_client(first);
    let behind_first = rest;
    let second = hops(&mut rest);
    // A name with a port never is an address, but an address with a port may be a host.
    let may_be_host = !is_list(first) && (fields.client.is_none() || first.contains(&b':'));
    if may_be_host && (is_list(second) || client(second).is_some()) {
        fields.set_client(second);
        let host = LoggedText::plain(first);
        fields.host = host.known().map(|host| host.part(without_default_port(host.raw())));
    } else {
        rest = behind_first;
    }
    word(&mut rest);
    fields.consumer = LoggedText::escaped(blanks(rest)).known().filter(|user| user.raw() != br#""""#);
}

/// Takes the next word from the text, and those after it for as long as a word ends with a comma.
fn hops<'l>(rest: &mut &'l [u8]) -> &'l [u8] {
    let text = blanks(rest);
    while word(rest).raw().ends_with(b",") {}
    text.get(..text.len() - rest.len()).unwrap_or_default()
}

fn without_default_port(host: &[u8]) -> &[u8] {
    [b":80".as_slice(), b":443"].into_iter().find_map(|port| host.strip_suffix(port)).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::Micros;

    fn read_line(line: &str) -> Result<LineFields<'_>, ProblemKind> {
        let mut fields = LineFields::default();
        read(line.as_bytes(), &mut fields).map(|()| fields)
    }

    fn text(text: Option<LoggedText<'_>>) -> Option<String> {
        let mut string = String::new();
        text?.assign_to(&mut string);
        Some(string)
    }

    const COMBINED: &str = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#;

    #[test]
    fn combined_and_common_lines_are_read() {
        let fields = read_line(COMBINED).unwrap();
        assert_eq!(time(COMBINED.as_bytes()), Ok(Timestamp(971_211_336_000_000)));
        assert_eq!(fields.client, "127.0.0.1".parse().ok());
        assert_eq!(text(fields.consumer).as_deref(), Some("frank"));
        assert_eq!(text(fields.method).as_deref(), Some("GET"));
        assert_eq!(text(fields.target).as_deref(), Some("/apache_pb.gif"));
        assert_eq!((fields.status, fields.bytes_out), (Some(200), Some(2_326)));
        assert_eq!(text(fields.user_agent).as_deref(), Some("Mozilla/4.08 [en] (Win98; I ;Nav)"));
        let common = read_line(r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 304 -"#).unwrap();
        assert_eq!((common.bytes_out, common.user_agent), (Some(0), None));
        assert_eq!(common.client, "::1".parse().ok());
    }

    #[test]
    fn a_virtual_host_in_front_is_read() {
        for (front, host) in [("www.example.com:80", "www.example.com"), ("10.0.0.1:8080", "10.0.0.1:8080")] {
            let line = format!("{front} 192.0.2.7 - - {}", COMBINED.split_once("frank ").unwrap().1);
            let fields = read_line(&line).unwrap();
            assert_eq!(fields.client, "192.0.2.7".parse().ok());
            assert_eq!(text(fields.host).as_deref(), Some(host));
        }
    }

    #[test]
    fn a_list_of_addresses_in_place_of_the_clients_is_read() {
        let rest = COMBINED.split_once("frank ").unwrap().1;
        for (front, hops) in [
            ("192.0.2.13, 198.51.100.3 - -", "192.0.2.13, 198.51.100.3"),
            ("192.0.2.13,198.51.100.3 - -", "192.0.2.13,198.51.100.3"),
            ("unknown, 2001:db8::1, 10.0.0.1 - -", "unknown, 2001:db8::1, 10.0.0.1"),
        ] {
            for (host, front) in
                [(None, front.to_owned()), (Some("www.example.com"), format!("www.example.com:80 {front}"))]
            {
                let line = format!("{front} {rest}");
                let fields = read_line(&line).unwrap();
                assert_eq!((fields.client, fields.hops), (None, Some(hops.as_bytes())), "{line}");
                assert_eq!(text(fields.host).as_deref(), host, "{line}");
                assert!(text(fields.consumer).is_none() && fields.status == Some(200), "{line}");
            }
        }
    }

    #[test]
    fn escapes_and_blanks_are_read() {
        let line = r#"192.0.2.7 - a b [10/Oct/2000:13:55:36 -0700] "GET /\xc3\xa9\"x HTTP/1.1" 200 1 "-" "a\\b" "198.51.100.1" more"#;
        let fields = read_line(line).unwrap();
        assert_eq!(text(fields.consumer).as_deref(), Some("a b"));
        assert_eq!(text(fields.target).as_deref(), Some("/é\"x"));
        assert_eq!(text(fields.user_agent).as_deref(), Some(r"a\b"));
    }

    #[test]
    fn traefiks_common_format_has_a_duration() {
        let line = r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 12 "-" "-" 5 "web@docker" "http://10.0.0.2:80" 37ms"#;
        assert_eq!(read_line(line).unwrap().duration, Some(Micros(37_000)));
    }

    #[test]
    fn lines_without_a_request_have_none() {
        for request in ["-", "", r"\x16\x03\x01"] {
            let line = format!(r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "{request}" 400 0 "-" "-""#);
            assert!(read_line(&line).unwrap().target.is_none());
        }
        assert_eq!(read_line("hello").err(), Some(ProblemKind::NotReadable));
    }

    proptest! {
        #[test]
        fn any_cut_and_mutation_is_read_without_panic(cut in 0..COMBINED.len(), at in 0..COMBINED.len(), byte: u8) {
            let mut bytes = COMBINED.as_bytes().to_vec();
            bytes[at] = byte;
            for line in [&bytes, bytes.get(..cut).unwrap()] {
                let mut fields = LineFields::default();
                let _ = (read(line, &mut fields), time(line));
            }
        }
    }
}
