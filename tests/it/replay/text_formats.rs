//! Formats of text: those of load balancers, and the odd lines of each.

use std::ops::ControlFlow;

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::log_reader::{LogFormat, LogOptions, LogReader, ProblemKind, read_line};

use crate::harness::log_files::{address, head, options, read, read_text, sample};

#[test]
fn haproxys_lines_are_read() {
    let log = read(options(&[sample("haproxy.log")]));
    let [first, second, third] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(first.time, Timestamp(1_233_922_454_655_000), "the time of the request, in UTC");
    assert_eq!((first.client, first.duration), (address("10.0.1.2"), Some(Micros(109_000))));
    assert_eq!((first.status, first.bytes_out), (Some(200), Some(2_750)));
    assert_eq!(head(first), "GET /index.html HTTP/1.0\r\n\r\n");
    assert_eq!((second.client, second.status), (address("2001:db8::7"), Some(201)));
    assert_eq!(head(second), "POST /orders?a=\"b\" HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    assert_eq!((third.client, third.duration, third.bytes_out), (address("::1"), None, None));
    assert_eq!(third.time, Timestamp(1_233_922_457_250_000));
    let counts = [ProblemKind::NoRequest, ProblemKind::NotReadable].map(|kind| log.problems.count(kind));
    assert_eq!(counts, [1, 3], "{:?}", log.problems);
}

#[test]
fn lines_of_awss_load_balancer_are_read() {
    let log = read(options(&[sample("alb.log")]));
    let [first, second, third] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(first.time, Timestamp(1_530_570_168_364_000));
    assert_eq!((first.client, first.duration), (address("192.168.131.39"), Some(Micros(11_822_641))));
    assert_eq!(head(first), "GET / HTTP/1.1\r\nhost: www.example.com\r\nuser-agent: curl/7.46.0\r\n\r\n");
    // Its size includes the head, so it is not that of a body.
    assert_eq!((first.bytes_in, first.bytes_out), (None, Some(366)));
    assert_eq!((second.client, second.duration), (address("2001:db8::9"), Some(Micros(600_000_000))));
    assert_eq!(head(second), "GET /chat HTTP/1.1\r\nhost: 10.0.0.30\r\n\r\n");
    assert_eq!((third.client, third.status), (address("2001:db8:4538:1:bcf4:5264:e01c:f215"), Some(429)));
    assert_eq!(
        head(third),
        "POST /v1/orders?x=%22 HTTP/1.1\r\nhost: api.example.com\r\nuser-agent: a \"quoted\" agent\r\n\r\n"
    );
    assert_eq!(log.problems.count(ProblemKind::NoRequest), 1);
}

#[test]
fn envoys_lines_of_text_are_read() {
    let options = LogOptions {
        trusted_proxies: vec!["203.0.113.0/24".parse().unwrap()],
        ..options(&[sample("envoy-text.log")])
    };
    let log = read(options);
    let [istio, first, third] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(first.time, Timestamp(1_460_751_420_310_000));
    assert_eq!((first.client, first.duration), (address("10.0.35.28"), Some(Micros(226_000))));
    assert_eq!((first.status, first.bytes_in, first.bytes_out), (Some(204), Some(154), Some(0)));
    assert_eq!(
        head(first),
        "POST /api/v1/locations HTTP/1.1\r\nhost: locations\r\nuser-agent: nsq2http\r\nx-request-id: cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2\r\ncontent-length: 154\r\n\r\n"
    );
    assert_eq!((istio.client, istio.status), (address("2001:db8::7"), Some(418)));
    assert_eq!(third.client, address("192.0.2.66"), "the last address that is no trusted proxy");
    assert!(head(third).starts_with("GET /a\"b HTTP/1.1\r\n"), "{}", head(third));
    let counts = [ProblemKind::NoRequest, ProblemKind::NotReadable].map(|kind| log.problems.count(kind));
    assert_eq!(counts, [1, 1], "a line with quotes that can be read in two ways is left out");
}

#[test]
fn lines_of_envoy_without_clients_are_read() {
    let line = "[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 0 0 226 100 \"-\" \"-\" \"-\" \"a\" \"10.0.2.1:80\"\n";
    assert_eq!(read_text(line.repeat(3)).requests.len(), 3);
}

#[test]
fn caddys_wall_times_and_console_are_read() {
    let log = read(options(&[sample("caddy-wall.log")]));
    let found: Vec<_> = log.requests.iter().map(|request| (request.time.0, request.client)).collect();
    let second = 1_795_791_845_000_000;
    let expected = [
        (second + 23_000, address("203.0.113.9")),
        (second + 1_500_000, address("192.0.2.5")),
        (second + 2_000_000, address("2001:db8::5")),
        (second + 2_500_000, address("192.0.2.5")),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        head(&log.requests[0]),
        "GET /a?c={1} HTTP/1.1\r\nhost: shop.example\r\nUser-Agent: curl/8.7.1\r\n\r\n"
    );
    assert_eq!(log.problems.count(ProblemKind::NotReadable), 3, "the log of errors has requests once more");
}

#[test]
fn columns_after_those_of_the_combined_format_change_nothing() {
    let log = read(options(&[sample("nginx-extended.log")]));
    let [first, second] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!((first.client, first.bytes_out), (address("192.0.2.7"), Some(12)));
    assert_eq!(head(first), "GET /a HTTP/1.0\r\nuser-agent: curl/8.5.0\r\n\r\n");
    assert_eq!((second.client, second.consumer.as_str()), (address("2001:db8::7"), "ada"));
    assert_eq!((second.status, second.bytes_out, second.duration), (Some(504), Some(0), None));
    assert_eq!(head(second), "GET /b?q=\"x\" HTTP/1.0\r\nuser-agent: Mozilla/5.0 (\"quoted\")\r\n\r\n");
    assert_eq!(log.problems.count(ProblemKind::NoRequest), 3, "bytes of TLS and RDP are no request");
}

/// A container's log has lines of several servers; parts of one look like another format.
#[test]
fn lines_of_several_formats_are_told_apart() {
    let names = ["nginx-extended.log", "alb.log", "envoy-text.log", "haproxy.log", "caddy-wall.log"];
    let alone: usize = names.iter().map(|name| read(options(&[sample(name)])).requests.len()).sum();
    let mut parts = names.map(|name| std::fs::read_to_string(sample(name)).unwrap());
    for _ in 0..parts.len() {
        parts.rotate_left(1);
        let text = parts.concat();
        let log = read_text(&text);
        // The line that breaks off is followed by another one.
        assert_eq!(log.requests.len(), alone, "{:?}", log.problems);
    }
}

#[test]
fn a_format_that_is_named_reads_its_lines() {
    for (format, name, requests) in [
        (LogFormat::Haproxy, "haproxy.log", 3),
        (LogFormat::Alb, "alb.log", 3),
        (LogFormat::Envoy, "envoy-text.log", 3),
        (LogFormat::Envoy, "envoy.log", 2),
        (LogFormat::Caddy, "caddy-wall.log", 4),
        (LogFormat::Combined, "haproxy.log", 0),
        (LogFormat::Haproxy, "alb.log", 0),
        (LogFormat::Alb, "envoy-text.log", 0),
    ] {
        let log = read(LogOptions { format, ..options(&[sample(name)]) });
        assert_eq!(log.requests.len(), requests, "{format:?} {name}: {:?}", log.problems);
    }
}

/// A log whose requests name their hosts fits routes with `hosts`.
#[test]
fn the_host_of_an_absolute_target_is_known() {
    for (name, has_host) in [("alb.log", true), ("haproxy.log", true), ("nginx-extended.log", false)] {
        let mut reader = LogReader::open(options(&[sample(name)]), |_| ControlFlow::Continue(()))
            .expect("the file is there");
        while reader.next().is_some() {}
        assert_eq!(reader.known().host, has_host, "{name}");
    }
}

proptest! {
    /// Neither a prefix nor another format is found in a line of the combined format.
    #[test]
    fn a_combined_line_is_read_as_one(
        client in prop_oneof![
            Just("192.0.2.7"),
            Just("2001:db8::7"),
            Just("2001:db8::"),
            Just("192.0.2.13, 198.51.100.3"),
            Just("www.example.com:443 192.0.2.7"),
            Just("[2001:db8::1]:80 192.0.2.7"),
            Just("web-1 192.0.2.7"),
        ],
        user in "(-|[a-z:|<>-]{1,8}( [a-z:|]{1,8})?)",
        path in r"[!-!$-\[\]-~]{0,20}",
        agent in r"([ !#-\[\]-~]|\\x22|\\x16){0,40}",
        more in r#"( "[ !#-\[\]-~]{0,20}"| [0-9.:, -]{1,30}){0,2}"#,
    ) {
        let line = format!(
            r#"{client} - {user} [27/Nov/2026:15:00:00 +0100] "GET /{path} HTTP/1.1" 200 12 "-" "{agent}"{more}"#
        );
        let [auto, combined] = [LogFormat::Auto, LogFormat::Combined].map(|format| {
            let found = read_line(line.as_bytes(), &LogOptions { format, ..options(&[]) });
            found.map(|request| format!("{request:?}"))
        });
        prop_assert_eq!(auto, combined, "{}", line);
    }
}
