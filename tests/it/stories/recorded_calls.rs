//! Calls of real proxies, recorded by tests/it/peers, and sent to a gateway again: each is understood, is charged to the
//! client that it is about, and is refused once the client's allowance is used up.

use bytes::Bytes;
use http::Request;

use crate::harness::pages::root;
use crate::harness::{Client, Gateway, Http2};

const TOKEN: (&str, &str) = ("TOLLGATE_DECISIONS_TOKEN", "c0ffee00c0ffee00c0ffee00c0ffee00");

/// A gateway that is asked, with these lines.
fn gateway(lines: &str) -> Gateway {
    let decisions = "[admin]\nlisten = \"127.0.0.1:0\"\n[decisions]\nlisten = \"127.0.0.1:0\"\n\
                     token_env = \"TOLLGATE_DECISIONS_TOKEN\"\n";
    Gateway::start_in(&format!("{decisions}{lines}"), &[], &[TOKEN])
}

/// The keys that a limit has counted.
fn keys(gateway: &Gateway, limit: &str) -> Vec<String> {
    let list = gateway.admin(&format!("/api/v1/limits/{limit}/keys")).json();
    let key = |row: &serde_json::Value| row["key"][0].as_str().unwrap_or_default().to_owned();
    list["keys"].as_array().expect("a list").iter().map(key).collect()
}

/// The sections of a recorded file: a first line, and the lines below it.
fn sections(file: &str) -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(root().join(file)).expect("it is there");
    let sections = text.split("\n\n").filter(|section| !section.starts_with('#'));
    let section = |section: &str| {
        let mut lines = section.lines().map(str::to_owned);
        (lines.next().expect("a first line"), lines.collect())
    };
    sections.map(section).collect()
}

/// nginx, Traefik, Caddy and Envoy: each question is about a request of 127.0.0.2 for `/orders/1`, whatever the client
/// claims.
#[test]
fn questions_about_requests_are_decided() {
    let questions = sections("tests/peers/questions.txt");
    for name in ["nginx", "traefik", "caddy", "envoy"] {
        let gateway = gateway(
            "[limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"6/h\"\nburst = 5\n\
             [[routes]]\npath = \"/orders/*\"\nrespond = {}\nlimits = [\"per-client\"]\n",
        );
        let refused = if name == "nginx" { 403 } else { 429 };
        let own = questions.iter().filter(|(first, _)| first.starts_with(&format!("question of {name}: ")));
        let own: Vec<_> = own.collect();
        assert!(own.len() >= 4, "{name}");
        let mut statuses = Vec::new();
        for (first, lines) in own.iter().chain(&own) {
            let mut client = Client::connect(gateway.decisions_addr());
            client.write(lines.join("\r\n") + "\r\n\r\n");
            let answer = client.read_for(lines[0].split(' ').next().expect("a method"));
            let waits = answer.header("retry-after").is_some();
            assert_eq!(
                (waits, answer.header("ratelimit").is_some()),
                (answer.status == refused, true),
                "{first}"
            );
            let real = (name == "nginx" && answer.status == refused).then_some("429");
            assert_eq!(answer.header("x-tollgate-status"), real, "{first}");
            statuses.push(answer.status);
        }
        let expected: Vec<_> =
            (0..statuses.len()).map(|index| if index < 5 { 200 } else { refused }).collect();
        assert_eq!(statuses, expected, "{name}");
        assert_eq!(keys(&gateway, "per-client"), ["127.0.0.2"], "{name}");
    }
}

/// Envoy's rate limit filter: each message is admitted once, and then over the limit of one a day.
#[test]
fn calls_of_the_rate_limit_filter_are_decided() {
    for (case, lines) in sections("tests/grpc/rate-limit-calls/envoy.txt") {
        let messages: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("message ")).collect();
        let descriptors: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("descriptor ")).collect();
        let Some(message) = messages.first() else { continue };
        let gateway = gateway(&limit_of(descriptors[0]));
        let http2 = Http2::connect(gateway.decisions_addr());
        let codes = [(); 2].map(|()| overall_code(&http2, message));
        // A question without a cost charges nothing.
        let expected = if descriptors[0].ends_with("hits_addend=0") { [1, 1] } else { [1, 2] };
        assert_eq!(codes, expected, "{case}");
    }
}

/// A limit of one cost of this descriptor a day.
fn limit_of(descriptor: &str) -> String {
    let words: Vec<_> = descriptor.split(' ').collect();
    let number = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
    let is_entry = |word: &&&str| !word.starts_with("hits_addend=") && !word.starts_with("limit=");
    let entries = words.iter().filter(is_entry).filter_map(|word| word.split_once('='));
    let entries: Vec<_> = entries.map(|(key, _)| format!("[\"{key}\", \"*\"]")).collect();
    let rate = number("hits_addend=").unwrap_or(1).max(1);
    format!(
        "[[routes]]\npath = \"/*\"\nrespond = {{}}\n[limits.once]\nalgorithm = \"fixed-window\"\nkey = \"global\"\n\
         rate = \"{rate}/day\"\n[[descriptors]]\nmatch = [{}]\nlimits = [\"once\"]\n",
        entries.join(", ")
    )
}

/// Sends a message as Envoy does. The `overall_code` of its answer: 1 is OK, 2 is OVER_LIMIT.
fn overall_code(http2: &Http2, message: &str) -> u8 {
    let byte = |index: usize| u8::from_str_radix(&message[index..index + 2], 16).expect("hexadecimal");
    let message: Vec<u8> = (0..message.len()).step_by(2).map(byte).collect();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let call = Request::post("http://tollgate/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let call = call
        .header("te", "trailers")
        .header("grpc-timeout", "20m")
        .header("content-type", "application/grpc");
    let call = call.header("x-tollgate-token", TOKEN.1).header("x-envoy-internal", "true");
    let call = call.header("x-forwarded-for", "192.0.2.2").body(()).expect("a request");
    let answer = http2.exchange(call, body.as_slice()).expect("an answer").expect(200);
    let answer = Bytes::from(answer.body);
    // The frame of gRPC, then field 1 of the message.
    assert_eq!((answer[0], answer[5]), (0, 8), "{answer:?}");
    answer[6]
}
