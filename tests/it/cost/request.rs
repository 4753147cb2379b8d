//! `from`: costs that a request itself tells.

use crate::harness::metered::{a_day, metered, parrot, used};
use crate::harness::{Client, Gateway};

const LIMIT: &str = "{ from = \"query:limit\", per = 10, min = 1, max = 20, missing = 1 }";

#[test]
fn a_number_in_the_request_is_its_cost() {
    let backend = parrot();
    let costs = [
        LIMIT,
        "{ from = \"header:x-rows\", max = 50 }",
        "{ from = \"header:x-rows\" }",
        "{ from = \"body-bytes\", per = 100 }",
    ];
    let gateway = Gateway::start(&metered(&backend.url(), &costs, &a_day(1_000), ""));
    let rows = [
        (0, "?limit=95", "", "", 10),
        (0, "?limit=1", "", "", 1),
        (0, "?limit=0", "", "", 1),
        (0, "?limit=100000", "", "", 20),
        (0, "?limit=99999999999999999999999", "", "", 20),
        (0, "?limit=10.5", "", "", 2),
        (0, "?l%69mit=95", "", "", 10),
        (0, "", "", "", 1),
        (0, "?limit=", "", "", 1),
        (0, "?limit=-5", "", "", 1),
        (0, "?limit=ten", "", "", 1),
        (0, "?limit=200&limit=1", "", "", 1),
        (0, "?LIMIT=95", "", "", 1),
        (1, "", "x-rows: 7\r\n", "", 7),
        (1, "", "x-rows: 0\r\n", "", 1),
        // Without `missing`, a request that leaves the number out is as dear as any.
        (1, "", "", "", 50),
        (1, "", "x-rows: 7\r\nx-rows: 7\r\n", "", 50),
        (2, "", "x-rows: 7\r\n", "", 7),
        (2, "", "", "", 1),
        (3, "", "content-length: 101\r\n", "a", 2),
        (3, "", "", "", 1),
        (3, "", "transfer-encoding: chunked\r\n", "chunked", 1),
    ];
    for (number, (route, query, fields, body, cost)) in rows.into_iter().enumerate() {
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let body = match body {
            "chunked" => format!("{:x}\r\n{response}\r\n0\r\n\r\n", response.len()),
            "" if route == 3 => String::new(),
            "" => response.to_owned(),
            _ => format!("{response:<101}"),
        };
        let length = if fields.contains("tent-") || fields.contains("chunked") {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        let mut client = Client::connect(gateway.addr());
        client.write(format!(
            "POST /{route}/{query} HTTP/1.1\r\nhost: test\r\nx-client: c{number}\r\n{fields}{length}\r\n{body}"
        ));
        if !(route == 3 && body.is_empty()) {
            client.read().expect(200);
        } else {
            backend.wait_for(number + 1);
        }
        assert_eq!(used(&gateway, &format!("c{number}")), cost, "row {number}: {route} {query} {fields:?}");
    }
}

#[test]
fn a_cost_that_the_limit_can_not_hold_is_refused_for_good() {
    let backend = parrot();
    let gateway = Gateway::start(&metered(
        &backend.url(),
        &["{ from = \"query:limit\", min = 0, missing = 1 }"],
        &a_day(10),
        "",
    ));
    let ask = |limit: u32| {
        let mut client = Client::connect(gateway.addr());
        let body = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        client.exchange(format!(
            "POST /0/?limit={limit} HTTP/1.1\r\nhost: test\r\nx-client: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let refused = ask(11).expect(429);
    assert_eq!(refused.header("retry-after"), None);
    ask(10).expect(200);
    ask(1).expect(429);
    ask(0).expect(200);
}
