//! Places of concurrency limits in a shared store: counted over all gateways, and never held by one that died.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::in_flight::{all_gone, ask, begin, comes_to_hold, fits, held, limited};
use crate::harness::{Gateway, HoldingBackend, Load, Redis, eventually};

/// The store has all the time it wants, so that a busy machine makes no gateway count alone.
fn shared(backend: &HoldingBackend, redis: &Redis, limit: &str) -> String {
    with_store(backend, redis, limit, "timeout = \"5s\"")
}

fn with_store(backend: &HoldingBackend, redis: &Redis, limit: &str, lines: &str) -> String {
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\n{lines}\n", redis.url());
    limited(backend, limit, "", &store)
}

/// Gateways that have reached the store.
fn fleet<const COUNT: usize>(toml: &str) -> [Gateway; COUNT] {
    std::array::from_fn(|_| {
        let gateway = Gateway::start(toml);
        eventually("the store to be up", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
        gateway
    })
}

#[test]
fn three_gateways_under_load_never_exceed_max() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let gateways: [_; 3] = fleet(&shared(&backend, &redis, "max = 10"));
    let addresses = gateways.each_ref().map(Gateway::addr);
    let statuses = Load { requests: 4_000, concurrency: 60 }.run_over(&addresses, |_| ask("/quick"));
    let (admitted, refused) = (statuses[&200], statuses[&429]);
    assert_eq!(admitted + refused, 4_000, "{statuses:?}");
    assert_eq!((backend.max(), backend.arrivals().len()), (10, admitted));
    for gateway in &gateways {
        fits(gateway, &backend, 10);
    }
}

/// Its places are free as soon as their leases end, and no earlier; its death costs no others.
#[test]
fn places_of_a_gateway_that_dies_are_free_within_15_seconds() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let [mut dying, one, other] = fleet(&shared(&backend, &redis, "max = 6"));
    let _lost = [begin(&dying, "/lost-1"), begin(&dying, "/lost-2")];
    let mut kept =
        [begin(&one, "/kept-1"), begin(&one, "/kept-2"), begin(&other, "/kept-3"), begin(&other, "/kept-4")];
    backend.holds(6);
    begin(&other, "/refused").read().expect(429);
    // In the middle of other requests.
    for _ in 0..20 {
        begin(&dying, "/refused").read().expect(429);
    }
    dying.signal(Signal::KILL);
    let died = Instant::now();
    dying.wait_for_exit();
    backend.holds(4);
    assert_eq!(held(&one), 6, "the leases of its requests have not ended");
    begin(&one, "/refused").read().expect(429);
    comes_to_hold(&one, 4);
    let after = died.elapsed();
    // A lease lasts 14 s and is renewed after 5 at the latest; the rest is for a busy machine.
    assert!((8..17).contains(&after.as_secs()), "{after:?}");
    let mut more = [begin(&one, "/more-1"), begin(&other, "/more-2")];
    backend.holds(6);
    begin(&other, "/refused").read().expect(429);
    backend.open();
    for client in kept.iter_mut().chain(&mut more) {
        client.read().expect(200);
    }
    fits(&one, &backend, 6);
}

#[test]
fn a_request_that_outlives_its_lease_keeps_its_place() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let [one, other] = fleet(&shared(&backend, &redis, "max = 1"));
    let mut long = begin(&one, "/long");
    backend.holds(1);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(17) {
        for gateway in [&one, &other] {
            begin(gateway, "/refused").read().expect(429);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    backend.release("/long");
    long.read().expect(200);
    fits(&other, &backend, 1);
}

/// The releases of a busy gateway leave it the time for renewals.
#[test]
fn a_busy_gateway_renews_its_places() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let echo = "[[routes]]\npath = \"/echo\"\nupstream = \"echo\"\nlimits = [\"x\"]\n[server]\nworkers = 1\n";
    let store = redis.store_table();
    let toml = limited(&backend, "max = 50", "", &format!("{echo}{store}"));
    let [one, other] = fleet(&toml.replace("[upstreams]\n", "[upstreams]\necho = \"builtin:echo\"\n"));
    let mut long = begin(&one, "/long");
    backend.holds(1);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(16) {
        let load = Load { requests: 2_000, concurrency: 16 };
        load.run(one.addr(), |_| "GET /echo HTTP/1.1\r\nhost: test\r\nx-client: b\r\n\r\n".to_owned());
        // A burst takes longer than this pause: the gateway is busy for most of the time, and the machine has other tests.
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(held(&other), 1);
    backend.release("/long");
    long.read().expect(200);
    comes_to_hold(&other, 0);
}

#[test]
fn a_client_that_is_gone_frees_its_place_at_once() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let [one, other] = fleet(&shared(&backend, &redis, "max = 1"));
    for number in 0..3 {
        let client = begin(&one, &format!("/gone-{number}"));
        backend.holds(1);
        begin(&other, "/refused").read().expect(429);
        let left = Instant::now();
        match number {
            0 => client.reset(),
            1 => drop(client),
            _ => {
                let mut client = client;
                client.finish();
                assert!(client.closes());
            }
        }
        comes_to_hold(&other, 0);
        assert!(left.elapsed() < Duration::from_secs(5), "{:?}", left.elapsed());
        backend.holds(0);
    }
    // Gone before the store has answered.
    for _ in 0..50 {
        begin(&one, "/gone").reset();
    }
    all_gone(&one, 3 + 50);
    fits(&other, &backend, 1);
}

/// Without its store each gateway counts for itself; when the store is back, empty, it learns of the requests in flight.
#[test]
fn local_counting_goes_on_and_the_store_learns_of_it() {
    let (backend, mut redis) = (HoldingBackend::start(), Redis::start());
    let lines = "timeout = \"100ms\"\non_error = \"local\"";
    let [one, other] = fleet(&with_store(&backend, &redis, "max = 2", lines));
    let mut clients = vec![begin(&one, "/1")];
    backend.holds(1);
    redis.kill();
    // It knows of its own request.
    clients.push(begin(&one, "/2"));
    backend.holds(2);
    begin(&one, "/refused").read().expect(429);
    clients.extend([begin(&other, "/3"), begin(&other, "/4")]);
    backend.holds(4);
    begin(&other, "/refused").read().expect(429);
    redis.restart();
    for gateway in [&one, &other] {
        eventually("the store to be up", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
        // Renewed after five seconds at the latest.
        comes_to_hold(gateway, 2);
        begin(gateway, "/refused").read().expect(429);
    }
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    fits(&one, &backend, 2);
}

#[test]
fn without_the_store_a_limit_allows_or_denies_as_the_file_says() {
    for (on_error, status) in [("allow", 200), ("deny", 503)] {
        let (backend, mut redis) = (HoldingBackend::start(), Redis::start());
        let lines = format!("timeout = \"100ms\"\non_error = \"{on_error}\"");
        let [gateway] = fleet(&with_store(&backend, &redis, "max = 1", &lines));
        let mut first = begin(&gateway, "/first");
        backend.holds(1);
        begin(&gateway, "/refused").read().expect(429);
        redis.kill();
        let mut clients: Vec<_> = (0..5).map(|number| begin(&gateway, &format!("/{number}"))).collect();
        if status == 200 {
            backend.holds(6);
        }
        backend.open();
        first.read().expect(200);
        for client in &mut clients {
            client.read().expect(status);
        }
        let errors = gateway.metric("tollgate_store_errors_total", &[]);
        assert!((errors - 5.0).abs() < 0.5, "{errors} requests were decided without the store");
        redis.restart();
        eventually("the store to be up", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
        fits(&gateway, &backend, 1);
    }
}

/// Each gateway queues for itself, in order; places of one are found by the queue of the other.
#[test]
fn each_gateway_has_a_queue_of_its_own() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let [one, other] = fleet(&shared(&backend, &redis, "max = 1\nqueue = 3\nmax_wait = \"25s\""));
    let mut first = begin(&one, "/first");
    backend.holds(1);
    let mut waiting = Vec::new();
    for number in 0..3 {
        for (name, gateway) in [("one", &one), ("other", &other)] {
            waiting.push(begin(gateway, &format!("/{name}-{number}")));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    for gateway in [&one, &other] {
        begin(gateway, "/full").read().expect(429);
    }
    assert_eq!((backend.present(), held(&other)), (1, 1));
    backend.open();
    first.read().expect(200);
    for client in &mut waiting {
        client.read().expect(200);
    }
    let arrived = backend.arrivals();
    for name in ["one", "other"] {
        let of_it: Vec<_> =
            arrived.iter().filter(|target| target.starts_with(&format!("/{name}-"))).collect();
        assert_eq!(of_it, [0, 1, 2].map(|number| format!("/{name}-{number}")).iter().collect::<Vec<_>>());
    }
    assert_eq!((backend.max(), arrived.len()), (1, 7));
    fits(&one, &backend, 1);
}

/// A request for many places is not overtaken by requests for few of its gateway, although the store has places.
#[test]
fn a_request_that_costs_more_keeps_its_turn() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let large =
        "[[routes]]\nname = \"large\"\npath = \"/large\"\nupstream = \"api\"\nlimits = [\"x\"]\ncost = 2\n";
    let limit = "max = 2\nqueue = 3\nmax_wait = \"25s\"";
    let [gateway] = fleet(&format!("{}{large}", shared(&backend, &redis, limit)));
    let mut first = begin(&gateway, "/first");
    backend.holds(1);
    let mut large = begin(&gateway, "/large");
    std::thread::sleep(Duration::from_millis(200));
    let mut late = begin(&gateway, "/late");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(
        (backend.present(), held(&gateway)),
        (1, 1),
        "the free place is kept for the request before it"
    );
    backend.release("/first");
    first.read().expect(200);
    backend.has_got(2);
    assert_eq!((backend.arrivals()[1].as_str(), held(&gateway)), ("/large", 2));
    backend.open();
    large.read().expect(200);
    late.read().expect(200);
    fits(&gateway, &backend, 2);
}

/// The place of a request that ends while its gateway drains is free at once, not when its lease ends.
#[test]
fn a_gateway_that_ends_leaves_no_places_behind() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let [mut ending, other] = fleet(&shared(&backend, &redis, "max = 2"));
    for target in ["/before-1", "/before-2"] {
        backend.release(target);
        begin(&ending, target).read().expect(200);
    }
    // The store learns of an end soon after the client.
    comes_to_hold(&ending, 0);
    let mut clients = [begin(&ending, "/last-1"), begin(&ending, "/last-2")];
    backend.holds(2);
    ending.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    assert_eq!(ending.wait_for_exit().code(), Some(0));
    let ended = Instant::now();
    fits(&other, &backend, 2);
    assert!(ended.elapsed() < Duration::from_secs(6), "{:?}", ended.elapsed());
}

/// A reload replaces what asks the store, but not the requests in flight.
#[test]
fn a_reload_loses_no_place_and_keeps_none() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let toml = |lines: &str| with_store(&backend, &redis, "max = 2", &format!("timeout = \"5s\"\n{lines}"));
    let [one, other] = fleet(&toml(""));
    for (round, lines) in ["", "on_error = \"allow\"", "prefix = \"other:\"", ""].into_iter().enumerate() {
        let target = format!("/{round}");
        let mut client = begin(&one, &target);
        backend.holds(1);
        assert_eq!(held(&other), 1, "in round {round}");
        one.reload(&toml(lines), "reload");
        backend.release(&target);
        client.read().expect(200);
        let ended = Instant::now();
        comes_to_hold(&other, 0);
        assert!(ended.elapsed() < Duration::from_secs(6), "in round {round}: {:?}", ended.elapsed());
        one.reload(&toml(""), "reload");
    }
}

#[test]
fn a_request_that_outlives_a_reload_keeps_its_place() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let toml = |lines: &str| with_store(&backend, &redis, "max = 1", &format!("timeout = \"5s\"\n{lines}"));
    let [one, other] = fleet(&toml(""));
    let mut long = begin(&one, "/long");
    backend.holds(1);
    one.reload(&toml("on_error = \"allow\""), "reload");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(17) {
        begin(&other, "/refused").read().expect(429);
        std::thread::sleep(Duration::from_millis(500));
    }
    backend.release("/long");
    long.read().expect(200);
    fits(&other, &backend, 1);
}

/// Two limits, each with a queue in both gateways: no request is forgotten, and none takes a part of its places.
#[test]
fn requests_under_two_limits_all_have_their_turn() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let queue = "max = 2\nqueue = 100\nmax_wait = \"28s\"";
    let other = format!("[limits.y]\nalgorithm = \"concurrency\"\nkey = \"header:x-org\"\n{queue}\n");
    let store = redis.store_table();
    let gateways: [_; 2] =
        fleet(&limited(&backend, queue, "limits = [\"x\", \"y\"]", &format!("{other}{store}")));
    let addresses = gateways.each_ref().map(Gateway::addr);
    let statuses = Load { requests: 120, concurrency: 16 }.run_over(&addresses, |number| {
        let (client, org) = (["a", "b"][number % 2], ["o", "p", "q"][number % 3]);
        format!("GET /quick HTTP/1.1\r\nhost: test\r\nx-client: {client}\r\nx-org: {org}\r\n\r\n")
    });
    assert_eq!(statuses, std::collections::BTreeMap::from([(200, 120)]));
    let errors = gateways.each_ref().map(|gateway| gateway.metric("tollgate_store_errors_total", &[]));
    assert!(backend.max() <= 4, "{} at once; decided without the store: {errors:?}", backend.max());
    comes_to_hold(&gateways[0], 0);
    eventually("no keys in the store", || redis.keys().is_empty().then_some(()));
}

/// A request that leaves the queue without a place, since no request waits before it any more, asks the store all the same.
#[test]
fn requests_from_a_queue_never_exceed_max() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let gateways: [_; 2] = fleet(&shared(&backend, &redis, "max = 2\nqueue = 100\nmax_wait = \"28s\""));
    let addresses = gateways.each_ref().map(Gateway::addr);
    let statuses = Load { requests: 100, concurrency: 16 }.run_over(&addresses, |_| ask("/quick"));
    assert_eq!((statuses[&200], backend.max()), (100, 2), "{statuses:?}");
    fits(&gateways[0], &backend, 2);
}

/// Waits until the store holds no place, and asserts that all were released before they expired.
#[track_caller]
fn all_are_released(redis: &Redis) {
    let mut expires = f64::INFINITY;
    let now = eventually("no place in the store", || {
        let keys = redis.keys();
        for key in &keys {
            let last = redis.command(["ZREVRANGE", key, "0", "0", "WITHSCORES"]);
            if let [_, at] = last.list() {
                expires = at.text().parse().expect("µs");
            }
        }
        let time = redis.command(["TIME"]);
        keys.is_empty().then(|| time.list()[0].text().parse::<f64>().expect("s") * 1e6)
    });
    assert!(now + 2e6 < expires, "they were free at {now}, and expired at {expires}");
}

/// A server that is stopped executes later what it was sent, and is told later what has ended meanwhile.
#[test]
fn a_store_that_stops_for_a_while_holds_no_place_of_a_request_that_has_ended() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let lines = "timeout = \"50ms\"\non_error = \"local\"";
    let [gateway] = fleet(&with_store(&backend, &redis, "max = 40", lines));
    let is_up = || gateway.metric("tollgate_store_up", &[]) > 0.5;
    for busy in ["/busy-1", "/busy-2", "/busy-3"] {
        let mut client = begin(&gateway, busy);
        backend.holds(1);
        redis.stop();
        eventually("the store to be away", || {
            begin(&gateway, "/quick").read().expect(200);
            (!is_up()).then_some(())
        });
        backend.release(busy);
        client.read().expect(200);
        redis.resume();
        eventually("the store to be up", || is_up().then_some(()));
        all_are_released(&redis);
        backend.holds(0);
    }
    fits(&gateway, &backend, 40);
}

/// What the store holds for the other limit is released as soon as the request ends.
#[test]
fn a_request_for_which_a_shadow_limit_has_no_place_leaves_none_behind() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let shadow = "[limits.y]\nalgorithm = \"concurrency\"\nkey = \"global\"\nmax = 1\nmode = \"shadow\"\n";
    let store =
        format!("{shadow}[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"5s\"\n", redis.url());
    let [gateway] = fleet(&limited(&backend, "max = 9", "limits = [\"x\", \"y\"]", &store));
    let mut clients = [begin(&gateway, "/1"), begin(&gateway, "/2"), begin(&gateway, "/3")];
    backend.holds(3);
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    all_are_released(&redis);
}
