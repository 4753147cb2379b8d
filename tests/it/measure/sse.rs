//! Values in the events of a stream.

use tollgate::measure::Reading::{self, Absent, Unreadable, Value};

use crate::harness::body_scan::{scan, scan_cut, sse};

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
