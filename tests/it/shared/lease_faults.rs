//! Five gateways with leases, under more demand than the limit: some are killed, paused or cut off, and the store fails over.
//! Never more is admitted than the windows hold; and nearly all of that where nothing fails.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::harness::fleet_config::Plan;
use crate::harness::{Backend, DropProxy, Gateway, Redis, Sentinel, eventually};

/// Units of a window of a second.
const COUNT: usize = 300;
const GATEWAYS: usize = 5;
/// Clients of each gateway, which ask again and again.
const CLIENTS: usize = 2;
/// A client gives a request up after this.
const PATIENCE: Duration = Duration::from_millis(300);
/// Between requests of a client: together the clients ask for many times the limit all the same.
const BETWEEN: Duration = Duration::from_millis(5);
/// The most units that a gateway takes in advance at once: rate × lease.
const MAX_LEASED: usize = COUNT / 2;

/// The gateways; the store is at these addresses, in turn.
fn fleet(backend: &Backend, stores: &[String]) -> Vec<Gateway> {
    let limit =
        format!("sync = \"lease\"\nlease = \"500ms\"\nalgorithm = \"fixed-window\"\nrate = \"{COUNT}/s\"");
    let start = |store: &String| {
        let plan =
            Plan::to(backend).quiet().route("/*", "limits = [\"all\"]").limit_by("global", "all", &limit);
        Gateway::start(&plan.store(&format!("url = \"{store}\"\ntimeout = \"100ms\"")))
    };
    stores.iter().cycle().take(GATEWAYS).map(start).collect()
}

fn second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Sends one request after the other, whatever becomes of them, until it is over.
fn ask_on(address: SocketAddr, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if ask(address, is_over).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The same over one connection.
fn ask(address: SocketAddr, is_over: &AtomicBool) -> std::io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut answer = [0; 4_096];
    while !is_over.load(Ordering::Relaxed) {
        connection.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")?;
        if connection.read(&mut answer)? == 0 {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(())
}

/// Ends the demand when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something to the fleet while all gateways have more demand than the limit. Returns how many windows it touched.
fn under_demand(backend: &Backend, addresses: &[SocketAddr], work: impl FnOnce()) -> usize {
    let (is_over, first) = (AtomicBool::new(false), second());
    std::thread::scope(|scope| {
        for address in addresses.iter().flat_map(|address| [*address; CLIENTS]) {
            let is_over = &is_over;
            scope.spawn(move || ask_on(address, is_over));
        }
        let _over = Over(&is_over);
        work();
    });
    let mut last = backend.count();
    eventually("the last requests to arrive", || {
        std::thread::sleep(Duration::from_millis(50));
        let before = std::mem::replace(&mut last, backend.count());
        (before == last).then_some(())
    });
    usize::try_from(second() - first).expect("few") + 1
}

fn pause() {
    std::thread::sleep(Duration::from_millis(1_100));
}

fn addresses(gateways: &[Gateway]) -> Vec<SocketAddr> {
    gateways.iter().map(Gateway::addr).collect()
}

/// The requests that a window has admitted and those before it, counted shortly before its end, when all are there.
fn count_at_end_of_window(backend: &Backend) -> (u64, usize) {
    eventually("the end of a window", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        std::thread::sleep(Duration::from_millis(u64::from(900_u32.saturating_sub(now.subsec_millis()))));
        let count = backend.count();
        let then = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let is_in_time = then.as_secs() == now.as_secs() && then.subsec_millis() < 980;
        is_in_time.then_some((now.as_secs(), count))
    })
}

#[test]
fn nearly_all_of_each_window_is_admitted_under_demand() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let gateways = fleet(&backend, &[redis.url()]);
    let windows = under_demand(&backend, &addresses(&gateways), || {
        pause();
        // A machine that is busy otherwise may take part of a window.
        eventually("nearly all of two windows", || {
            let (first, before) = count_at_end_of_window(&backend);
            std::thread::sleep(Duration::from_millis(1_100));
            let (last, after) = count_at_end_of_window(&backend);
            let (passed, admitted) = (usize::try_from(last - first).expect("few"), after - before);
            (admitted * 100 >= passed * COUNT * 97).then_some(())
        });
    });
    assert!(backend.count() <= windows * COUNT, "{} in {windows}", backend.count());
    let calls: f64 = gateways.iter().map(|one| one.metric("tollgate_store_calls_total", &[])).sum();
    let leased: f64 = gateways.iter().map(|one| one.metric("tollgate_store_leased_total", &[])).sum();
    assert!(leased > 0.0 && calls > 0.0, "{leased} by {calls} calls");
}

/// As often as needed: each time the fleet is a new one.
fn holds_its_bound(times: usize, harm: impl Fn(&[Gateway])) {
    for _ in 0..times {
        let (backend, redis) = (Backend::ok(), Redis::start());
        let gateways = fleet(&backend, &[redis.url()]);
        let windows = under_demand(&backend, &addresses(&gateways), || {
            pause();
            harm(&gateways);
            pause();
        });
        assert!(backend.count() <= windows * COUNT, "{} in {windows} windows", backend.count());
        assert!(backend.count() >= COUNT, "{} in {windows} windows", backend.count());
    }
}

#[test]
fn no_window_admits_more_when_gateways_are_killed() {
    holds_its_bound(3, |gateways| gateways[..2].iter().for_each(|one| one.signal(Signal::KILL)));
}

/// They go on in a later window, with units of an earlier one.
#[test]
fn no_window_admits_more_when_gateways_are_paused() {
    holds_its_bound(3, |gateways| {
        gateways[..2].iter().for_each(|one| one.signal(Signal::STOP));
        pause();
        gateways[..2].iter().for_each(|one| one.signal(Signal::CONT));
    });
}

#[test]
fn no_window_admits_more_when_gateways_are_cut_off() {
    for _ in 0..3 {
        let (backend, redis) = (Backend::ok(), Redis::start());
        let network = DropProxy::start(redis.addr());
        let gateways = fleet(&backend, &[redis.url(), network.url()]);
        let windows = under_demand(&backend, &addresses(&gateways), || {
            pause();
            network.swallow();
            pause();
            network.pass();
            network.reset();
            pause();
        });
        assert!(backend.count() <= windows * COUNT, "{} in {windows} windows", backend.count());
    }
}

/// What the replica did not have yet is admitted once more, at most the units that were leased.
#[test]
fn a_failover_admits_at_most_what_was_leased_once_more() {
    for _ in 0..2 {
        let (backend, mut sentinel) = (Backend::ok(), Sentinel::start());
        let gateways = fleet(&backend, &[sentinel.url()]);
        let windows = under_demand(&backend, &addresses(&gateways), || {
            pause();
            sentinel.fail_over();
            pause();
        });
        let bound = windows * COUNT + GATEWAYS * MAX_LEASED;
        assert!(backend.count() <= bound, "{} in {windows} windows", backend.count());
    }
}
