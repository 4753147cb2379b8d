//! What it costs to read values from a body as it streams past, and how much memory that takes.
//!
//! `cargo bench --bench measure`. The throughput is that of the decoded text: 1 GB/s is 1 ns a byte. The rows of `bomb`
//! show by their allocations that a bomb takes no more memory than a body.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that cannot be set up should stop")]

#[path = "../tests/it/harness/clients/body_scan.rs"]
#[expect(dead_code, reason = "tests use all of it")]
mod body_scan;

use divan::counter::BytesCount;
use divan::{AllocProfiler, Bencher, black_box};
use tollgate::measure::{BodySource, Reading};

use body_scan::{CODINGS, coded, json, scan, sse};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// Bytes that arrive at once.
const PIECE: usize = 16 << 10;
const ANSWER: &str = r#"{"id":"chatcmpl-9","object":"chat.completion","created":1694268190,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"The capital of France is Paris.\nIt is known for the Eiffel Tower, and for its cuisine.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":24,"completion_tokens":19,"total_tokens":43,"prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":"fp_0aa8d3e20b"}"#;
const CHUNK: &str = r#"{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello world this is text"},"logprobs":null,"finish_reason":null}]}"#;

fn main() {
    divan::main();
}

/// One document with a list of chunks before the value.
fn list() -> String {
    let items = vec![CHUNK; 5_000].join(",");
    format!("{{\"data\":[{items}],\"usage\":{{\"total_tokens\":43}}}}")
}

fn bench(bencher: Bencher<'_, '_>, source: BodySource, coding: &str, text: &str, expected: Reading) {
    let body = if coding.is_empty() { text.as_bytes().to_vec() } else { coded(coding, text.as_bytes()) };
    let sources = [source];
    assert_eq!(scan(&sources, coding, body.chunks(PIECE)), [expected]);
    bencher
        .counter(BytesCount::new(text.len()))
        .bench(|| scan(black_box(&sources), coding, black_box(&body).chunks(PIECE)));
}

#[divan::bench]
fn json_list(bencher: Bencher<'_, '_>) {
    bench(bencher, json("/usage/total_tokens"), "", &list(), Reading::Value(43));
}

/// Documents of 500 bytes, of which much is on the way.
#[divan::bench]
fn json_answers(bencher: Bencher<'_, '_>) {
    let text = format!("{ANSWER}\n").repeat(2_000);
    bench(bencher, json("/usage/total_tokens"), "", &text, Reading::Value(43));
}

/// A string of a megabyte with an escape in each line.
#[divan::bench]
fn json_text(bencher: Bencher<'_, '_>) {
    let line = "A line of text that goes on for a while, as answers of language models do.\\n";
    let text = format!("{{\"choices\":[\"{}\"],\"usage\":{{\"total_tokens\":43}}}}", line.repeat(13_000));
    bench(bencher, json("/usage/total_tokens"), "", &text, Reading::Value(43));
}

#[divan::bench]
fn events(bencher: Bencher<'_, '_>) {
    let text = format!("data: {CHUNK}\n\n").repeat(4_000) + "data: {\"usage\":{\"total_tokens\":43}}\n\n";
    bench(bencher, sse("/usage/total_tokens"), "", &text, Reading::Value(43));
}

#[divan::bench(args = CODINGS)]
fn coding(bencher: Bencher<'_, '_>, coding: &str) {
    let mut text = String::from("{\"data\":[");
    for number in 0..20_000_u64 {
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text.push_str(&format!(
            "{{\"id\":\"{hash:x}\",\"name\":\"item {number}\",\"price\":{}}},",
            hash >> 44
        ));
    }
    text.push_str("0],\"usage\":{\"total_tokens\":43}}");
    bench(bencher, json("/usage/total_tokens"), coding, &text, Reading::Value(43));
}

/// 64 MiB of blanks in a small body; the throughput counts all of them, although most are never decoded.
#[divan::bench(args = CODINGS, sample_count = 10)]
fn bomb(bencher: Bencher<'_, '_>, coding: &str) {
    let text = format!("{{\"usage\":{{\"total_tokens\":43}}{}", " ".repeat(64 << 20));
    bench(bencher, json("/usage/total_tokens"), coding, &text, Reading::Unreadable);
}
