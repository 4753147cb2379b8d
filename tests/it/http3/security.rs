//! Addresses, credentials, certificates and places over HTTP/3: each is refused, counted and given back as over TCP.

use std::sync::Arc;

use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use super::{Http3Gateway, http3_config};
use crate::harness::config_folder::ConfigFolder;
use crate::harness::in_flight::{comes_to_hold, fits, limited};
use crate::harness::{
    AllVersions, Authority, Backend, Body, DropProxy, Gateway, HoldingBackend, Http3, Next, eventually,
    everything_to, free_address_of_datagrams, h3_get, h3_request,
};

const SECRET: &str = "a secret of 32 bytes or more, so.";

#[test]
fn addresses_that_are_denied_are_refused_in_each_form() {
    let backend = Backend::ok();
    for (server, route) in [("deny = [\"127.0.0.0/8\"]", ""), ("", "deny = [\"127.0.0.1\"]\n")] {
        let http3 = Http3Gateway::start_with(server, &everything_to(&backend, route));
        let client = http3.connect();
        let refused = client.get("/").expect(403);
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        let call = h3_request("POST", "/a.B/C", &[("content-type", "application/grpc"), ("te", "trailers")]);
        let refused = client.exchange(call, Body::default()).expect("an answer").expect(200);
        assert_eq!(refused.header("grpc-status"), Some("7"));
        let forged =
            h3_request("GET", "/", &[("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1")]);
        client.exchange(forged, Body::default()).expect("an answer").expect(403);
        let log = http3.gateway.access_log(3);
        assert!(log.iter().all(|record| record["error"] == "address_denied"), "{log:?}");
    }
    assert_eq!(backend.count(), 0);
}

#[test]
fn the_address_of_a_client_is_that_of_its_packets() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, "allow = [\"127.0.0.1\"]\n"));
    let client = http3.connect();
    let forged = h3_request("GET", "/", &[("x-forwarded-for", "192.0.2.1"), ("x-real-ip", "192.0.2.1")]);
    client.exchange(forged, Body::default()).expect("an answer").expect(200);
    assert_eq!(backend.only().header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    client.quic().change_port();
    client.get("/").expect(200);
    assert_eq!(backend.latest().header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
}

/// A request comes back by another version of HTTP.
#[test]
fn a_loop_is_found() {
    let own = free_address_of_datagrams();
    let relay = DropProxy::start(own);
    let listen = format!(
        "listen = [{{ address = \"127.0.0.1:0\", http3 = true }}, {{ address = \"{own}\", tls = false }}]\n"
    );
    let next = relay.addr();
    let route = format!(
        "[log]\nfields = [\"protocol\", \"error\"]\n[upstreams]\nnext = \"http://{next}\"\n[[routes]]\npath = \"/*\"\nupstream = \"next\"\n"
    );
    let http3 = Http3Gateway::start_listening(&listen, &route);
    http3.connect().get("/").expect(508);
    let log = http3.gateway.access_log(4);
    assert_eq!(log.iter().filter(|record| record["error"] == "loop").count(), 1, "{log:?}");
    assert_eq!(log.iter().filter(|record| record["protocol"] == "HTTP/3.0").count(), 1, "{log:?}");
}

fn token(secret: &str, expires_in: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let expires = i64::try_from(now.as_secs()).expect("a time") + expires_in;
    let claims = json!({ "sub": "tom", "exp": expires });
    encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret.as_bytes()))
        .expect("it is signed")
}

#[test]
fn tokens_are_checked() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let limit = "limits = [\"api\"]\n[limits.api]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\n\
        rate = \"2/day\"\nalign = \"first-request\"\n[auth.sso]\ntype = \"jwt\"\nsecret_env = \"TOKEN_SECRET\"\n";
    let config = everything_to(&backend, &format!("auth = \"sso\"\n{limit}"));
    let config = http3_config(&authority, "", &config);
    let gateway = Gateway::start_in(&config, &[], &[("TOKEN_SECRET", SECRET)]);
    let client = Http3::connect(gateway.addr(), &authority.client_offering(&["h3"]));
    let ask = |token: &str, more: &[(&str, &str)]| {
        let bearer = format!("Bearer {token}");
        let fields = [&[("authorization", bearer.as_str())], more].concat();
        client.exchange(h3_request("GET", "/", &fields), Body::default()).expect("an answer")
    };
    let challenged = client.get("/").expect(401);
    assert!(challenged.header("www-authenticate").is_some_and(|field| field.starts_with("Bearer")));
    for wrong in [token("another secret of 32 bytes or so", 600), token(SECRET, -600), "x".to_owned()] {
        let refused = ask(&wrong, &[]).expect(401);
        let challenge = refused.header("www-authenticate").expect("a challenge");
        assert!(challenge.contains("invalid_token"), "{challenge}");
        assert!(!String::from_utf8_lossy(&refused.body).contains(&*wrong));
    }
    let good = token(SECRET, 600);
    ask(&good, &[("x-consumer", "claimed")]).expect(200);
    assert_eq!(backend.only().header("x-consumer").as_deref(), Some("tom"));
    ask(&good, &[("authorization", "Bearer x")]).expect(400);
    ask(&good, &[]).expect(200);
    ask(&good, &[]).expect(429);
    assert_eq!(backend.count(), 2);
}

/// Guesses on many streams at once: each takes from the allowance of its address, and good keys go on.
#[test]
fn guesses_of_keys_are_bounded() {
    let backend = Backend::ok();
    let files = ConfigFolder::new(&[("consumers.csv", "key,name\nkey-of-ann,ann\n")]);
    let tables = format!(
        "auth = \"keys\"\n[limits.wrong]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\n\
         rate = \"10/day\"\n[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfailures = \"wrong\"\nfile = \"{}\"\n",
        files.path("consumers.csv").display()
    );
    let http3 = Http3Gateway::start(&everything_to(&backend, &tables));
    let ask = |key: &str| (h3_request("GET", "/", &[("x-api-key", key)]), Body::default());
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let client = |number: usize| {
            let keys = (0..60).map(move |guess| format!("guess-{number}-{guess}"));
            let http3 = &http3;
            scope.spawn(move || http3.connect().all(keys.map(|key| ask(&key))))
        };
        let clients: Vec<_> = (0..4).map(client).collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    let count =
        |status| statuses.iter().filter(|one| one.as_ref().is_ok_and(|it| it.status == status)).count();
    assert_eq!((count(401), count(429)), (10, 230));
    let good = http3.connect().all((0..20).map(|_| ask("key-of-ann")));
    assert!(good.iter().all(|answer| answer.as_ref().is_ok_and(|it| it.status == 200)));
    assert_eq!(backend.count(), 20);
}

#[test]
fn certificates_of_clients_are_counted_and_forwarded() {
    let (authority, backend) = (Authority::new(), Backend::ok());
    ["a", "one", "two"].iter().for_each(|file| authority.certify(file, &["a.test"]));
    let tls = format!("client_ca = \"{}\"\nclient_auth = \"optional\"\n", authority.path("ca.pem").display());
    let limit = "[limits.each]\nalgorithm = \"fixed-window\"\nkey = \"client-cert:cn\"\nmissing = \"deny\"\n\
        rate = \"2/day\"\nalign = \"first-request\"\n";
    let route = format!("limits = [\"each\"]\nforward_client_cert = true\n{limit}");
    let config = http3_config(&authority, "", &(tls + &everything_to(&backend, &route)));
    let gateway = Gateway::start(&config);
    let connect = |own| {
        let mut tls = (*authority.client_of(own, rustls::ALL_VERSIONS)).clone();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        Http3::connect(gateway.addr(), &Arc::new(tls))
    };
    let forged =
        || h3_request("GET", "/", &[("client-cert", ":Zm9yZ2Vk:"), ("client-cert-chain", ":Zm9yZ2Vk:")]);
    for own in ["one", "two"] {
        let statuses: Vec<_> = (0..3)
            .map(|_| connect(Some(own)).exchange(forged(), Body::default()).expect("an answer").status)
            .collect();
        assert_eq!(statuses, [200, 200, 429], "{own}");
        let seen = backend.latest();
        let certificate = seen.header("client-cert").expect("the certificate");
        assert!(!certificate.contains("Zm9yZ2Vk") && certificate.len() > 100, "{certificate}");
        assert!(seen.header("client-cert-chain").is_none_or(|chain| !chain.contains("Zm9yZ2Vk")));
    }
    let refused = connect(None).exchange(forged(), Body::default()).expect("an answer").status;
    assert!((400..500).contains(&refused), "{refused}");
    assert_eq!(backend.count(), 4);
}

/// A refusal of a call has its status in the head, whatever refuses.
#[test]
fn refusals_of_grpc_are_of_one_form() {
    let backend = Backend::ok();
    let routes = "max_body_bytes = 10\n[[routes]]\npath = \"/denied/*\"\nupstream = \"api\"\ndeny = [\"127.0.0.1\"]\n\
        [[routes]]\npath = \"/gone/*\"\nupstream = \"gone\"\n[upstreams.gone]\nservers = [\"http://127.0.0.1:1\"]\n";
    let config = everything_to(&backend, routes).replace("path = \"/*\"", "path = \"/a.B/*\"");
    let http3 = Http3Gateway::start(&config);
    let client = http3.connect();
    let call =
        |path: &str| h3_request("POST", path, &[("content-type", "application/grpc"), ("te", "trailers")]);
    for (path, length, status) in
        [("/nowhere/C", 0, "12"), ("/denied/C", 0, "7"), ("/gone/C", 0, "14"), ("/a.B/C", 11, "8")]
    {
        let answer = client.exchange(call(path), &vec![0; length][..]).expect("an answer").expect(200);
        assert_eq!(answer.header("grpc-status"), Some(status), "{path}: {:?}", answer.headers);
        assert_eq!(answer.header("content-type"), Some("application/grpc"), "{path}");
        assert!(answer.body.is_empty() && answer.trailers.is_none(), "{path}");
        assert!(answer.header("grpc-message").is_some(), "{path}");
    }
}

/// `GET path` by the client `a`.
fn of_a(path: &str) -> Request<()> {
    h3_request("GET", path, &[("x-client", "a")])
}

#[test]
fn streams_that_are_reset_give_their_places_back() {
    let backend = HoldingBackend::start();
    let gateway = AllVersions::start(&limited(&backend, "max = 5", "", ""));
    for round in 0..3 {
        let client = gateway.http3();
        let streams: Vec<_> = (0..5).map(|_| client.begin(of_a("/"))).collect();
        comes_to_hold(&gateway, 5);
        client.exchange(of_a("/more"), Body::default()).expect("an answer").expect(429);
        match round {
            0 => drop(streams),
            1 => client.end(),
            // Nothing tells but silence and resets of the library as it is dropped.
            _ => drop((streams, client)),
        }
        fits(&gateway, &backend, 5);
    }
}

#[test]
fn streams_of_one_connection_share_the_places_of_their_key() {
    let backend = HoldingBackend::start();
    let gateway = AllVersions::start(&limited(&backend, "max = 5", "", ""));
    let client = gateway.http3();
    std::thread::scope(|scope| {
        let streams =
            scope.spawn(|| client.all((0..30).map(|number| (of_a(&format!("/{number}")), Body::default()))));
        backend.holds(5);
        let refused = || gateway.metric("tollgate_decisions_total", &["decision=\"limited\""]);
        eventually("25 refusals", || (refused() > 24.5).then_some(()));
        backend.open();
        let answers = streams.join().expect("no panic");
        let count =
            |status| answers.iter().filter(|one| one.as_ref().is_ok_and(|it| it.status == status)).count();
        assert_eq!((count(200), count(429)), (5, 25));
    });
    assert_eq!(backend.max(), 5);
    fits(&gateway, &backend, 5);
}

/// A stream that waits for a place and is reset leaves the queue.
#[test]
fn a_stream_that_waits_and_is_reset_takes_no_place() {
    let backend = HoldingBackend::start();
    let gateway = AllVersions::start(&limited(&backend, "max = 1\nqueue = 4\nmax_wait = \"25s\"", "", ""));
    let waiting = |places: f64| {
        eventually("waiting requests", || {
            let waiting = gateway.metric("tollgate_concurrency_waiting", &["limit=\"x\""]);
            ((waiting - places).abs() < 0.5).then_some(())
        });
    };
    let client = gateway.http3();
    let (mut upload, first) = client.begin(of_a("/first"));
    client.end_body(&mut upload).expect("it is open");
    backend.holds(1);
    let streams: Vec<_> = (0..4).map(|number| client.begin(of_a(&format!("/reset-{number}")))).collect();
    waiting(4.0);
    client.exchange(of_a("/full"), Body::default()).expect("an answer").expect(429);
    drop(streams);
    waiting(0.0);
    let (mut upload, last) = client.begin(of_a("/last"));
    client.end_body(&mut upload).expect("it is open");
    waiting(1.0);
    backend.open();
    client.finish(first).expect("an answer").expect(200);
    client.finish(last).expect("an answer").expect(200);
    assert_eq!(backend.arrivals(), ["/first", "/last"]);
}

/// A service is asked about the request as the backend gets it, also over HTTP/3.
#[test]
fn a_service_is_asked_for_each_stream() {
    let backend = Backend::ok();
    let door = Backend::start(|exchange| {
        let status = match exchange.field("x-forwarded-uri").as_deref() {
            Some("/good") => "200 OK",
            _ => "403 Forbidden",
        };
        exchange.write(format!("HTTP/1.1 {status}\r\nx-user: ann\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let auth =
        format!("[auth.door]\ntype = \"forward\"\nurl = \"{}/\"\nheaders = [\"x-user\"]\n", door.url());
    let http3 = Http3Gateway::start(&everything_to(&backend, &format!("auth = \"door\"\n{auth}")));
    let client = http3.connect();
    client.get("/other").expect(403);
    let answers = client.all((0..20).map(|_| (h3_get("/good"), Body::default())));
    assert!(answers.into_iter().all(|answer| answer.is_ok_and(|it| it.status == 200)));
    let forged = h3_request("GET", "/good", &[("x-user", "forged"), ("x-forwarded-uri", "/x")]);
    client.exchange(forged, Body::default()).expect("an answer").expect(200);
    assert_eq!(backend.latest().header("x-user").as_deref(), Some("ann"));
    assert_eq!((door.latest().header("x-forwarded-proto").as_deref(), backend.count()), (Some("https"), 21));
}
