//! Places behind TLS and under HTTP/2.

use std::time::Duration;

use crate::harness::in_flight::{ask, begin, comes_to_hold, fits, limited};
use crate::harness::{
    AllVersions, Authority, Client, Gateway, HoldingBackend, Http2, Unanswered, eventually, h2_get,
};

/// A `GET` of the client `a` in HTTP/2.
fn request(target: &str) -> http::Request<()> {
    let mut request = h2_get(target);
    request.headers_mut().insert("x-client", http::HeaderValue::from_static("a"));
    request
}

/// Only the end of the connection tells: a `close_notify` alone is not looked for while a response is awaited.
#[test]
fn a_client_behind_tls_that_is_gone() {
    let (backend, authority) = (HoldingBackend::start(), Authority::new());
    authority.certify("a", &["a.test"]);
    let gateway = Gateway::start(&limited(&backend, "max = 2", "", &authority.server("a")));
    let connect = || Client::connect_tls(gateway.addr(), &authority.client(), "a.test");
    let leaves: [fn(Client); 2] = [Client::reset, drop];
    for (number, leave) in leaves.into_iter().cycle().take(4).enumerate() {
        let mut client = connect();
        let ahead = if number < 2 { "" } else { "GET /ahead HTTP/1.1\r\nhost: test\r\n\r\n" };
        client.write(format!("{}{ahead}", ask(&format!("/{number}"))));
        backend.holds(1);
        comes_to_hold(&gateway, 1);
        leave(client);
        comes_to_hold(&gateway, 0);
        eventually("the exchange to end", || (backend.broken_off() == number + 1).then_some(()));
    }
    for (number, leave) in leaves.into_iter().enumerate() {
        let mut client = connect();
        client.write(ask("/stream"));
        client.read_head().expect("a head");
        leave(client);
        comes_to_hold(&gateway, 0);
        eventually("the stream to end", || (backend.broken_off() == number + 5).then_some(()));
    }
}

#[test]
fn a_stream_that_waits_for_a_place_and_is_reset() {
    let backend = HoldingBackend::start();
    let limit = "max = 1\nqueue = 4\nmax_wait = \"25s\"";
    let gateway = AllVersions::start(&limited(&backend, limit, "", ""));
    let mut first = begin(&gateway, "/first");
    backend.holds(1);
    for client in gateway.clients() {
        let begin_one = |number| client.begin(request(&format!("/reset-{number}")), b"");
        let waiting: Vec<_> = (0..4).map(begin_one).collect();
        std::thread::sleep(Duration::from_millis(200));
        begin(&gateway, "/full").read().expect(429);
        waiting.into_iter().for_each(Unanswered::cancel);
        std::thread::sleep(Duration::from_millis(200));
    }
    let client = Http2::connect(gateway.addr());
    let (mut body, last) = client.begin(request("/last"));
    body.send_data(bytes::Bytes::new(), true).expect("the end of the request");
    std::thread::sleep(Duration::from_millis(200));
    backend.open();
    first.read().expect(200);
    client.finish(last).expect("an answer").expect(200);
    assert_eq!(backend.arrivals(), ["/first", "/last"]);
    fits(&gateway, &backend, 1);
}

/// Streams of one connection are requests like others.
#[test]
fn streams_of_one_connection_share_the_places_of_their_key() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 5", "", ""));
    let client = Http2::connect(gateway.addr());
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| {
            client
                .all((0..30).map(|number| (request(&format!("/{number}")), crate::harness::Body::default())))
        });
        backend.holds(5);
        let refused = || gateway.metric("tollgate_decisions_total", &["decision=\"limited\""]);
        eventually("25 refusals", || (refused() > 24.5).then_some(()));
        backend.open();
        let answers: Vec<_> =
            streams.join().expect("no panic").into_iter().map(|it| it.expect("an answer")).collect();
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 5);
        let refused = answers.iter().filter(|answer| answer.status == 429);
        assert!(refused.clone().all(|answer| answer.header("retry-after").is_none()));
        assert_eq!(refused.count(), 25);
    });
    assert_eq!(backend.max(), 5);
    fits(&gateway, &backend, 5);
}
