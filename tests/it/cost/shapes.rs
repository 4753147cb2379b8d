//! Streams of all forms of models' APIs at the same time, whose chunks end anywhere: the sums are the backend's, to the
//! unit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::body_scan::{CODINGS, coded};
use crate::harness::metered::{a_day, metered, used};
use crate::harness::{Backend, Client, Gateway, Next};

const CLIENTS: usize = 50;
const REQUESTS: usize = 2_000;
const COSTS: [&str; 5] = [
    "{ reserve = 2000, settle = [\"json:/usage/total_tokens\", \"sse:/usage/total_tokens\"] }",
    "{ reserve = 2000, settle = [\"json:/usage/total_tokens\", \"sse:/response/usage/total_tokens\"] }",
    "{ reserve = 2000, settle = [\"sse:/message/usage/input_tokens\", \"sse:/usage/output_tokens\"] }",
    "{ reserve = 2000, settle = [\"json:/usageMetadata/totalTokenCount\", \"sse:/usageMetadata/totalTokenCount\"] }",
    "{ reserve = 2000, settle = [\"json:/prompt_eval_count\", \"json:/eval_count\"] }",
];
const NAMES: [&str; 5] = ["chat", "responses", "messages", "gemini", "ollama"];

/// Numbers that look random, the same for each request.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// The content type and the body of a stream, with these tokens before and after.
fn stream(shape: usize, input: usize, output: usize, parts: usize) -> (&'static str, String) {
    let sum = input + output;
    // Text that looks like usage is none.
    let text = r#"{\"usage\":{\"total_tokens\":7}}]\n\ndata: [DONE]\n"#;
    let events = "text/event-stream";
    let part = |part: usize| match shape {
        0 => format!(
            "data: {{\"choices\":[{{\"delta\":\"{text}\"}}],\"usage\":{{\"total_tokens\":{part}}}}}\n\n"
        ),
        1 => format!("event: response.output_text.delta\ndata: {{\"delta\":\"{text}\"}}\n\n"),
        2 => format!("event: content_block_delta\r\ndata: {{\"delta\":{{\"text\":\"{text}\"}}}}\r\n\r\n"),
        3 => format!(
            "{{\"candidates\":[[\"{text}\"]],\"usageMetadata\":{{\"totalTokenCount\":{part}}}}}\n,\r\n"
        ),
        _ => format!("{{\"response\":\"{text}\",\"done\":false}}\n"),
    };
    let middle: String = (0..parts).map(part).collect();
    match shape {
        0 => {
            let last = format!("data: {{\"choices\":[],\"usage\":{{\"total_tokens\":{sum}}}}}\n\n");
            (events, format!("{middle}{last}data: [DONE]\n\n"))
        }
        1 => (
            events,
            format!(
                "{middle}event: response.completed\ndata: {{\"response\":{{\"usage\":{{\"total_tokens\":{sum}}}}}}}\n\n"
            ),
        ),
        2 => {
            let first = format!(
                "event: message_start\ndata: {{\"message\":{{\"usage\":{{\"input_tokens\":{input}}}}}}}\n\n"
            );
            let last =
                format!("event: message_delta\ndata: {{\"usage\":{{\"output_tokens\":{output}}}}}\n\n");
            (events, format!("{first}{middle}{last}event: message_stop\ndata: {{}}\n\n"))
        }
        3 => (
            "application/json; charset=UTF-8",
            format!("[{middle}{{\"usageMetadata\":{{\"totalTokenCount\":{sum}}}}}\n]\n"),
        ),
        _ => (
            "application/x-ndjson",
            format!("{middle}{{\"done\":true,\"prompt_eval_count\":{input},\"eval_count\":{output}}}\n"),
        ),
    }
}

/// Streams in chunks that end anywhere, and notes what each form has used.
fn backend(ledger: &Arc<Mutex<BTreeMap<&'static str, u64>>>) -> Backend {
    let ledger = Arc::clone(ledger);
    Backend::start(move |exchange| {
        let number: usize = exchange.field("x-number").unwrap().parse().unwrap();
        let mut numbers = Numbers(number as u64);
        let shape = number % COSTS.len();
        let (input, output, parts) = (numbers.below(3_000), numbers.below(4_000), numbers.below(12));
        let (content_type, body) = stream(shape, input, output, parts);
        let coding = ["identity"].into_iter().chain(CODINGS).nth(number / COSTS.len() % 5).unwrap();
        let body = if coding == "identity" { body.into_bytes() } else { coded(coding, body.as_bytes()) };
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n"
        ));
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at((1 + numbers.below(90)).min(rest.len()));
            let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            // The pieces of the connection end elsewhere than the chunks.
            let (now, later) = framed.split_at(numbers.below(framed.len()));
            exchange.write(now);
            exchange.write(later);
            rest = after;
        }
        *ledger.lock().unwrap().entry(NAMES[shape]).or_default() += (input + output) as u64;
        exchange.write("0\r\n\r\n");
        Next::KeepAlive
    })
}

#[test]
fn streams_of_all_forms_cost_what_the_backend_counts() {
    let ledger = Arc::<Mutex<BTreeMap<&'static str, u64>>>::default();
    let backend = backend(&ledger);
    let gateway = Gateway::start(&metered(&backend.url(), &COSTS, &a_day(1_000_000_000), ""));
    let next = &AtomicUsize::new(0);
    let address = gateway.addr();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let (shape, name) = (number % COSTS.len(), NAMES[number % COSTS.len()]);
                    let request = format!(
                        "GET /{shape}/ HTTP/1.1\r\nhost: test\r\nx-client: {name}\r\nx-number: {number}\r\n\r\n"
                    );
                    client.exchange(request).expect(200);
                }
            });
        }
    });
    for (name, tokens) in &*ledger.lock().unwrap() {
        assert_eq!(used(&gateway, name), *tokens, "{name}");
    }
    let settled = gateway.metric("tollgate_settlements_total", &["limit=\"x\"", "result=\"measured\""]);
    assert!((settled - REQUESTS as f64).abs() < 0.5, "{settled} of {REQUESTS}");
}
