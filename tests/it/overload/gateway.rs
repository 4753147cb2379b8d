//! `max = "auto"` through the gateway.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::api::api;
use crate::harness::{Backend, Client, Gateway, Next, eventually, get_with};

/// A backend with so many workers, each of which takes so long for a request.
fn pool(workers: usize, span: Duration) -> Backend {
    let free = Arc::new((Mutex::new(workers), Condvar::new()));
    Backend::start(move |exchange| {
        let (count, freed) = &*free;
        let mut left = freed.wait_while(count.lock().unwrap(), |left| *left == 0).unwrap();
        *left -= 1;
        drop(left);
        thread::sleep(span);
        *count.lock().unwrap() += 1;
        freed.notify_one();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

fn toml(backend: &Backend, limit: &str) -> String {
    format!(
        "[upstreams]\napi = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n\
         [limits.api]\nalgorithm = \"concurrency\"\nkey = \"global\"\nmax = \"auto\"\n{limit}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"api\"]\n",
        backend.url()
    )
}

fn found(gateway: &Gateway) -> u64 {
    api(gateway, "limits")["limits"][0]["in_flight"]["found_max"].as_u64().unwrap_or_default()
}

/// Sixty clients ask for five seconds without a rest, a backend that works on four requests at a time.
#[test]
fn the_capacity_of_a_backend_is_found() {
    let backend = pool(4, Duration::from_millis(20));
    let gateway = Gateway::start(&toml(&backend, "queue = 100\nmax_wait = \"2s\""));
    let (end, passed) = (Instant::now() + Duration::from_secs(5), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.addr());
                while Instant::now() < end {
                    let response = client.get("/", "");
                    assert!([200, 503].contains(&response.status), "{}", response.head);
                    passed.fetch_add(usize::from(response.status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    let (max, passed) = (found(&gateway), passed.into_inner());
    // Six by the model; a busy machine is a slower backend at times. The ceiling is a thousand.
    assert!((4..200).contains(&max), "{max}");
    // A thousand at most; a busy machine does less.
    assert!(passed > 200, "{passed}");
    assert!(gateway.metric("tollgate_concurrency_max", &["limit=\"api\""]) > 3.5);
    // A reload leaves what was found.
    gateway.reload(&toml(&backend, "queue = 99\nmax_wait = \"2s\""), "reloaded");
    assert!(found(&gateway).abs_diff(max) <= 1);
}

/// More than the backend takes is 503 with an estimated wait, and with a status of its own if the limit has one.
#[test]
fn what_is_too_much_gets_503() {
    let backend = pool(1, Duration::from_millis(500));
    let gateway = Gateway::start(&toml(&backend, "ceiling = 4\nmin = 1"));
    let statuses = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let response = get_with(gateway.addr(), "/", "");
                statuses.lock().unwrap().push(response.status);
                if response.status == 503 {
                    let wait: u64 = response.header("retry-after").unwrap().parse().unwrap();
                    assert!((1..=2).contains(&wait), "{wait}");
                    assert!(response.text().contains("the service is overloaded (limit `api`)"));
                }
            });
        }
    });
    let statuses = statuses.into_inner().unwrap();
    let of = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((of(200) + of(503), statuses.len()), (12, 12), "{statuses:?}");
    assert!(of(503) >= 8, "{statuses:?}");
    eventually("the refusals in the list", || {
        let refusals = api(&gateway, "refusals");
        let reason = refusals["refusals"][0]["reason"].as_str()?.to_owned();
        (reason == "the backend is overloaded").then_some(())
    });
}

/// Fast errors of a server are passed on as they are, and are no reason to admit less.
#[test]
fn errors_of_a_bad_deploy_are_passed_on() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&toml(&backend, "queue = 10"));
    let mut client = Client::connect(gateway.addr());
    (0..300).for_each(|_| assert_eq!(client.get("/", "").status, 500));
    assert_eq!(found(&gateway), 20, "as at the start");
}

/// A cost above what is found, but not above the ceiling, has to wait until it is alone.
#[test]
fn a_large_cost_is_admitted_alone() {
    let backend = pool(4, Duration::from_millis(1_500));
    let text = toml(&backend, "min = 2\nceiling = 50");
    let large = "[[routes]]\nname = \"large\"\npath = \"/large\"\nupstream = \"api\"\nlimits = [\"api\"]\ncost = 40\n";
    let gateway = Gateway::start(&format!("{text}{large}"));
    assert_eq!(gateway.get("/large").status, 200);
    let holds = |places: u64| {
        let held = || api(&gateway, "limits")["limits"][0]["in_flight"]["held"] == places;
        eventually(&format!("{places} places held"), || held().then_some(()));
    };
    holds(0);
    let mut small = Client::connect(gateway.addr());
    small.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    holds(1);
    let refused = gateway.get("/large");
    assert_eq!(refused.status, 503, "{}", refused.head);
    small.read().expect(200);
    holds(0);
    assert_eq!(gateway.get("/large").status, 200);
}

/// A limit with shares whose backend works on four requests at a time, for 40 ms each.
fn shared(backend: &Backend, limit: &str) -> String {
    toml(backend, limit).replace("key = \"global\"\nmax = \"auto\"", "key = \"upstream\"\nmax = 4")
}

/// Twelve connections of one tenant, and another tenant that asks now and then.
#[test]
fn a_noisy_tenant_gets_429_and_another_is_served() {
    let backend = pool(4, Duration::from_millis(40));
    let limit = "queue = 8\nmax_wait = \"2s\"\nshare_by = \"header:x-tenant\"";
    let gateway = Gateway::start(&shared(&backend, limit));
    let end = Instant::now() + Duration::from_secs(3);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.addr());
                while Instant::now() < end {
                    let response = client.get("/", "x-tenant: noisy\r\n");
                    match response.status {
                        200 => {}
                        429 => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            assert!(response.header("retry-after").is_some(), "{}", response.head);
                            assert!(response.text().contains("more than its share of limit `api`"));
                        }
                        // Nothing of the other tenant was there at this moment.
                        503 => assert!(response.text().contains("overloaded"), "{}", response.head),
                        status => panic!("{status}"),
                    }
                    if response.status != 200 {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        let mut client = Client::connect(gateway.addr());
        while Instant::now() < end {
            assert_eq!(client.get("/", "x-tenant: quiet\r\n").status, 200);
        }
    });
    assert!(refused.into_inner() > 0);
    let dropped = gateway.metric("tollgate_queue_drops_total", &["limit=\"api\"", "reason=\"queue_full\""]);
    assert!(dropped > 0.0, "{dropped}");
    assert!(gateway.metric("tollgate_queue_wait_seconds_count", &["limit=\"api\""]) > 0.0);
}

/// Full because of the upstream: that is no fault of the client.
#[test]
fn a_limit_by_upstream_is_full_with_503() {
    let backend = pool(1, Duration::from_millis(700));
    let text = shared(&backend, "").replace("max = 4", "max = 1");
    let gateway = Gateway::start(&text);
    let mut first = Client::connect(gateway.addr());
    first.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let held = || api(&gateway, "limits")["limits"][0]["in_flight"]["held"] == 1;
    eventually("the place is held", || held().then_some(()));
    let refused = gateway.get("/");
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert!(refused.header("retry-after").is_some());
    first.read().expect(200);
}

/// Requests of a route with a high priority come before those that waited longer, and background ones leave a place free.
#[test]
fn priorities_of_routes() {
    // The first request waits at the gate, the second until four have come, and the others end at once.
    let come = Arc::new((Mutex::new(Vec::<String>::new()), Condvar::new()));
    let backend = Backend::start({
        let come = Arc::clone(&come);
        move |exchange| {
            let (order, more) = &*come;
            let mut order = order.lock().unwrap();
            order.push(exchange.target().to_owned());
            more.notify_all();
            match order.len() {
                1 => {
                    drop(order);
                    exchange.wait_at_gate();
                }
                2 => drop(more.wait_while(order, |order| order.len() < 4).unwrap()),
                _ => drop(order),
            }
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            Next::KeepAlive
        }
    });
    let route = |name: &str, priority: &str| {
        format!(
            "[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"api\"\nlimits = [\"api\"]\npriority = \"{priority}\"\n"
        )
    };
    let text = shared(&backend, "queue = 20\nmax_wait = \"10s\"").replace("max = 4", "max = 2");
    let gateway = Gateway::start(&(text + &route("first", "high") + &route("last", "background")));
    let in_flight = |kind: &str, number: u64| {
        let is = || api(&gateway, "limits")["limits"][0]["in_flight"][kind] == number;
        eventually(&format!("{number} {kind}"), || is().then_some(()));
    };
    let come_to = |number: usize| {
        eventually("the backend to have it", || (come.0.lock().unwrap().len() == number).then_some(()));
    };
    thread::scope(|scope| {
        let ask = |path: &'static str| {
            let gateway = &gateway;
            scope.spawn(move || assert_eq!(gateway.get(path).status, 200));
        };
        // Of two places one stays free of background requests.
        ask("/last");
        come_to(1);
        ask("/last");
        in_flight("waiting", 1);
        ask("/normal");
        come_to(2);
        ask("/normal");
        in_flight("waiting", 2);
        ask("/first");
        in_flight("waiting", 3);
        backend.open_gate();
    });
    let order = come.0.lock().unwrap();
    assert_eq!(*order, ["/last", "/normal", "/first", "/normal", "/last"]);
}
