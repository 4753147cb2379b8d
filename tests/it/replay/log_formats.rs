//! Each format that a log may have.

use std::ops::ControlFlow;

use tollgate::limit::units::{Micros, Timestamp};
use tollgate::log_reader::{FieldMap, LogFormat, LogOptions, LogReader, ProblemKind};

use crate::harness::log_files::{ReadLogs, address, head, options, read, sample};

#[test]
fn combined_lines_are_read() {
    let log = read(options(&[sample("combined.log")]));
    let [first, second, third] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(first.time, Timestamp(971_211_336_000_000));
    assert_eq!((first.client, first.consumer.as_str()), (address("127.0.0.1"), "frank"));
    assert_eq!((first.status, first.bytes_out, first.duration), (Some(200), Some(2_326), None));
    assert_eq!(
        head(first),
        "GET /apache_pb.gif HTTP/1.0\r\nuser-agent: Mozilla/4.08 [en] (Win98; I ;Nav)\r\nreferer: http://www.example.com/start.html\r\n\r\n"
    );
    assert_eq!(head(second), "POST /login?next=%2F HTTP/1.0\r\nuser-agent: curl/8.5.0\r\n\r\n");
    assert_eq!(head(third), "GET /caf%C3%A9 HTTP/1.0\r\nuser-agent: \"quoted\"\r\n\r\n");
    assert_eq!(third.client, address("2001:db8::7"));
    assert_eq!(log.problems.count(ProblemKind::NoRequest), 2);
    let (.., first) = log.problems.iter().next().expect("a problem");
    assert!(first.file.ends_with("combined.log") && first.place.line == 4, "{first:?}");
}

#[test]
fn common_lines_and_virtual_hosts_are_read() {
    let log = read(options(&[sample("common.log")]));
    let [common, with_host] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(head(common), "GET /apache_pb.gif HTTP/1.0\r\n\r\n");
    assert_eq!(head(with_host), "HEAD / HTTP/1.1\r\nhost: www.example.com\r\nuser-agent: curl/8.5.0\r\n\r\n");
    assert_eq!(with_host.bytes_out, Some(0));
}

/// As the gateway finds it in the header of a proxy.
#[test]
fn of_a_list_of_addresses_the_last_that_is_no_trusted_proxy_is_the_client() {
    let rest = "- - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"";
    let lines = [
        "192.0.2.13, 198.51.100.3",
        "192.0.2.13, 198.51.100.3, 10.0.0.1",
        "192.0.2.13, unknown, 10.0.0.1",
        "10.0.0.2, 10.0.0.1",
        "192.0.2.7",
        "192.0.2.13, unknown",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let text: String = lines.iter().map(|front| format!("{front} {rest}\n")).collect();
    std::fs::write(&file, text).expect("a file");
    let read_with = |trusted: &str| {
        let trusted_proxies = trusted.split_whitespace().map(|network| network.parse().expect("a network"));
        read(LogOptions {
            trusted_proxies: trusted_proxies.collect(),
            ..options(std::slice::from_ref(&file))
        })
    };
    let clients = |log: &ReadLogs| log.requests.iter().map(|request| request.client).collect::<Vec<_>>();
    let log = read_with("10.0.0.0/8");
    let expected = ["198.51.100.3", "198.51.100.3", "10.0.0.1", "10.0.0.2", "192.0.2.7"].map(address);
    assert_eq!((clients(&log), log.problems.count(ProblemKind::NoClient)), (expected.to_vec(), 1));
    assert!(log.requests.iter().all(|request| !head(request).contains("host:")), "none is a virtual host");
    let log = read_with("");
    let expected = ["198.51.100.3", "10.0.0.1", "10.0.0.1", "10.0.0.1", "192.0.2.7"].map(address);
    assert_eq!((clients(&log), log.problems.count(ProblemKind::NoClient)), (expected.to_vec(), 1));
}

#[test]
fn a_default_host_is_that_of_lines_without_one() {
    let mut options = options(&[sample("common.log")]);
    options.host = Some("example.org".to_owned());
    let log = read(options);
    let hosts: Vec<_> = log.requests.iter().filter_map(|request| head(request).lines().nth(1)).collect();
    assert_eq!(hosts, ["host: example.org", "host: www.example.com"]);
}

#[test]
fn caddys_lines_are_read() {
    let log = read(options(&[sample("caddy.log")]));
    let [second, first] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(first.time, Timestamp(1_646_861_401_524_102 - 930));
    assert_eq!((first.client, first.consumer.as_str()), (address("203.0.113.9"), "ada"));
    assert_eq!((first.bytes_in, first.bytes_out, first.duration), (Some(3), Some(10_900), Some(Micros(930))));
    assert_eq!(
        head(first),
        "GET /files/a?b=%22 HTTP/1.1\r\nhost: localhost\r\nUser-Agent: curl/7.82.0\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\nX-Tenant: red\r\ncontent-length: 3\r\n\r\n"
    );
    assert_eq!(second.time, Timestamp(1_646_861_401_000_000));
    assert_eq!((second.client, second.status), (address("192.0.2.4"), Some(502)));
    assert_eq!(log.problems.count(ProblemKind::NotReadable), 1);
}

#[test]
fn traefiks_lines_are_read() {
    let log = read(options(&[sample("traefik.log")]));
    let [request] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(request.time, Timestamp(1_637_747_225_342_386));
    assert_eq!((request.client, request.consumer.as_str()), (address("203.0.113.9"), ""));
    assert_eq!((request.status, request.duration), (Some(404), Some(Micros(45))));
    assert_eq!(
        head(request),
        "PUT /things/1?x=y HTTP/1.1\r\nhost: api.example.com\r\nUser-Agent: curl/7.68.0\r\nX-Tenant: blue\r\ncontent-length: 7\r\n\r\n"
    );
}

#[test]
fn envoys_lines_are_read() {
    let log = read(options(&[sample("envoy.log")]));
    let [second, first] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!(first.time, Timestamp(1_771_929_045_123_000));
    assert_eq!((first.client, first.duration), (address("10.244.1.3"), Some(Micros(4_000))));
    assert_eq!(
        head(first),
        "GET /status/200 HTTP/1.1\r\nhost: httpbin.default:8000\r\nuser-agent: curl/7.88.1\r\nx-request-id: a1b2c3d4-e5f6-7890\r\ncontent-length: 5\r\n\r\n"
    );
    assert_eq!((second.client, second.status), (address("203.0.113.9"), Some(503)));
}

#[test]
fn json_lines_of_nginx_are_read_by_a_map() {
    let mut options = options(&[sample("nginx-json.log")]);
    let map = r#"time=$.msec,client=$.remote_addr,consumer=$.remote_user,request=$.request,host=$.host,status=$.status,duration=$.request_time,bytes_out=$.body_bytes_sent,header:x-tenant=$.http["x-tenant"],user_agent=$.http.user_agent"#;
    options.map = Some(FieldMap::parse(map).expect("a map"));
    let log = read(options);
    let [request] = &log.requests[..] else { panic!("{log:?}") };
    assert_eq!((request.time, request.consumer.as_str()), (Timestamp(1_700_000_000_000_000), "ada"));
    assert_eq!((request.status, request.duration), (Some(200), Some(Micros(250_000))));
    assert_eq!(
        head(request),
        "GET /a?b HTTP/1.1\r\nhost: example.com\r\nuser-agent: a \"b\" é\r\nx-tenant: t1\r\n\r\n"
    );
}

#[test]
fn a_given_format_is_the_only_one() {
    let mut options = options(&[sample("caddy.log")]);
    options.format = LogFormat::Combined;
    let log = read(options);
    assert!(log.requests.is_empty());
    assert_eq!(log.problems.count(ProblemKind::NotReadable), 3);
}

#[test]
fn several_formats_are_merged_by_time() {
    let names = ["envoy.log", "traefik.log", "caddy.log", "combined.log"];
    let log = read(options(&names.map(sample)));
    assert_eq!(log.requests.len(), 8);
    assert!(log.requests.is_sorted_by_key(|request| (request.time, request.place)));
    assert_eq!(log.counts.other_format, 0);
}

#[test]
fn the_fields_of_a_log_are_known_once_they_occurred() {
    let mut reader = LogReader::open(options(&[sample("caddy.log")]), |_| ControlFlow::Continue(()))
        .expect("the file is there");
    assert!(reader.known().headers().is_empty() && !reader.known().host);
    while reader.next().is_some() {}
    let known = reader.known();
    assert!(known.host && known.client && known.duration && known.consumer && !known.own);
    assert!(known.has_header("x-tenant") && known.has_header("user-agent"));
    assert!(!known.has_header("cookie"), "its value is redacted");
}
