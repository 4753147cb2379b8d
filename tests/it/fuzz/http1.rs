//! Random and mutated bytes never break the gateway: it still answers a good request, and what it lets through is well-formed.

use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{Backend, Client, Gateway, everything_to};

/// Cases a property: enough to find what is loose, few enough for every run. `PROPTEST_CASES` sets another number.
fn runner(cases: u32) -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// One gateway for all cases, with short time-outs so that a case that sends half a request ends soon.
struct Target {
    backend: Backend,
    gateway: Gateway,
}

impl Target {
    fn start() -> Self {
        let backend = Backend::ok();
        let rest = "limits = [\"most\"]
            [limits.most]
            algorithm = \"sliding-window\"
            key = [\"header:x-key\", \"cookie:c\", \"query:q\", \"host\", \"path\"]
            rate = \"1000000/day\"
            [server]
            trusted_proxies = [\"127.0.0.0/8\"]
            header_timeout = \"500ms\"
            body_timeout = \"500ms\"
            [log]
            access = \"combined\"";
        let gateway = Gateway::start(&everything_to(&backend, rest));
        Self { backend, gateway }
    }

    /// Sends bytes and the end of the stream, reads until the end, and then asks for something good.
    fn survives(&self, bytes: &[u8]) {
        let mut client = Client::connect(self.gateway.addr());
        client.write(bytes);
        client.finish();
        while !client.read_some(1 << 20).is_empty() {}
        self.gateway.get("/alive").expect(200);
    }

    /// What the backend got, besides the good requests, has one framing, one Host and a normal target.
    fn backend_saw_only_sound_requests(&self) {
        for seen in self.backend.requests() {
            let framings =
                seen.header_all("content-length").len() + seen.header_all("transfer-encoding").len();
            assert!(framings < 2 && seen.header_all("host").len() == 1, "{}", seen.head);
            let target = seen.target();
            assert!(
                target.starts_with('/') && !target.split('?').next().unwrap_or_default().contains("//"),
                "{target}"
            );
            assert!(!seen.head.trim_end().contains('\0'), "{:?}", seen.head);
        }
    }
}

#[test]
fn random_bytes_never_break_the_gateway() {
    let target = Target::start();
    runner(150)
        .run(&vec(any::<u8>(), 0..600), |bytes| {
            target.survives(&bytes);
            Ok(())
        })
        .expect("no case breaks it");
    target.backend_saw_only_sound_requests();
}

#[test]
fn mutated_requests_never_break_the_gateway() {
    let target = Target::start();
    runner(300)
        .run(&(vec(piece(), 1..8), vec(mutation(), 0..6)), |(pieces, mutations)| {
            let mut bytes = pieces.concat();
            for mutation in mutations {
                mutation.apply(&mut bytes);
            }
            target.survives(&bytes);
            Ok(())
        })
        .expect("no case breaks it");
    target.backend_saw_only_sound_requests();
}

#[test]
fn random_answers_never_break_the_gateway() {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let scripted = Arc::clone(&answer);
    let backend = Backend::start(move |exchange| {
        if exchange.target() == "/alive" {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        } else {
            let bytes = scripted.lock().expect("no panic inside").clone();
            exchange.write(bytes);
        }
        crate::harness::Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "timeout = \"1s\"\nread_timeout = \"1s\""));
    runner(200)
        .run(&(vec(answer_piece(), 1..6), vec(mutation(), 0..4)), |(pieces, mutations)| {
            let mut bytes = pieces.concat();
            for mutation in mutations {
                mutation.apply(&mut bytes);
            }
            *answer.lock().expect("no panic inside") = bytes;
            let mut client = Client::connect(gateway.addr());
            client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
            // Whole, cut or refused: but never two responses to one request, nor a malformed one.
            if let Err(crate::harness::Fault::Malformed(what)) = client.try_read("GET") {
                panic!("{what}");
            }
            gateway.get("/alive").expect(200);
            Ok(())
        })
        .expect("no case breaks it");
}

/// What requests are made of, good and bad.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..],
        b"POST /a/../b?q=%31 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nx-key: k\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nt: v\r\n\r\n",
        b"HEAD //x%2e%2e/%7e HTTP/1.0\r\ncookie: c=1; d\r\n\r\n",
        b"GET http://a:80/x HTTP/1.1\r\nhost: a:80\r\nx-forwarded-for: 1.1.1.1, [::1]:2, _x\r\nforwarded: for=\"[::1]\"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, x\r\nupgrade: websocket\r\nx: y\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nx",
        b"GET /",
        b" HTTP/1.1\r\n",
        b"\r\n\r\n",
        b"transfer-encoding: chunked\r\n",
        b"content-length: 5\r\n",
        b"0\r\n\r\n",
    ])
    .prop_map(<[u8]>::to_vec)
}

/// What answers are made of.
fn answer_piece() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nt: v\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nconnection: x\r\nx: y\r\nratelimit: \"a\";r=1\r\n",
        b"\r\n",
        b"content-length: 9\r\n",
    ])
    .prop_map(<[u8]>::to_vec)
}

#[derive(Clone, Debug)]
enum Mutation {
    Replace(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Double(prop::sample::Index),
    Truncate(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(b"\r\n\t :;,/%.\0".to_vec())];
    prop_oneof![
        (at(), byte()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (at(), byte()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        at().prop_map(Mutation::Remove),
        at().prop_map(Mutation::Double),
        at().prop_map(Mutation::Truncate),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match self {
            Self::Replace(at, byte) => bytes[at.index(length)] = *byte,
            Self::Insert(at, byte) => bytes.insert(at.index(length), *byte),
            Self::Remove(at) => drop(bytes.remove(at.index(length))),
            Self::Double(at) => bytes.extend_from_within(at.index(length)..),
            Self::Truncate(at) => bytes.truncate(at.index(length)),
        }
    }
}
