//! `share_by` of a leaky bucket, through the gateway.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Backend, Client, Gateway, Redis, eventually};

/// Forty requests a second leave, ten wait.
fn toml(backend: &Backend, store: &str, limit: &str) -> String {
    format!(
        "[upstreams]\napi = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n{store}\
         [limits.api]\nalgorithm = \"leaky-bucket\"\nkey = \"upstream\"\nrate = \"40/s\"\nqueue = 10\nmax_wait = \"5s\"\n\
         share_by = \"header:x-tenant\"\n{limit}\n\
         [[routes]]\nname = \"high\"\npath = \"/high\"\nupstream = \"api\"\nlimits = [\"api\"]\npriority = \"high\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"api\"]\n",
        backend.url()
    )
}

/// Twenty connections of one tenant that ask all the time, and another tenant that has one request at a time.
/// Of the other tenant at most `refused_for_each` requests are refused for one that passes, and it gets at least one in
/// `one_in` of all slots.
fn a_noisy_tenant_waits_for_itself(gateway: &Gateway, refused_for_each: usize, one_in: usize) {
    let end = Instant::now() + Duration::from_secs(3);
    let (refused, passed, quiet) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let refused_quiet = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.addr());
                while Instant::now() < end {
                    let response = client.get("/", "x-tenant: noisy\r\n");
                    match response.status {
                        200 => _ = passed.fetch_add(1, Ordering::Relaxed),
                        429 => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            assert!(response.header("retry-after").is_some(), "{}", response.head);
                            thread::sleep(Duration::from_millis(5));
                        }
                        status => panic!("{status}"),
                    }
                }
            });
        }
        let mut client = Client::connect(gateway.addr());
        // The others fill the queue first.
        thread::sleep(Duration::from_millis(300));
        while Instant::now() < end {
            let response = client.get("/", "x-tenant: quiet\r\n");
            assert!([200, 429].contains(&response.status), "{}", response.head);
            let counted = if response.status == 200 { &quiet } else { &refused_quiet };
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (refused, passed, quiet) = (refused.into_inner(), passed.into_inner(), quiet.into_inner());
    assert!(refused > 0);
    let refused_quiet = refused_quiet.into_inner();
    assert!(
        refused_quiet <= quiet * refused_for_each,
        "{refused_quiet} of the quiet tenant refused, {quiet} passed"
    );
    // First come, first served would be one in eleven.
    assert!(quiet * one_in >= passed + quiet, "{quiet} of the quiet tenant, {passed} of the noisy one");
    let ended = end.elapsed().as_secs_f64() + 3.0;
    // The bucket's rate, and the request that found it empty.
    assert!((passed + quiet) as f64 <= 40.0 * ended + 1.5, "{passed} and {quiet} in {ended} s");
    let dropped = gateway.metric("tollgate_queue_drops_total", &["limit=\"api\"", "reason=\"queue_full\""]);
    assert!(dropped > 0.0, "{dropped}");
    assert!(gateway.metric("tollgate_queue_wait_seconds_count", &["limit=\"api\""]) > 0.0);
    let answered = u32::try_from(passed + quiet).expect("hundreds");
    gateway.has_counted("tollgate_requests_total", &["code=\"200\""], answered);
}

#[test]
fn a_noisy_tenant_waits_for_itself_in_memory() {
    let backend = Backend::ok();
    a_noisy_tenant_waits_for_itself(&Gateway::start(&toml(&backend, "", "")), 0, 5);
}

#[test]
fn a_noisy_tenant_waits_for_itself_beside_redis() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    // Requests that the server is deciding do not wait yet, and cannot give way: on a busy machine these are many.
    a_noisy_tenant_waits_for_itself(&Gateway::start(&toml(&backend, &redis.store_table(), "")), 2, 8);
}

/// Requests that wait leave in the slots of those whose clients have gone, and by priority.
#[test]
fn slots_of_clients_that_leave_are_used() {
    let backend = Backend::ok();
    let text = toml(&backend, "", "").replace("40/s", "30/min").replace("5s", "30s");
    let gateway = Gateway::start(&text);
    assert_eq!(gateway.get("/").status, 200);
    let ask = |path: &str, tenant: &str| {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-tenant: {tenant}\r\n\r\n"));
        client
    };
    let held = |count: f64| {
        let waiting = || gateway.metric("tollgate_requests_in_flight", &[]);
        eventually("the requests wait", || ((waiting() - count).abs() < 0.5).then_some(()));
    };
    let begun = Instant::now();
    let first: Vec<_> = (0..4).map(|_| ask("/", "a")).collect();
    held(4.0);
    let mut low = ask("/", "b");
    held(5.0);
    let mut high = ask("/high", "c");
    held(6.0);
    drop(first);
    // Slots are two seconds apart: these two would have the fifth and the sixth.
    high.read().expect(200);
    low.read().expect(200);
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

/// A request that was admitted and then gave way to another is refused, with the share as the reason.
#[test]
fn a_request_that_gives_way_is_told_so() {
    let backend = Backend::ok();
    let gateway =
        Gateway::start(&toml(&backend, "", "").replace("40/s", "30/min").replace("queue = 10", "queue = 2"));
    assert_eq!(gateway.get("/").status, 200);
    let ask = |tenant: &str| {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("GET / HTTP/1.1\r\nhost: a\r\nx-tenant: {tenant}\r\n\r\n"));
        client
    };
    let mut noisy: Vec<_> = (0..6).map(|_| ask("noisy")).collect();
    let refused = || gateway.metric("tollgate_requests_total", &["code=\"429\""]);
    eventually("the queue is full", || (refused() > 3.5).then_some(()));
    let mut quiet = ask("quiet");
    quiet.read().expect(200);
    let answers: Vec<_> = noisy.iter_mut().map(Client::read).collect();
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(passed, 1, "of two that waited one gave way");
    let told = answers.iter().filter(|answer| answer.text().contains("more than its share of limit `api`"));
    assert!(told.count() >= 1);
    gateway.has_counted("tollgate_requests_total", &["code=\"429\""], 5);
}
