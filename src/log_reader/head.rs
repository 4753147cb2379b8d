//! Writes the head of a logged request. No byte of a log can make another line of it.

use std::ops::Range;

use super::fields::LineFields;
use super::problems::ProblemKind;
use super::text::LoggedText;
use crate::http1::request::MAX_FIELDS;
use crate::http1::syntax::{is_named, is_target, is_token, is_value};

/// Header lines beside those of the log: host, user-agent, referer, content-length.
const OTHER_LINES: usize = 4;
/// Headers that are not taken from a log: the head has its own, they would change its framing, or they name the client.
const LEFT_OUT: [&[u8]; 10] = [
    b"host",
    b"content-length",
    b"transfer-encoding",
    b"connection",
    b"upgrade",
    b"expect",
    b"te",
    b"trailer",
    b"x-forwarded-for",
    b"forwarded",
];

/// Replaces `head` by the head of the request. A request without a host is one of HTTP/1.0, which needs none.
///
/// # Errors
///
/// A method, target or value that no client can send.
pub(super) fn write_head(
    head: &mut Vec<u8>,
    fields: &LineFields<'_>,
    default_host: Option<&str>,
) -> Result<(), ProblemKind> {
    head.clear();
    fields.method.unwrap_or(LoggedText::plain(b"GET")).write_to(head);
    if head.is_empty() || !head.iter().all(|&byte| is_token(byte)) {
        return Err(ProblemKind::NoRequest);
    }
    head.push(b' ');
    let authority = write_target(head, fields.target.ok_or(ProblemKind::NoRequest)?)?;
    let host = match &authority {
        Some(authority) => Some(LoggedText::plain(authority)),
        None => fields.host.or_else(|| default_host.map(|host| LoggedText::plain(host.as_bytes()))),
    };
    match host {
        Some(host) => {
            head.extend_from_slice(b" HTTP/1.1\r\n");
            let value = write_line(head, b"host", host)?;
            let is_host = |byte: &u8| byte.is_ascii_graphic() || *byte >= 0x80;
            if !head.get(value).is_some_and(|host| host.iter().all(is_host)) {
                return Err(ProblemKind::NoRequest);
            }
        }
        None => head.extend_from_slice(b" HTTP/1.0\r\n"),
    }
    write_headers(head, fields)?;
    if let Some(length) = fields.bytes_in.filter(|length| *length > 0) {
        let mut digits = itoa::Buffer::new();
        write_line(head, b"content-length", LoggedText::plain(digits.format(length).as_bytes()))?;
    }
    head.extend_from_slice(b"\r\n");
    Ok(())
}

fn write_headers(head: &mut Vec<u8>, fields: &LineFields<'_>) -> Result<(), ProblemKind> {
    let named: [(&[u8], _); 2] = [(b"user-agent", fields.user_agent), (b"referer", fields.referer)];
    for (name, value) in named {
        if let Some(value) = value.and_then(LoggedText::known) {
            write_line(head, name, value)?;
        }
    }
    for (name, value) in fields.headers.iter().take(MAX_FIELDS - OTHER_LINES) {
        let (name, Some(value)) = (name.raw(), value) else { continue };
        let is_named_field = named.iter().any(|(own, value)| value.is_some() && is_named(name, own));
        if is_named_field || LEFT_OUT.iter().any(|other| is_named(name, other)) {
            continue;
        }
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return Err(ProblemKind::NoRequest);
        }
        write_line(head, name, *value)?;
    }
    Ok(())
}

/// Writes the target as a path with its query, and returns the authority that it had. Bytes beyond ASCII are
/// percent-encoded: some servers take them as they are.
fn write_target(head: &mut Vec<u8>, target: LoggedText<'_>) -> Result<Option<Vec<u8>>, ProblemKind> {
    let start = head.len();
    target.write_to(head);
    let written = head.get(start..).unwrap_or_default();
    if !is_target(written) {
        let bytes = head.split_off(start);
        for &byte in &bytes {
            match byte {
                b'#' => return Err(ProblemKind::NoRequest),
                b'!'..=b'~' => head.push(byte),
                0x80.. => {
                    head.push(b'%');
                    head.extend([byte >> 4, byte & 15].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]));
                }
                _ => return Err(ProblemKind::NoRequest),
            }
        }
    }
    let written = head.get(start..).unwrap_or_default();
    match written {
        [b'/', ..] | b"*" => Ok(None),
        _ => {
            let after = without_scheme(written).ok_or(ProblemKind::NoRequest)?;
            let length = after.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after.len());
            let (authority, path) = after.split_at_checked(length).ok_or(ProblemKind::NoRequest)?;
            let (authority, path) = (authority.to_vec(), path.to_vec());
            head.truncate(start);
            if path.first() != Some(&b'/') {
                head.push(b'/');
            }
            head.extend_from_slice(&path);
            if authority.is_empty() { Err(ProblemKind::NoRequest) } else { Ok(Some(authority)) }
        }
    }
}

fn without_scheme(target: &[u8]) -> Option<&[u8]> {
    [b"http://".as_slice(), b"https://"].into_iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Writes a header line. Returns where its value is.
fn write_line(head: &mut Vec<u8>, name: &[u8], value: LoggedText<'_>) -> Result<Range<usize>, ProblemKind> {
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    let start = head.len();
    value.write_to(head);
    let end = head.len();
    let written = head.get(start..).unwrap_or_default();
    if !is_value(written) {
        return Err(ProblemKind::NoRequest);
    }
    head.extend_from_slice(b"\r\n");
    Ok(start..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http1::request::RequestHead;

    fn fields<'l>(method: &'l str, target: &'l str, host: &'l str, agent: &'l str) -> LineFields<'l> {
        let text = |text: &'l str| Some(LoggedText::escaped(text.as_bytes()));
        LineFields {
            method: text(method),
            target: text(target),
            host: text(host),
            user_agent: text(agent),
            ..LineFields::default()
        }
    }

    fn written(fields: &LineFields<'_>) -> Option<String> {
        let mut head = b"old".to_vec();
        write_head(&mut head, fields, None).ok()?;
        String::from_utf8(head).ok()
    }

    #[test]
    fn a_head_is_that_of_a_client() {
        let mut fields = fields("POST", "/a?b=c", "example.com", "curl/8");
        fields.bytes_in = Some(7);
        fields.headers.push((LoggedText::plain(b"X-Tenant"), Some(LoggedText::plain(b"a"))));
        fields.headers.push((LoggedText::plain(b"X-Forwarded-For"), Some(LoggedText::plain(b"192.0.2.1"))));
        fields.headers.push((LoggedText::plain(b"X-Absent"), None));
        let head = "POST /a?b=c HTTP/1.1\r\nhost: example.com\r\nuser-agent: curl/8\r\nX-Tenant: a\r\ncontent-length: 7\r\n\r\n";
        assert_eq!(written(&fields).as_deref(), Some(head));
    }

    #[test]
    fn an_absolute_target_names_the_host() {
        let found = written(&fields("GET", "http://a.example?x", "b.example", "-"));
        assert_eq!(found.as_deref(), Some("GET /?x HTTP/1.1\r\nhost: a.example\r\n\r\n"));
    }

    #[test]
    fn bytes_beyond_ascii_are_encoded_in_targets() {
        let found = written(&fields("GET", r"/caf\xc3\xa9", "a", "-"));
        assert_eq!(found.as_deref(), Some("GET /caf%C3%A9 HTTP/1.1\r\nhost: a\r\n\r\n"));
    }

    #[test]
    fn no_escape_makes_another_line() {
        for (method, target, host, agent) in [
            (r"GET\r\n", "/", "a", "b"),
            ("GET", r"/\r\nx: y", "a", "b"),
            ("GET", "/", r"a\u000d\u000ax: y", "b"),
            ("GET", "/", r"a b", "b"),
            ("GET", "/", "a", r"b\nx: y"),
            ("GET", "/", "a", r"b\u0000"),
            ("GET", "example.com:443", "a", "b"),
            ("", "/", "a", "b"),
            ("GET", "", "a", "b"),
        ] {
            assert_eq!(
                written(&fields(method, target, host, agent)),
                None,
                "{method} {target} {host} {agent}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_head_has_the_lines_that_it_should(
            [method, target, host, agent] in prop::array::uniform4(r"([ -~]|\\r|\\n|\\x0[0ad]|\\u000[ad0]){0,12}"),
        ) {
            let text = format!("/{target}");
            if let Some(head) = written(&fields(&method, &text, &host, &agent)) {
                prop_assert!(head.ends_with("\r\n\r\n"));
                prop_assert!((3..=4).contains(&head.matches("\r\n").count()));
                prop_assert_eq!(head.matches(['\r', '\n', '\0']).count(), head.matches("\r\n").count() * 2);
                if let Ok(parsed) = RequestHead::parse(head.as_bytes(), &mut Vec::new()) {
                    prop_assert_eq!(parsed.length, head.len());
                }
            }
        }
    }
}
