//! Traces through reloads and to the end of the process.

use rustix::process::Signal;

use crate::harness::{Backend, Collector, Gateway, Next, eventually, everything_to, get_with};

const PARENT: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";

#[test]
fn a_reload_begins_to_trace_changes_the_collector_and_ends_it() {
    let (backend, first, second) = (Backend::ok(), Collector::start(), Collector::start());
    let off = everything_to(&backend, "");
    let to = |collector: &Collector| everything_to(&backend, &collector.section("sample = 1"));
    let gateway = Gateway::start(&off);
    gateway.get("/untraced").expect(200);
    gateway.reload(&to(&first), "INFO reloaded");
    gateway.get("/first").expect(200);
    // What waits goes where it was to go.
    gateway.reload(&to(&second), "INFO reloaded");
    gateway.get("/second").expect(200);
    gateway.reload(&off, "INFO reloaded");
    get_with(gateway.addr(), "/off", PARENT).expect(200);
    assert!(backend.latest().head.contains(PARENT));
    gateway.reload(&to(&first), "INFO reloaded");
    gateway.get("/again").expect(200);
    let paths = |told: Vec<crate::harness::Told>| -> Vec<String> {
        told.iter().map(|span| span.get("url.path").to_owned()).filter(|path| !path.is_empty()).collect()
    };
    assert_eq!(paths(first.exactly(4)), ["/first", "/again"]);
    assert_eq!(paths(second.exactly(2)), ["/second"]);
}

#[test]
fn a_hanging_collector_does_not_keep_a_reload_from_the_next_one() {
    let backend = Backend::ok();
    let hanging = Collector::of(Backend::start(|exchange| {
        exchange.read_body();
        exchange.hang();
        Next::Close
    }));
    let good = Collector::start();
    let to = |collector: &Collector| everything_to(&backend, &collector.section("sample = 1"));
    let gateway = Gateway::start(&to(&hanging));
    (0..600).for_each(|_| drop(gateway.get("/hanging").expect(200)));
    hanging.backend().wait_for(1);
    gateway.reload(&to(&good), "INFO reloaded");
    gateway.get("/good").expect(200);
    eventually("the new collector is told", || {
        good.told().iter().any(|span| span.get("url.path") == "/good").then_some(())
    });
}

#[test]
fn the_last_spans_are_exported_at_the_end() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let mut gateway = Gateway::start(&everything_to(&backend, &collector.section("sample = 1")));
    gateway.get("/last").expect(200);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    assert_eq!(collector.told().len(), 2);
}

#[test]
fn a_hanging_collector_does_not_keep_the_process_alive() {
    let backend = Backend::ok();
    let hanging = Collector::of(Backend::start(|exchange| {
        exchange.hang();
        Next::Close
    }));
    let mut gateway = Gateway::start(&everything_to(&backend, &hanging.section("sample = 1")));
    gateway.get("/last").expect(200);
    let started = std::time::Instant::now();
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
    gateway.wait_for_log("the last spans could not be exported");
}
