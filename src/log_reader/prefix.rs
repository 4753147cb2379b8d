//! What other programs write in front of the lines of a server: syslog, journald, `docker compose logs`, CRI (the log files
//! of Kubernetes). For example, each of these lines is one of nginx after a prefix:
//!
//! ```text
//! <190>Nov 27 15:00:00 host nginx: 192.0.2.7 - - [27/Nov/2026:15:00:00 +0000] "GET / HTTP/1.1" …
//! web-1  | 192.0.2.7 - - [27/Nov/2026:15:00:00 +0000] "GET / HTTP/1.1" …
//! 2026-11-27T15:00:00.123456789Z stdout F 192.0.2.7 - - [27/Nov/2026:15:00:00 +0000] "GET / HTTP/1.1" …
//! ```
//!
//! A prefix is left out before a format reads the line: its first column may be an address, which is not that of a client,
//! and its time is that of the collector. No line of a supported format begins as a prefix does.

use super::columns::{blanks, word};
use super::time::{client, month, rfc3339};

/// Prefixes of one line: of a container runtime, of syslog, and of what is between them.
const MAX_PREFIXES: usize = 6;

/// The line of the server.
pub(super) fn without_prefixes(line: &[u8]) -> &[u8] {
    let mut rest = line;
    for _ in 0..MAX_PREFIXES {
        match after_prefix(rest) {
            Some(after) => rest = after,
            None => break,
        }
    }
    rest
}

fn after_prefix(line: &[u8]) -> Option<&[u8]> {
    let found = match line {
        [b'{' | b'[' | b'"' | b' ', ..] => return None,
        [b'<', ..] => after_priority(line),
        [b'A'..=b'Z', ..] => after_syslog_date(line),
        [b'0'..=b'9', _, _, _, b'-', ..] => after_timestamp(line),
        _ => None,
    };
    found.or_else(|| after_service(line))
}

/// `<134>` of syslog, and the header of RFC 5424 after it.
fn after_priority(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"<")?;
    let (digits, rest) = rest.split_at_checked(memchr::memchr(b'>', rest.get(..4).unwrap_or(rest))?)?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let message = rest.get(1..).filter(|_| is_number)?;
    Some(message.strip_prefix(b"1 ").and_then(after_syslog_header).unwrap_or(message))
}

/// `2026-11-27T15:00:00Z host app pid id - `, of which any column may be `-` (RFC 5424, section 6).
fn after_syslog_header(header: &[u8]) -> Option<&[u8]> {
    let mut rest = header;
    let time = word(&mut rest).raw();
    if time != b"-" {
        rfc3339(time)?;
    }
    let _columns = [word(&mut rest), word(&mut rest), word(&mut rest), word(&mut rest)];
    let message = blanks(after_structured_data(blanks(rest))?);
    Some(message.strip_prefix("\u{feff}".as_bytes()).unwrap_or(message))
}

/// `-`, or elements such as `[id name="value"]`, in whose values a backslash is before `"`, `\` and `]`.
fn after_structured_data(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = text.strip_prefix(b"-") {
        return Some(rest);
    }
    let mut rest = text.strip_prefix(b"[")?;
    let mut is_quoted = false;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = match byte {
            b'\\' if is_quoted => after.get(1..)?,
            b']' if !is_quoted => match after.strip_prefix(b"[") {
                Some(next) => next,
                None => return Some(after),
            },
            _ => after,
        };
        is_quoted ^= byte == b'"';
    }
}

/// `Nov 27 15:00:00 host nginx[123]: ` (RFC 3164, journald), perhaps without the host.
fn after_syslog_date(line: &[u8]) -> Option<&[u8]> {
    let (date, rest) = line.split_first_chunk::<15>()?;
    let &[m1, m2, m3, b' ', d1, d2, b' ', h1, h2, b':', n1, n2, b':', s1, s2] = date else { return None };
    month([m1, m2, m3])?;
    let digits = [d2, h1, h2, n1, n2, s1, s2];
    let is_date = (d1 == b' ' || d1.is_ascii_digit()) && digits.iter().all(u8::is_ascii_digit);
    let rest = match rest {
        [b'.', decimals @ ..] => {
            let length = decimals.iter().take_while(|byte| byte.is_ascii_digit()).count();
            decimals.get(length..)?
        }
        _ => rest,
    };
    after_host_and_tag(rest.strip_prefix(b" ").filter(|_| is_date)?)
}

/// `2026-11-27T15:00:00.123456789Z `, and the stream of CRI or the host and tag of syslog after it. `docker compose logs
/// --timestamps` writes only the time.
fn after_timestamp(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    rfc3339(word(&mut rest).raw())?;
    let rest = rest.strip_prefix(b" ")?;
    let stream = || after_stream(rest).map(|part| part.text);
    stream().or_else(|| after_host_and_tag(rest)).or(Some(rest))
}

/// `host nginx[123]: `, or the tag alone.
fn after_host_and_tag(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = after_tag(text) {
        return Some(rest);
    }
    let mut rest = text;
    let host = word(&mut rest).raw();
    let is_host = !host.is_empty() && host.iter().all(|byte| byte.is_ascii_graphic() && !is_mark(*byte));
    if is_host { after_tag(blanks(rest)) } else { None }
}

/// A tag has no colon but its last byte: an address of IPv6 is none.
fn after_tag(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    let tag = word(&mut rest).raw().strip_suffix(b":")?;
    let name = match tag.strip_suffix(b"]") {
        Some(with_id) => with_id.get(..memchr::memchr(b'[', with_id)?)?,
        None => tag,
    };
    let is_name = |byte: &u8| byte.is_ascii_graphic() && *byte != b':' && !is_mark(*byte);
    (!name.is_empty() && name.iter().all(is_name)).then(|| blanks(rest))
}

/// Bytes with which JSON, text in quotes and times in brackets begin.
const fn is_mark(byte: u8) -> bool {
    matches!(byte, b'{' | b'[' | b'"')
}

/// `web-1  | `, perhaps in colour.
fn after_service(line: &[u8]) -> Option<&[u8]> {
    let rest = without_colours(line);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let (name, rest) = rest.split_at_checked(rest.iter().position(|byte| !is_name(byte))?)?;
    let after = without_colours(blanks(rest.strip_prefix(b" ")?)).strip_prefix(b"|")?;
    if name.is_empty() || client(name).is_some() {
        return None;
    }
    let after = without_colours(after);
    Some(without_colours(after.strip_prefix(b" ").unwrap_or(after)))
}

/// The text without the escape sequences of colours (`ESC [ … m`) that it begins with.
fn without_colours(mut text: &[u8]) -> &[u8] {
    while let Some(codes) = text.strip_prefix(b"\x1b[") {
        let length = codes.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'));
        match length.and_then(|length| codes.get(length..)) {
            Some([b'm', rest @ ..]) => text = rest,
            _ => return text,
        }
    }
    text
}

/// The stream of a container that a line is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerStream {
    Output,
    Error,
}

/// A line of a container, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContainerLine<'l> {
    pub(super) stream: ContainerStream,
    /// The line goes on with the next line of its stream.
    pub(super) is_part: bool,
    pub(super) text: &'l [u8],
}

/// Reads a line as container runtimes write it (CRI): `2026-11-27T15:00:00.123456789Z stdout F text`, with `P` in place of
/// `F` for a part that is not the last one.
pub(super) fn container_line(line: &[u8]) -> Option<ContainerLine<'_>> {
    if !matches!(line, [b'0'..=b'9', _, _, _, b'-', ..]) {
        return None;
    }
    let mut rest = line;
    rfc3339(word(&mut rest).raw())?;
    after_stream(rest.strip_prefix(b" ")?)
}

fn after_stream(text: &[u8]) -> Option<ContainerLine<'_>> {
    let (stream, rest) = match (text.strip_prefix(b"stdout "), text.strip_prefix(b"stderr ")) {
        (Some(rest), _) => (ContainerStream::Output, rest),
        (None, rest) => (ContainerStream::Error, rest?),
    };
    let (tags, text) = rest.split_at_checked(memchr::memchr(b' ', rest).unwrap_or(rest.len()))?;
    let is_part = match tags {
        [b'P'] | [b'P', b':', ..] => true,
        [b'F'] | [b'F', b':', ..] => false,
        _ => return None,
    };
    Some(ContainerLine { stream, is_part, text: text.strip_prefix(b" ").unwrap_or(text) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326"#;
    /// As programs write them; addresses and times in them are not those of the request.
    const PREFIXES: [&str; 30] = [
        "Nov 27 15:00:00 host nginx[123]: ",
        "Nov  7 15:00:00 10.0.0.5 nginx: ",
        "Nov 27 15:00:00.123456 host nginx[1]: ",
        "Nov 27 15:00:00 haproxy[14389]: ",
        "Nov 27 15:00:00 2001:db8::5 docker/web-1[7]: ",
        "<134>Nov 27 15:00:00 host nginx: ",
        "<190>Nov 27 15:00:00 nginx: ",
        "<134>",
        "<5>2026-11-27T15:00:00.123456+01:00 ",
        "<134>1 2026-11-27T15:00:00.123456+01:00 10.0.0.5 nginx 123 - - ",
        "<134>1 - - - - - - ",
        "<134>1 2026-11-27T15:00:00Z host app 1 ID47 [a@1 b=\"]\" c=\"\\\"x\\]\"][d@2] ",
        "<134>1 2026-11-27T15:00:00Z host app 1 - - \u{feff}",
        "2026-11-27T15:00:00.123456+01:00 10.0.0.5 nginx: ",
        "2026-11-27T15:00:00+0000 host nginx[123]: ",
        "2026-11-27T15:00:00,123456+0000 host nginx[123]: ",
        "2026-11-27T15:00:00.123456789Z ",
        "2026-11-27T15:00:00.123456789Z stdout F ",
        "2026-11-27T15:00:00.123456789+01:00 stderr F ",
        "2026-11-27T15:00:00.123456789Z stdout F:tag ",
        "2026-11-27T15:00:00.123456789Z stdout F Nov 27 15:00:00 host nginx[123]: ",
        "web-1  | ",
        "web_1      | ",
        "my.shop_web-1 |",
        "\x1b[36mweb-1  | \x1b[0m",
        "\x1b[36mweb_1    |\x1b[0m ",
        "\x1b[1;31mweb-1  \x1b[0m| ",
        "web-1  | 2026-11-27T15:00:00.123456789Z ",
        "web-1  | <134>Nov 27 15:00:00 haproxy[1]: ",
        "\x1b[36mweb-1  | \x1b[0m2026-11-27T15:00:00.123456789Z ",
    ];

    #[test]
    fn prefixes_are_left_out() {
        for prefix in PREFIXES {
            for line in [LINE, r#"{"time":"2026-11-27T15:00:00Z"}"#, "[2016-04-15T20:17:00.310Z] \"GET"] {
                let text = format!("{prefix}{line}");
                let found = without_prefixes(text.as_bytes());
                assert_eq!(String::from_utf8_lossy(found), line, "{text}");
            }
        }
    }

    #[test]
    fn lines_of_servers_have_none() {
        for line in [
            LINE,
            "192.0.2.7 | - [10/Oct/2000:13:55:36 -0700] ",
            "2001:db8::1 - - [10/Oct/2000:13:55:36 -0700] ",
            "2001:db8:: - - [10/Oct/2000:13:55:36 -0700] ",
            "www.example.com:443 2001:db8:: - - [10/Oct/2000:13:55:36 -0700] ",
            "192.0.2.13, 198.51.100.3 - - [10/Oct/2000:13:55:36 -0700] ",
            "web|x 192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] ",
            "web| 192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] ",
            "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1",
            "https 2018-07-02T22:23:00.186641Z app/lb/50dc 192.168.131.39:2817",
            "2026/11/27 15:04:05.123\tINFO\thttp.log.access\thandled request\t{}",
            "2026-11-27T15:04:05.123Z\tINFO\thttp.log.access\thandled request\t{}",
            "{\"a\":1}",
            "[::1]:443 192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] ",
            "<x>192.0.2.7",
            "<>192.0.2.7",
            "<1234>192.0.2.7",
            "Nov 27 15:00:00 host no tag",
            "Now 27 15:00:00 host nginx: x",
            "Nov 27 15:00:0x host nginx: x",
            "",
        ] {
            assert_eq!(String::from_utf8_lossy(without_prefixes(line.as_bytes())), line);
        }
    }

    /// With the time of a runtime in front, a line keeps its first columns.
    #[test]
    fn the_first_columns_of_a_line_are_no_host_and_tag() {
        for line in [
            "www.example.com:443 2001:db8:: - - [10/Oct/2000:13:55:36 -0700] ",
            "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1",
            "::1:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1",
            "{\"a\": \"nginx: x\"}",
            "\"a nginx: x",
        ] {
            let text = format!("2026-11-27T15:00:00.123456789Z {line}");
            assert_eq!(String::from_utf8_lossy(without_prefixes(text.as_bytes())), line);
        }
    }

    #[test]
    fn parts_of_lines_of_containers_are_told_apart() {
        let read = |text: &'static str| {
            container_line(text.as_bytes()).map(|line| (line.stream, line.is_part, line.text))
        };
        let time = "2026-11-27T15:00:00.123456789Z";
        assert_eq!(
            read("2026-11-27T15:00:00Z stdout P a "),
            Some((ContainerStream::Output, true, b"a ".as_slice()))
        );
        assert_eq!(
            read("2026-11-27T15:00:00Z stderr F  a"),
            Some((ContainerStream::Error, false, b" a".as_slice()))
        );
        assert_eq!(
            read("2026-11-27T15:00:00Z stderr F"),
            Some((ContainerStream::Error, false, b"".as_slice()))
        );
        for rest in ["", "stdout", "stdout X a", "stdin F a", "stdoutF a"] {
            assert_eq!(container_line(format!("{time} {rest}").as_bytes()), None, "{rest}");
        }
    }

    proptest! {
        #[test]
        fn what_is_left_of_any_line_is_its_end(
            prefix in prop::sample::select(PREFIXES.to_vec()),
            cut in 0..40_usize,
            bytes in prop::collection::vec(prop_oneof![Just(b'['), Just(b'"'), Just(b'\\'), Just(b' '), Just(b'|'), Just(b'<'), any::<u8>()], 0..40),
        ) {
            let line = [prefix.as_bytes().get(..cut).unwrap_or(prefix.as_bytes()), &bytes].concat();
            prop_assert!(line.ends_with(without_prefixes(&line)));
            let _ = container_line(&line);
        }
    }
}
