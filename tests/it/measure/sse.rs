//! Values in the events of a stream.

use tollgate::measure::Reading::{self, Absent, Unreadable, Value};
use tollgate::measure::{BodyScanner, TerminalEvents};

use crate::harness::body_scan::{CODINGS, coded, scan, scan_cut, sse};

fn check(rows: &[(&str, Reading)]) {
    for (stream, expected) in rows {
        assert_eq!(scan_cut(&sse("/usage/n"), "", stream.as_bytes()), *expected, "{stream:?}");
        // Other line ends mean the same, unless the stream has its own.
        if !stream.contains('\r') {
            for end in ["\r\n", "\r"] {
                let other = stream.replace('\n', end);
                assert_eq!(scan_cut(&sse("/usage/n"), "", other.as_bytes()), *expected, "{other:?}");
            }
        }
    }
}

#[test]
fn the_last_event_that_has_it_counts() {
    check(&[
        ("data: {\"usage\":{\"n\":1}}\n\n", Value(1)),
        ("data: {\"usage\":{\"n\":1}}\n\ndata: {\"usage\":{\"n\":2}}\n\n", Value(2)),
        ("data: {\"usage\":{\"n\":1}}\n\ndata: {\"x\":2}\n\ndata: [DONE]\n\n", Value(1)),
        ("data: {\"usage\":null}\n\ndata: {\"usage\":{\"n\":3}}\n\ndata: {\"usage\":null}\n\n", Value(3)),
        ("data: {\"usage\":{\"n\":1}}\n\ndata: {\"usage\":{\"n\":\"x\"}}\n\n", Unreadable),
        ("data: {\"usage\":{\"n\":\"x\"}}\n\ndata: {\"usage\":{\"n\":1}}\n\n", Value(1)),
        ("data: ping\n\ndata: [DONE]\n\n", Absent),
        ("", Absent),
    ]);
}

#[test]
fn an_event_counts_once_it_is_complete() {
    check(&[
        ("data: {\"usage\":{\"n\":1}}", Absent),
        ("data: {\"usage\":{\"n\":1}}\n", Absent),
        ("data: {\"usage\":{\"n\":1}}\n\ndata: {\"usage\":{\"n\":2}}\n", Value(1)),
    ]);
}

#[test]
fn fields_comments_and_line_ends_are_read_as_the_standard_says() {
    check(&[
        (": hello\nid: 7\nevent: message_delta\nretry: 10\ndata: {\"usage\":{\"n\":1}}\n\n", Value(1)),
        ("data:{\"usage\":{\"n\":1}}\n\n", Value(1)),
        ("data:   {\"usage\":{\"n\":1}}\n\n", Value(1)),
        ("\u{feff}data: {\"usage\":{\"n\":1}}\n\n", Value(1)),
        ("\u{feff}\u{feff}data: {\"usage\":{\"n\":1}}\n\n", Absent),
        (" data: {\"usage\":{\"n\":1}}\n\n", Absent),
        ("Data: {\"usage\":{\"n\":1}}\n\n", Absent),
        ("datas: {\"usage\":{\"n\":1}}\n\n", Absent),
        ("data : {\"usage\":{\"n\":1}}\n\n", Absent),
        ("dat: {\"usage\":{\"n\":1}}\n\n", Absent),
        (":data: {\"usage\":{\"n\":1}}\n\n", Absent),
        ("data: {\"usage\":{\"n\":1}}\r\n\r\ndata: {\"usage\":{\"n\":2}}\n\n", Value(2)),
        ("data: {\"usage\":{\"n\":1}}\r\n\r", Value(1)),
        ("data: {\"usage\":{\"n\":1}}\r\n", Absent),
        ("\n\n\ndata: {\"usage\":{\"n\":1}}\n\n\n", Value(1)),
    ]);
}

#[test]
fn lines_of_data_are_joined_by_a_line_feed() {
    check(&[
        ("data: {\"usage\":\ndata: {\"n\":\ndata: 1}}\n\n", Value(1)),
        ("data: {\"usage\":\nid: 4\ndata\ndata:\n: x\ndata: {\"n\":1}}\n\n", Value(1)),
        ("data: {\"usage\":{\"n\":1\ndata: 2}}\n\n", Value(1)),
        ("data: {\"usage\":{\"n\":1\n\ndata: 2}}\n\n", Absent),
        ("data: {\"usage\":{\"n\"\n\ndata: :2}}\n\n", Absent),
        ("data: {\"us\ndata: age\":{\"n\":1}}\n\n", Absent),
    ]);
    let number = scan_cut(&sse(""), "", b"data: 12\n\ndata: x\n\n");
    assert_eq!(number, Value(12));
}

#[test]
fn an_event_of_any_size_is_read() {
    let stream = format!(
        "data: {{\"x\":\"{}\",\ndata: \"usage\":{{\"n\":5}}}}\n\nevent: {}\n\n",
        "y".repeat(3_000_000),
        "z".repeat(3_000_000)
    );
    assert_eq!(scan(&[sse("/usage/n")], "", stream.as_bytes().chunks(16_000)), [Value(5)]);
}

#[test]
fn two_values_of_different_events_are_found() {
    let stream = "event: message_start\ndata: {\"message\":{\"usage\":{\"in\":25,\"out\":1}}}\n\n\
        event: message_delta\ndata: {\"usage\":{\"out\":15}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let sources = [sse("/message/usage/in"), sse("/usage/out")];
    for piece in [1, 3, 1_000] {
        assert_eq!(scan(&sources, "", stream.as_bytes().chunks(piece)), [Value(25), Value(15)]);
    }
}

/// What is found of `/n` up to a terminal event, whether there was one, and whether a client may leave at the end.
fn scan_to_end(coding: &str, body: &[u8], piece: usize) -> (Reading, bool, bool) {
    let events = TerminalEvents::with(["bye".to_owned(), "byes".to_owned()]);
    let mut scanner = BodyScanner::new([sse("/n")].into(), coding.as_bytes()).until(events);
    body.chunks(piece).for_each(|piece| scanner.scan(piece));
    (scanner.finish(true)[0], scanner.has_ended(), scanner.is_at_end())
}

#[test]
fn a_terminal_event_ends_the_scan() {
    for (stream, expected) in [
        ("data: {\"n\":1}\n\ndata: [DONE]\n\ndata: {\"n\":2}\n\n", (Value(1), true, true)),
        ("data: {\"n\":1}\n\ndata:[DONE]\n", (Value(1), false, true)),
        ("data: {\"n\":1}\n\ndata: [DONE]", (Value(1), false, true)),
        ("data: {\"n\":1}\n\ndata: [DONE", (Value(1), false, false)),
        ("data: {\"n\":1}\n\ndata: [DONE] \n\n", (Value(1), false, false)),
        ("data: {\"n\":1}\n\ndata:  [DONE]\n\n", (Value(1), false, false)),
        ("data: {\"n\":1}\n\ndata: [DONE]\ndata: \n\n", (Value(1), false, false)),
        ("data: {\"n\":1}\n\n: [DONE]\n\n", (Value(1), false, false)),
        ("id: [DONE]\ndata: {\"n\":1}\n\n", (Value(1), false, false)),
        // The terminal event itself counts, wherever its name stands.
        ("event: message_stop\ndata: {\"n\":3}\n\ndata: {\"n\":4}\n\n", (Value(3), true, true)),
        ("data: {\"n\":3}\nevent:response.completed\n\ndata: {\"n\":4}\n\n", (Value(3), true, true)),
        ("event: response.failed\n\ndata: {\"n\":4}\n\n", (Absent, true, true)),
        ("event: message_stop\ndata: {\"n\":3}\n", (Absent, false, false)),
        // A name is that of one event, and the last of several counts.
        ("event: message_stop\nevent: ping\ndata: {\"n\":3}\n\n", (Value(3), false, false)),
        ("event: message_stop\nevent\ndata: {\"n\":3}\n\n", (Value(3), false, false)),
        ("event: message_stop\nevent:\ndata: {\"n\":3}\n\n", (Value(3), false, false)),
        ("event: message_delta\ndata: {\"n\":3}\n\n: x\n\n", (Value(3), false, false)),
        ("events: message_stop\ndata: {\"n\":3}\n\n", (Value(3), false, false)),
        ("even: message_stop\ndata: {\"n\":3}\n\n", (Value(3), false, false)),
        // Those of the file, of which one begins as another does.
        ("event: bye\ndata: {\"n\":5}\n\n", (Value(5), true, true)),
        ("event: byes\ndata: {\"n\":6}\n\n", (Value(6), true, true)),
        ("event: byeses\ndata: {\"n\":7}\n\n", (Value(7), false, false)),
        ("data: {\"n\":8}\n\ndata: bye\n\n", (Value(8), true, true)),
        ("", (Absent, false, false)),
    ] {
        for piece in [1, 2, 3, 7, 1_000] {
            for end in ["\n", "\r\n", "\r"] {
                let body = stream.replace('\n', end);
                assert_eq!(scan_to_end("", body.as_bytes(), piece), expected, "{body:?} by {piece}");
            }
        }
        for coding in CODINGS.into_iter().filter(|_| expected.1) {
            let body = coded(coding, stream.as_bytes());
            assert_eq!(scan_to_end(coding, &body, 5), expected, "{stream:?} in {coding}");
        }
    }
}

/// Without terminal events nothing ends a stream: the values of its last events count.
#[test]
fn without_terminal_events_a_stream_is_read_to_its_end() {
    let stream = b"data: {\"n\":1}\n\ndata: [DONE]\n\nevent: message_stop\ndata: {\"n\":2}\n\n";
    assert_eq!(scan(&[sse("/n")], "", [&stream[..]]), [Value(2)]);
}
