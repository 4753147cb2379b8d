//! What is asserted of lines of access logs.

use tollgate::http1::request::RequestHead;
use tollgate::limit::units::Micros;
use tollgate::log_reader::request::LoggedRequest;
use tollgate::log_reader::{FieldMap, LogFormat, LogOptions, ProblemKind, read_line};

fn read(line: &[u8], format: LogFormat, map: Option<FieldMap>) -> Result<LoggedRequest, Option<ProblemKind>> {
    let options = LogOptions {
        inputs: Vec::new(),
        format,
        map,
        host: None,
        trusted_proxies: Vec::new(),
        reorder: Micros(0),
        from: None,
        to: None,
    };
    let found = read_line(line, &options);
    if let Ok(request) = &found {
        assert_one_head(&request.head);
    }
    found
}

/// No byte of a line makes another line of the head, or another head behind it.
fn assert_one_head(head: &[u8]) {
    assert!(head.ends_with(b"\r\n\r\n"), "{}", head.escape_ascii());
    for line in head.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!line.iter().any(|byte| matches!(byte, b'\r' | 0)), "{}", head.escape_ascii());
    }
    let empty = head.windows(4).filter(|window| *window == b"\r\n\r\n").count();
    assert_eq!(empty, 1, "{}", head.escape_ascii());
    // A head that the grammar refuses is answered with 400 in a replay, as the gateway answers it.
    if let Ok(parsed) = RequestHead::parse(head, &mut Vec::new()) {
        assert_eq!(parsed.length, head.len());
    }
}

/// Of any line each format makes one request head or none. The format that is found out is one of those.
pub(crate) fn log_line(data: &[u8]) {
    let line = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let named = LogFormat::ALL.iter().filter(|format| **format != LogFormat::Auto);
    let mut heads = named.filter_map(|format| read(line, *format, None).ok()).map(|request| request.head);
    if let Ok(request) = read(line, LogFormat::Auto, None) {
        assert!(heads.any(|head| head == request.head), "a format reads it: {}", line.escape_ascii());
    }
    heads.for_each(drop);
}

/// A map is read, or refused with a remedy; with it any line makes one request head or none. The first line is the map.
pub(crate) fn field_map(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let Ok(text) = std::str::from_utf8(parts.next().unwrap_or_default()) else { return };
    match FieldMap::parse(text) {
        Ok(map) => drop(read(parts.next().unwrap_or_default(), LogFormat::Auto, Some(map))),
        Err(fault) => assert!(!fault.what.is_empty() && !fault.remedy.is_empty(), "{text}"),
    }
}
