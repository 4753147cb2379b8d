//! The lines of `option httplog` of `HAProxy`
//! (<https://docs.haproxy.org/3.0/configuration.html#8.2.3>), also with the columns that `option httpslog` adds. They have
//! the start of a request, as a time without a zone.

use super::columns::{blanks, bracketed, word};
use super::fields::{LineFields, number, status};
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{client_with_port, common_time_without_zone, span};

/// Reads a line.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    read_columns(line, fields).ok_or(ProblemKind::NotReadable)
}

/// `client:port [time] frontend backend/server 10/0/30/69/109 200 2750 cookie cookie ---- 1/1/1/1/0 0/0 {captured} "request"`.
fn read_columns<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Option<()> {
    let mut rest = line;
    fields.client = client_with_port(word(&mut rest).raw());
    let (time, after) = bracketed(blanks(rest))?;
    fields.time = common_time_without_zone(time);
    rest = after;
    let _frontend = word(&mut rest);
    word(&mut rest).raw().contains(&b'/').then_some(())?;
    let timers = parts::<5>(word(&mut rest).raw())?;
    // A total that begins with `+` is that of the response head (`option logasap`); -1 stands for an event that never was.
    fields.duration = timers.last().and_then(|total| span(total, 3));
    fields.status = status(word(&mut rest));
    fields.bytes_out = number(word(&mut rest));
    let _cookies = (word(&mut rest), word(&mut rest));
    let _termination = word(&mut rest);
    parts::<5>(word(&mut rest).raw())?;
    parts::<2>(word(&mut rest).raw())?;
    fields.set_request_line(request(after_captures(rest)?)?);
    fields.split_absolute_target();
    Some(())
}

/// The parts between slashes, of which there are this many.
fn parts<const COUNT: usize>(text: &[u8]) -> Option<[&[u8]; COUNT]> {
    let mut parts = text.split(|byte| *byte == b'/');
    let mut found = [[].as_slice(); COUNT];
    for slot in &mut found {
        *slot = parts.next()?;
    }
    parts.next().is_none().then_some(found)
}

/// What is after the values of captured headers, whose braces the values do not have. Their names are not in the log.
fn after_captures(text: &[u8]) -> Option<&[u8]> {
    let mut rest = blanks(text);
    while let [b'{', captured @ ..] = rest {
        rest = blanks(captured.get(memchr::memchr(b'}', captured)? + 1..)?);
    }
    Some(rest)
}

/// The request line. A quote within it is `#22`; some programs that forward logs write the quotes around it as `\"`.
fn request(text: &[u8]) -> Option<LoggedText<'_>> {
    let is_escaped = text.starts_with(b"\\");
    let text = text.strip_prefix(b"\\").unwrap_or(text).strip_prefix(b"\"")?;
    let line = text.get(..memchr::memchr(b'"', text)?)?;
    let line = if is_escaped { line.strip_suffix(b"\\")? } else { line };
    Some(LoggedText::hash_escaped(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::{Micros, Timestamp};

    const LINE: &str = r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#;

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
        assert_eq!(fields.arrival(), Ok(Timestamp(1_233_922_454_655_000)), "the start, and not the end");
        assert_eq!(fields.duration, Some(Micros(109_000)));
        assert_eq!(fields.client, "10.0.1.2".parse().ok());
        assert_eq!((fields.status, fields.bytes_out), (Some(200), Some(2_750)));
        assert_eq!(text(fields.method).as_deref(), Some("GET"));
        assert_eq!(text(fields.target).as_deref(), Some("/index.html"));
        assert!(fields.host.is_none() && fields.user_agent.is_none());
    }

    #[test]
    fn captured_headers_have_blanks_and_may_be_missing() {
        for captured in ["", "{}", "{} {}", "{1wt.eu|Mozilla/5.0 (X11; Linux)#7Dx|} {}", "{a \" b}"] {
            let line = LINE.replace("{1wt.eu} {}", captured);
            assert_eq!(text(read_line(&line).unwrap().target).as_deref(), Some("/index.html"), "{line}");
        }
    }

    #[test]
    fn clients_of_ipv6_are_read() {
        for (client, address) in [
            ("::1:33317", Some("::1")),
            ("[::1]:33317", Some("::1")),
            ("2001:db8::7:33317", Some("2001:db8::7")),
            ("::ffff:192.0.2.1:33317", Some("192.0.2.1")),
            ("unix:1", None),
        ] {
            let line = LINE.replace("10.0.1.2:33317", client);
            let expected = address.and_then(|address| address.parse().ok());
            assert_eq!(read_line(&line).unwrap().client, expected, "{line}");
        }
    }

    #[test]
    fn a_line_that_was_written_before_the_end_has_no_end() {
        let line = LINE.replace("/109 200 2750", "/+109 200 +2750");
        let fields = read_line(&line).unwrap();
        assert_eq!((fields.duration, fields.bytes_out, fields.status), (None, None, Some(200)));
    }

    #[test]
    fn a_request_that_is_none_has_no_target() {
        let line = r#"10.0.1.2:5 [06/Feb/2009:12:14:14.655] http-in http-in/<NOSRV> -1/-1/-1/-1/3 400 187 - - PR-- 1/1/0/0/+1 0/0 "<BADREQ>""#;
        let fields = read_line(line).unwrap();
        assert!(fields.target.is_none() && fields.duration == Some(Micros(3_000)));
        assert_eq!(fields.status, Some(400));
    }

    #[test]
    fn requests_of_http_2_name_the_host() {
        let line = LINE.replace("GET /index.html HTTP/1.1", "GET https://shop.example:443/a?b HTTP/2.0");
        let fields = read_line(&line).unwrap();
        assert_eq!(
            (text(fields.host).as_deref(), text(fields.target).as_deref()),
            (Some("shop.example"), Some("/a?b"))
        );
    }

    #[test]
    fn escapes_are_those_of_haproxy() {
        for (request, target) in [(r"GET /a#22\ HTTP/1.1", "/a\"\\"), ("GET /caf#C3#A9 HTTP/1.1", "/café")] {
            let line = LINE.replace("GET /index.html HTTP/1.1", request);
            assert_eq!(text(read_line(&line).unwrap().target).as_deref(), Some(target));
        }
        let line = LINE.replace('"', "\\\"");
        assert_eq!(text(read_line(&line).unwrap().target).as_deref(), Some("/index.html"));
    }

    #[test]
    fn more_columns_may_follow() {
        let line = format!("{LINE} 0/0/0/0/0 shop.example/TLSv1.3/TLS_AES_256_GCM_SHA384");
        assert_eq!(text(read_line(&line).unwrap().target).as_deref(), Some("/index.html"));
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in/1: SSL handshake failure",
            "10.0.1.2:33313 [06/Feb/2009:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0",
            r#"10.0.1.2 - - [06/Feb/2009:12:14:14 +0000] "GET / HTTP/1.1" 200 2750 "-" "-""#,
            "Proxy http-in started.",
            "",
        ] {
            assert_eq!(read_line(line).err(), Some(ProblemKind::NotReadable), "{line}");
        }
    }

    /// A line that breaks off has no request: the program that wrote it may bound its length.
    #[test]
    fn a_line_that_is_cut_is_none() {
        for cut in 0..LINE.len() {
            assert_eq!(read_line(&LINE[..cut]).err(), Some(ProblemKind::NotReadable), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_mutation_is_read_without_panic(at in 0..LINE.len(), byte: u8) {
            let mut bytes = LINE.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = read(&bytes, &mut LineFields::default());
        }
    }
}
