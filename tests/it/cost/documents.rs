//! Streams of documents: lists whose elements are documents, and lines of JSON.

use crate::harness::api::{samples_with, sum};
use crate::harness::body_scan::{CODINGS, coded};
use crate::harness::metered::{a_day, begin, comes_to_use, metered, parrot, request, used};
use crate::harness::{Backend, Client, Gateway};

const GEMINI: &str = "{ reserve = 100, settle = [\"json:/usageMetadata/totalTokenCount\", \
     \"sse:/usageMetadata/totalTokenCount\"], missing = 70 }";
const OLLAMA: &str =
    "{ reserve = 100, settle = [\"json:/prompt_eval_count\", \"json:/eval_count\"], missing = 70 }";
const BESIDE_TRAILER: &str = "{ reserve = 100, settle = [\"json:/n\", \"trailer:x-cost\"], missing = 70 }";
const SECOND: &str = "{ reserve = 100, settle = \"json:/1/n\", missing = 70 }";
const COSTS: [&str; 4] = [GEMINI, OLLAMA, BESIDE_TRAILER, SECOND];
/// The routes of these costs.
const GEMINI_ROUTE: usize = 0;
const OLLAMA_ROUTE: usize = 1;
const TRAILER_ROUTE: usize = 2;
const SECOND_ROUTE: usize = 3;

const JSON: &str = "application/json; charset=UTF-8";
const LINES: &str = "application/x-ndjson";

/// Elements of Gemini's list.
const FIRST: &str =
    "[{\"candidates\":[{\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":9}}\n";
const LAST: &str =
    ",\r\n{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"totalTokenCount\":31}}\n";
/// Ollama's lines.
const PART: &str = "{\"model\":\"tea\",\"response\":\"All\",\"done\":false}\n";
const DONE: &str =
    "{\"model\":\"tea\",\"response\":\"\",\"done\":true,\"prompt_eval_count\":26,\"eval_count\":8}\n";

fn start() -> (Backend, Gateway) {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &COSTS, &a_day(1_000_000), ""));
    (backend, gateway)
}

/// A body in chunks of this length.
fn chunked(content_type: &str, coding: &str, body: &[u8], piece: usize) -> Vec<u8> {
    let coding = if coding.is_empty() { String::new() } else { format!("content-encoding: {coding}\r\n") };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{coding}transfer-encoding: chunked\r\n\r\n"
    );
    let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    [head.into_bytes(), body.chunks(piece).flat_map(chunk).collect(), b"0\r\n\r\n".to_vec()].concat()
}

/// A stream that goes on with a line feed when the backend's gate opens, and does not end then.
fn stream(content_type: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n|1\r\n\n\r\n",
        body.len()
    );
    head.into_bytes()
}

#[test]
fn a_whole_stream_costs_what_its_last_value_says() {
    let (_backend, gateway) = start();
    let list = format!("{FIRST}{LAST}]");
    let lines = format!("{PART}{PART}{DONE}");
    let mut client = Client::connect(gateway.addr());
    for (number, (route, content_type, body, cost, word)) in [
        (GEMINI_ROUTE, JSON, &*list, 31, "measured"),
        (GEMINI_ROUTE, JSON, &format!("{FIRST}]"), 9, "measured"),
        (GEMINI_ROUTE, "text/plain", &list, 31, "measured"),
        (GEMINI_ROUTE, LINES, &list.replace(['\r', '\n'], ""), 31, "measured"),
        (GEMINI_ROUTE, JSON, "[]", 70, "missing"),
        (GEMINI_ROUTE, JSON, "[{\"error\":{\"code\":429}}]", 70, "missing"),
        (GEMINI_ROUTE, JSON, &list.replace("31", "\"31\""), 70, "unreadable"),
        // Without its end, and no JSON from some place on: what was complete before.
        (GEMINI_ROUTE, JSON, &list[..list.len() - 1], 31, "measured"),
        (GEMINI_ROUTE, JSON, &list[..list.len() - 3], 9, "measured"),
        (GEMINI_ROUTE, JSON, &format!("{FIRST}what?"), 9, "measured"),
        (GEMINI_ROUTE, JSON, "[what?", 70, "unreadable"),
        (SECOND_ROUTE, JSON, "[{\"n\":1},{\"n\":2},{\"n\":3}]", 2, "measured"),
        (OLLAMA_ROUTE, LINES, &lines, 34, "measured"),
        (OLLAMA_ROUTE, "application/jsonl", &lines, 34, "measured"),
        (OLLAMA_ROUTE, JSON, &lines, 34, "measured"),
        (OLLAMA_ROUTE, "", &lines, 34, "measured"),
        (OLLAMA_ROUTE, JSON, DONE, 34, "measured"),
        (OLLAMA_ROUTE, LINES, PART, 70, "missing"),
        (OLLAMA_ROUTE, LINES, "{\"error\":\"no such model\"}\n", 70, "missing"),
        (OLLAMA_ROUTE, LINES, &lines[..lines.len() - 1], 34, "measured"),
        (OLLAMA_ROUTE, LINES, &lines[..lines.len() - 2], 70, "missing"),
        (OLLAMA_ROUTE, LINES, &format!("{lines}what?"), 34, "measured"),
        // Lines after the last one count.
        (OLLAMA_ROUTE, LINES, &format!("{DONE}{}", DONE.replace("26", "50")), 58, "measured"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{number}");
        client
            .exchange(request(route, &name, "", &chunked(content_type, "", body.as_bytes(), 1 << 20)))
            .expect(200);
        assert_eq!(used(&gateway, &name), cost, "{content_type} {body:?}");
        let line = gateway.access_log(number + 1).remove(number);
        assert_eq!(line["settlement"].as_str(), Some(word), "{body:?} {line}");
    }
}

/// Each chunk's boundary, and each coding: the client gets the body as it was, and the cost is the same.
#[test]
fn a_stream_costs_the_same_in_any_chunks_and_codings() {
    let (_backend, gateway) = start();
    let mut client = Client::connect(gateway.addr());
    for (route, content_type, body, cost) in [
        (GEMINI_ROUTE, JSON, format!("{FIRST}{LAST}]"), 31),
        (OLLAMA_ROUTE, LINES, format!("{PART}{DONE}"), 34),
    ] {
        let mut sum = 0;
        let name = format!("c{route}");
        for coding in [""].into_iter().chain(CODINGS) {
            let coded =
                if coding.is_empty() { body.clone().into_bytes() } else { coded(coding, body.as_bytes()) };
            for piece in 1..=coded.len() {
                let response = chunked(content_type, coding, &coded, piece);
                let answer = client.exchange(request(route, &name, "", &response)).expect(200);
                assert_eq!(answer.body, coded, "{coding} by {piece}");
                sum += cost;
            }
            assert_eq!(used(&gateway, &name), sum, "{coding}");
        }
    }
}

/// The client leaves after it has got all of this, and the backend has not ended the stream.
fn leave_after(route: usize, content_type: &str, body: &str) -> (Gateway, serde_json::Value) {
    let (backend, gateway) = start();
    let mut client = begin(&gateway, route, "a", "x-then: gate\r\n", &stream(content_type, body));
    client.read_head().expect("a head");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(body) {
        let some = client.read_some(usize::MAX);
        assert!(!some.is_empty(), "the stream ends after {read:?}");
        read.extend_from_slice(&some);
    }
    assert_eq!(used(&gateway, "a"), 100, "{body}");
    client.reset();
    // The gateway notices it when it writes.
    std::thread::sleep(std::time::Duration::from_millis(50));
    backend.open_gate();
    let line = gateway.access_log(1).remove(0);
    comes_to_use(&gateway, "a", line["settled"].as_u64().expect("it is settled"));
    (gateway, line)
}

#[test]
fn a_client_that_leaves_a_stream_pays_at_least_what_is_missing() {
    let large = FIRST.replace('9', "95");
    for (route, content_type, body, cost, word) in [
        // A later document may have a larger value.
        (GEMINI_ROUTE, JSON, FIRST, 70, "incomplete"),
        (GEMINI_ROUTE, JSON, &*large, 95, "incomplete"),
        (GEMINI_ROUTE, JSON, &format!("{large}{}", &LAST[..LAST.len() - 2]), 95, "incomplete"),
        (GEMINI_ROUTE, JSON, &format!("{FIRST}{LAST}"), 70, "incomplete"),
        (GEMINI_ROUTE, JSON, "[", 70, "incomplete"),
        // The list is whole, so it is as any whole document.
        (GEMINI_ROUTE, JSON, &format!("{FIRST}{LAST}]"), 31, "measured"),
        (GEMINI_ROUTE, JSON, &format!("{FIRST}]{{"), 70, "incomplete"),
        // A document that may be the only one: its values are known.
        (GEMINI_ROUTE, JSON, "{\"usageMetadata\":{\"totalTokenCount\":31},", 31, "measured"),
        (GEMINI_ROUTE, LINES, "{\"usageMetadata\":{\"totalTokenCount\":31}}\n", 70, "incomplete"),
        (OLLAMA_ROUTE, LINES, PART, 70, "incomplete"),
        (OLLAMA_ROUTE, LINES, &format!("{PART}{}", &DONE[..DONE.len() - 2]), 70, "incomplete"),
        (OLLAMA_ROUTE, LINES, &format!("{DONE}{{"), 70, "incomplete"),
        // Its content type does not say that it has lines.
        (OLLAMA_ROUTE, JSON, &format!("{PART}{DONE}"), 70, "incomplete"),
        (TRAILER_ROUTE, LINES, "{\"n\":5,\"done\":true}\n", 70, "incomplete"),
    ] {
        let (_gateway, line) = leave_after(route, content_type, body);
        assert_eq!(
            (line["settled"].as_u64(), line["settlement"].as_str()),
            (Some(cost), Some(word)),
            "{body:?}"
        );
    }
}

#[test]
fn a_client_that_leaves_after_the_last_line_pays_what_was_measured() {
    for (body, cost) in [
        (format!("{PART}{DONE}"), 34),
        // Some clients leave at the text itself.
        (format!("{PART}{}", DONE.trim_end()), 34),
        (format!("{PART}{{\"done\":true}}\n"), 70),
    ] {
        let (gateway, line) = leave_after(OLLAMA_ROUTE, LINES, &body);
        assert_eq!(
            (line["settled"].as_u64(), &line["error"]),
            (Some(cost), &serde_json::Value::Null),
            "{line}"
        );
        let samples = samples_with(&gateway, 1);
        assert_eq!(sum(&samples["all"]["failed"]), 0, "{samples}");
    }
}
