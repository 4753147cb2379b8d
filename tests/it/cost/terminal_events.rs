//! Event streams: which sources count, and the events after which a client may leave.

use http::Request;

use crate::harness::api::{api, samples_with, sum};
use crate::harness::metered::{a_day, begin, comes_to_use, json, metered, parrot, request, used};
use crate::harness::{AllVersions, Backend, Client, Gateway};

const CHAT: &str = "{ reserve = 100, settle = [\"json:/usage/total\", \"sse:/usage/total\"], missing = 70 }";
const MESSAGES: &str = "{ reserve = 100, settle = [\"json:/usage/in\", \"json:/usage/out\", \"sse:/message/usage/in\", \"sse:/usage/out\"], missing = 70 }";
const RESPONSES: &str =
    "{ reserve = 100, settle = [\"json:/usage/total\", \"sse:/response/usage/total\"], missing = 70 }";
const OWN: &str =
    "{ reserve = 100, settle = \"sse:/n\", sse_end = [\"bye\", \"{\\\"end\\\":true}\"], missing = 70 }";
const DOCUMENT: &str = "{ reserve = 100, settle = \"json:/n\", missing = 70 }";
const BESIDE_BYTES: &str = "{ reserve = 100, settle = [\"sse:/n\", \"json:/n\", \"bytes\"], missing = 70 }";
const TRAILER: &str = "{ reserve = 100, settle = [\"sse:/n\", \"trailer:x-cost\"], missing = 70 }";
const COSTS: [&str; 7] = [CHAT, MESSAGES, RESPONSES, OWN, DOCUMENT, BESIDE_BYTES, TRAILER];
/// The routes of these costs.
const CHAT_ROUTE: usize = 0;
const MESSAGES_ROUTE: usize = 1;
const RESPONSES_ROUTE: usize = 2;
const OWN_ROUTE: usize = 3;
const DOCUMENT_ROUTE: usize = 4;
const BYTES_ROUTE: usize = 5;
const TRAILER_ROUTE: usize = 6;

fn start() -> (Backend, Gateway) {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &COSTS, &a_day(1_000), ""));
    (backend, gateway)
}

fn with_type(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\n{content_type}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// What a stream goes on with, which completes no event but one whose data the client takes for the last.
fn late(events: &str) -> &'static str {
    if events.ends_with("[DONE]") { "\n\n" } else { ": late\n" }
}

/// A stream that goes on when the backend's gate opens, and does not end then.
fn stream(events: &str) -> Vec<u8> {
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{}|{}", chunk(events), chunk(late(events))).into_bytes()
}

/// The client leaves, which the gateway notices when it writes.
fn leave(client: Client, backend: &Backend) {
    client.reset();
    std::thread::sleep(std::time::Duration::from_millis(50));
    backend.open_gate();
}

/// Reads the response until these events are there.
fn read_events(client: &mut Client, events: &str) {
    client.read_head().expect("a head");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(events) {
        let some = client.read_some(usize::MAX);
        assert!(!some.is_empty(), "the stream ends after {read:?}");
        read.extend_from_slice(&some);
    }
}

#[test]
fn a_source_that_does_not_fit_the_content_type_is_left_out() {
    let (_backend, gateway) = start();
    let (event, document) = ("data: {\"usage\":{\"total\":30}}\n\n", "{\"usage\":{\"total\":30}}");
    let (n_event, n_document) = ("data: {\"n\":5}\n\n", "{\"n\":5}");
    let events = "content-type: text/event-stream\r\n";
    let json = "content-type: application/json\r\n";
    for (number, (route, content_type, body, cost, word)) in [
        (CHAT_ROUTE, events, event, 30, "measured"),
        (CHAT_ROUTE, "content-type: Text/Event-Stream ; charset=utf-8\r\n", event, 30, "measured"),
        (CHAT_ROUTE, json, document, 30, "measured"),
        (CHAT_ROUTE, "", document, 30, "measured"),
        (CHAT_ROUTE, "content-type: application/vnd.api+json\r\n", document, 30, "measured"),
        (CHAT_ROUTE, "content-type: text/event-streams\r\n", document, 30, "measured"),
        // The other source fits, but has no value.
        (CHAT_ROUTE, events, document, 70, "missing"),
        (CHAT_ROUTE, json, event, 70, "unreadable"),
        // No source fits: that is never for nothing.
        (OWN_ROUTE, json, n_event, 70, "missing"),
        (OWN_ROUTE, "", n_event, 70, "missing"),
        (DOCUMENT_ROUTE, events, n_document, 70, "missing"),
        // Sources outside the body always fit.
        (BYTES_ROUTE, events, n_event, 5 + n_event.len(), "measured"),
        (BYTES_ROUTE, json, n_document, 5 + n_document.len(), "measured"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{number}");
        begin(&gateway, route, &name, "", &with_type(content_type, body)).read().expect(200);
        assert_eq!(used(&gateway, &name), cost as u64, "{route} {content_type:?} {body:?}");
        let line = gateway.access_log(number + 1).remove(number);
        assert_eq!(line["settlement"].as_str(), Some(word), "{line}");
    }
}

/// Streams of the APIs' form, to the event after which their clients leave, and their cost.
const ENDED: [(usize, &str, u64); 10] = [
    (CHAT_ROUTE, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total\":30}}\n\ndata: [DONE]\n\n", 30),
    (CHAT_ROUTE, "data: {\"usage\":{\"total\":0}}\r\n\r\ndata:[DONE]\r\n\r\n", 0),
    // Some clients leave at the text itself.
    (CHAT_ROUTE, "data: {\"usage\":{\"total\":30}}\n\ndata: [DONE]", 30),
    // No value of a whole stream: as one that is read to its end.
    (CHAT_ROUTE, "data: {\"usage\":null}\n\ndata: [DONE]\n\n", 70),
    (
        MESSAGES_ROUTE,
        "event: message_start\ndata: {\"message\":{\"usage\":{\"in\":25}}}\n\nevent: message_delta\ndata: {\"usage\":{\"out\":7}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        32,
    ),
    // The last event has the value itself.
    (RESPONSES_ROUTE, "event: response.completed\ndata: {\"response\":{\"usage\":{\"total\":40}}}\n\n", 40),
    (RESPONSES_ROUTE, "data: {\"response\":{\"usage\":{\"total\":41}}}\nevent:response.failed\n\n", 41),
    (RESPONSES_ROUTE, "event: response.incomplete\ndata: {\"response\":{\"usage\":{\"total\":42}}}\n\n", 42),
    (OWN_ROUTE, "data: {\"n\":43}\n\nevent: bye\ndata: 1\n\n", 43),
    (OWN_ROUTE, "data: {\"n\":44}\n\ndata: {\"end\":true}\n\n", 44),
];

#[test]
fn a_client_that_leaves_after_a_terminal_event_pays_what_was_measured() {
    for (route, events, cost) in ENDED {
        let (backend, gateway) = start();
        let mut client = begin(&gateway, route, "a", "x-then: gate\r\n", &stream(events));
        read_events(&mut client, events);
        // Settled before the client gets the event; the data of one without its end settles when the client leaves.
        if events.ends_with("\n\n") {
            assert_eq!(used(&gateway, "a"), cost, "{events:?}");
        }
        leave(client, &backend);
        let line = gateway.access_log(1).remove(0);
        assert_eq!(used(&gateway, "a"), cost, "{events:?}");
        assert_eq!((&line["status"], &line["error"]), (&200.into(), &serde_json::Value::Null), "{line}");
        assert_eq!(line["settled"].as_u64(), Some(cost), "{line}");
        let samples = samples_with(&gateway, 1);
        assert_eq!(sum(&samples["all"]["failed"]), 0, "{samples}");
    }
}

#[test]
fn a_client_that_leaves_before_a_terminal_event_pays_at_least_what_is_missing() {
    for (route, events, cost) in [
        // A later event may have a larger value.
        (CHAT_ROUTE, "data: {\"usage\":{\"total\":30}}\n\n", 70),
        (CHAT_ROUTE, "data: {\"usage\":{\"total\":95}}\n\n", 95),
        (CHAT_ROUTE, "data: {\"usage\":{\"total\":30}}\n\ndata: [DON", 70),
        (CHAT_ROUTE, "data: {\"usage\":{\"total\":30}}\n\ndata: [DONE]!\n\n", 70),
        (
            MESSAGES_ROUTE,
            "data: {\"message\":{\"usage\":{\"in\":25}}}\n\ndata: {\"usage\":{\"out\":7}}\n\n",
            70,
        ),
        (MESSAGES_ROUTE, "data: {\"message\":{\"usage\":{\"in\":90}}}\n\nevent: message_stop\n", 90),
        (RESPONSES_ROUTE, "event: response.completed\ndata: {\"response\":{\"usage\":{\"total\":40}}}\n", 70),
        // Its terminal events are those of this route alone.
        (CHAT_ROUTE, "data: {\"usage\":{\"total\":30}}\n\nevent: bye\ndata: 1\n\n", 70),
        // The trailer would follow the last event.
        (TRAILER_ROUTE, "data: {\"n\":5}\n\ndata: [DONE]\n\n", 70),
    ] {
        let (backend, gateway) = start();
        let mut client = begin(&gateway, route, "a", "x-then: gate\r\n", &stream(events));
        read_events(&mut client, events);
        assert_eq!(used(&gateway, "a"), 100, "{events:?}");
        leave(client, &backend);
        let line = gateway.access_log(1).remove(0);
        assert_eq!((line["settled"].as_u64(), line["settlement"].as_str()), (Some(cost), Some("incomplete")));
        assert_eq!(used(&gateway, "a"), cost, "{events:?}");
        if route != TRAILER_ROUTE {
            assert_eq!(line["error"].as_str(), Some("client_gone"), "{line}");
        }
    }
}

/// The stream itself goes on, with all that the backend sends.
#[test]
fn a_terminal_event_ends_the_measurement_and_not_the_stream() {
    let (_backend, gateway) = start();
    let events = "data: {\"n\":5,\"usage\":{\"total\":30}}\n\ndata: [DONE]\n\ndata: {\"n\":7,\"usage\":{\"total\":99}}\n\n";
    let whole = with_type("content-type: text/event-stream\r\n", events);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n0\r\nx-cost: 6\r\n\r\n",
        events.len()
    );
    for (route, name, response, cost) in [
        (CHAT_ROUTE, "a", &*whole, 30),
        (BYTES_ROUTE, "b", &*whole, 5 + events.len() as u64),
        // The cost of a trailer is known only then.
        (TRAILER_ROUTE, "c", chunked.as_bytes(), 11),
    ] {
        let response = begin(&gateway, route, name, "", response).read().expect(200);
        assert_eq!(response.body, events.as_bytes());
        assert_eq!(used(&gateway, name), cost, "{name}");
    }
}

/// A cost that is read from the stream and one that is not: each ends by its own rule.
#[test]
fn each_limit_of_a_stream_ends_by_its_own_rule() {
    let backend = parrot();
    let other = "[limits.y]\nkey = \"header:x-client\"\nalgorithm = \"fixed-window\"\nrate = \"1000/day\"\n";
    let limits = "limits = [\"x\", { name = \"y\", cost = { reserve = 5, settle = \"bytes\" } }]";
    let toml = metered(&backend.url(), &[CHAT], &a_day(1_000), other).replace("limits = [\"x\"]", limits);
    let gateway = Gateway::start(&toml);
    let events = "data: {\"usage\":{\"total\":30}}\n\ndata: [DONE]\n\n";
    let mut client = begin(&gateway, CHAT_ROUTE, "a", "x-then: gate\r\n", &stream(events));
    read_events(&mut client, events);
    leave(client, &backend);
    comes_to_use(&gateway, "a", 30);
    let key = api(&gateway, "limits/y/keys/a");
    assert_eq!(key["policies"][0]["used"].as_u64(), Some((events.len() + late(events).len()) as u64));
}

/// The end of a connection is noticed at once where the request holds a place, long before the backend ends the stream.
#[test]
fn a_client_with_a_place_leaves_at_the_last_event() {
    let backend = parrot();
    let places = "[limits.c]\nkey = \"header:x-client\"\nalgorithm = \"concurrency\"\nmax = 1\n";
    let toml = metered(&backend.url(), &[CHAT], &a_day(1_000), places)
        .replace("limits = [\"x\"]", "limits = [\"x\", { name = \"c\", cost = 1 }]");
    let gateway = Gateway::start(&toml);
    let (route, events, cost) = ENDED[0];
    for (count, leaves_early) in [(1, false), (2, true)] {
        let mut client = begin(&gateway, route, "a", "x-then: gate\r\n", &stream(events));
        read_events(&mut client, if leaves_early { "data: {\"usage\":null}" } else { events });
        drop(client);
        let line = gateway.access_log(count).remove(count - 1);
        assert_eq!(
            (line["settled"].as_u64(), &line["error"]),
            (Some(cost), &serde_json::Value::Null),
            "{line}"
        );
    }
    assert_eq!(used(&gateway, "a"), 2 * cost);
}

#[test]
fn a_stream_that_is_reset_after_a_terminal_event_has_not_failed() {
    let backend = parrot();
    let gateway = AllVersions::start(&metered(&backend.url(), &COSTS, &a_day(1_000), ""));
    let (route, events, cost) = ENDED[0];
    let response = String::from_utf8(stream(events)).unwrap();
    for (number, connection) in gateway.clients().into_iter().enumerate() {
        let client = ["http2", "http3"][number];
        let request = Request::builder()
            .method("POST")
            .uri(format!("http://test/{route}/"))
            .header("x-client", client)
            .header("x-then", "gate")
            .body(())
            .unwrap();
        let stream = connection.begin(request, response.as_bytes());
        // Its event is on its way then.
        comes_to_use(&gateway, client, cost);
        std::thread::sleep(std::time::Duration::from_millis(200));
        stream.cancel();
        let line = gateway.access_log(number + 1).remove(number);
        assert_eq!(
            (line["settled"].as_u64(), &line["error"]),
            (Some(cost), &serde_json::Value::Null),
            "{line}"
        );
    }
}

/// Nothing of a stream is kept for a client that goes on on its connection.
#[test]
fn the_next_request_on_the_connection_is_charged_by_itself() {
    let (_backend, gateway) = start();
    let mut client = Client::connect(gateway.addr());
    let whole = with_type("content-type: text/event-stream\r\n", ENDED[0].1);
    for count in 1..=3 {
        client.exchange(request(CHAT_ROUTE, "a", "", &whole)).expect(200);
        client.exchange(request(CHAT_ROUTE, "a", "", &json("{\"usage\":{\"total\":1}}"))).expect(200);
        assert_eq!(used(&gateway, "a"), 31 * count);
    }
}
