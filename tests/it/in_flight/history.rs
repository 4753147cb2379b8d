//! A random history of requests that begin and end in all ways: after each step the places held are the requests in
//! flight.

use crate::harness::in_flight::{ask_with, comes_to_hold, fits, held, limited};
use crate::harness::{Client, Gateway, HoldingBackend, eventually};

const MAX: usize = 6;
const STEPS: usize = 150;
const KINDS: [Kind; 4] = [Kind::Plain, Kind::Stream, Kind::Upload, Kind::Tunnel];

/// What a request is, while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Its response is awaited.
    Plain,
    /// A part of its response has been read.
    Stream,
    /// A part of its body has been sent.
    Upload,
    Tunnel,
}

#[derive(Debug)]
struct InFlight {
    client: Client,
    target: String,
    kind: Kind,
}

struct History<'a> {
    random: fastrand::Rng,
    gateway: &'a Gateway,
    backend: &'a HoldingBackend,
    present: Vec<InFlight>,
    begun: usize,
    steps: Vec<String>,
}

impl History<'_> {
    fn step(&mut self) {
        let action = self.random.usize(0..8);
        if action < 4 || self.present.is_empty() {
            return self.begin();
        }
        let index = self.random.usize(0..self.present.len());
        let mut request = self.present.swap_remove(index);
        self.steps.push(format!("{action}: {:?} {}", request.kind, request.target));
        match action {
            4 => self.end(request),
            5 => request.client.reset(),
            6 => request.client.finish(),
            _ => drop(request.client),
        }
    }

    fn begin(&mut self) {
        self.begun += 1;
        if self.random.usize(0..8) == 0 && self.present.len() < MAX {
            self.steps.push("late".to_owned());
            let mut client = Client::connect(self.gateway.addr());
            client.exchange(ask_with("/late", "")).expect(504);
            return;
        }
        let kind = KINDS[self.random.usize(0..KINDS.len())];
        let target = format!("/{}-{}", format!("{kind:?}").to_lowercase(), self.begun);
        self.steps.push(format!("begin {target} beside {}", self.present.len()));
        let mut client = Client::connect(self.gateway.addr());
        client.write(match kind {
            Kind::Plain | Kind::Stream => ask_with(&target, ""),
            Kind::Upload => ask_with(&target, "content-length: 9\r\n").replace("GET", "POST") + "four",
            Kind::Tunnel => ask_with(&target, "connection: upgrade\r\nupgrade: websocket\r\n"),
        });
        if self.present.len() == MAX {
            let refused = client.read_head().expect("a response");
            assert_eq!(refused.status, 429, "beside {MAX} requests: {}", refused.head);
            return;
        }
        match kind {
            Kind::Stream => {
                assert_eq!(client.read_head().expect("a head").status, 200);
                client.read_exact(7).expect("the first chunk");
            }
            Kind::Tunnel => assert_eq!(client.read_head().expect("a head").status, 101),
            Kind::Plain | Kind::Upload => {
                eventually("the request at the backend", || {
                    self.backend.arrivals().contains(&target).then_some(())
                });
            }
        }
        self.present.push(InFlight { client, target, kind });
    }

    fn end(&mut self, mut request: InFlight) {
        self.backend.release(&request.target);
        match request.kind {
            Kind::Plain => _ = request.client.read().expect(200),
            Kind::Stream => _ = request.client.read_exact(5).expect("the last chunk"),
            Kind::Upload => {
                request.client.write("bytes");
                request.client.read().expect(200);
            }
            Kind::Tunnel => assert!(request.client.closes()),
        }
    }
}

#[test]
fn places_held_are_requests_in_flight() {
    let seed = std::env::var("TOLLGATE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let backend = HoldingBackend::start();
    let late = "[[routes]]\nname = \"late\"\npath = \"/late\"\nupstream = \"api\"\nlimits = [\"x\"]\ntimeout = \"50ms\"\n";
    let gateway = Gateway::start(&limited(&backend, &format!("max = {MAX}"), "", late));
    let random = fastrand::Rng::with_seed(seed);
    let mut history = History {
        random,
        gateway: &gateway,
        backend: &backend,
        present: Vec::new(),
        begun: 0,
        steps: Vec::new(),
    };
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            history.step();
            comes_to_hold(&gateway, history.present.len() as u64);
        }
    }));
    if played.is_err() {
        panic!(
            "TOLLGATE_TEST_SEED={seed}: {} requests in flight, {} places held, after\n{}",
            history.present.len(),
            held(&gateway),
            history.steps.join("\n")
        );
    }
    history.present.clear();
    fits(&gateway, &backend, MAX);
}
