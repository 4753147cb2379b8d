//! Fifty clients stream over two gateways, whatever becomes of these and of their store: the bill has what the backend has told.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fastrand::Rng;
use rustix::process::Signal;

use super::{SharedSite, comes_to};
use crate::harness::upgraded::Upgraded;
use crate::harness::{Client, Redis, Sentinel, eventually};

const CLIENTS: usize = 50;
const NAMES: [&str; 3] = ["anna", "bob", "carl"];

/// A stream of events whose last one but `[DONE]` tells these units, cut into chunks anywhere.
fn stream(units: u32, random: &mut Rng) -> String {
    let text = format!("data: {{\"delta\":\"a\"}}\n\ndata: {{\"total\":{units}}}\n\ndata: [DONE]\n\n");
    let (mut rest, mut chunks) = (text.as_str(), String::new());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(random.usize(1..=rest.len()));
        chunks += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
        rest = after;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{chunks}0\r\n\r\n")
}

/// Lets clients stream until `meanwhile` has ended. The bill is what the backend has told, to the unit.
fn stream_while(site: &SharedSite, meanwhile: impl FnOnce(&mut Upgraded)) {
    let one = site.start();
    let mut other = site.start_upgradable();
    let addresses = [one.addr(), other.gateway.addr()];
    let (ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let told: Mutex<BTreeMap<&str, (i64, u64)>> = Mutex::default();
    std::thread::scope(|scope| {
        // Also if the test fails.
        struct End<'e>(&'e AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let end = End(&ended);
        for number in 0..CLIENTS {
            let (ended, sent, told) = (&ended, &sent, &told);
            scope.spawn(move || {
                let mut random = Rng::with_seed(number as u64);
                while !ended.load(Ordering::Relaxed) {
                    let (name, units) = (NAMES[random.usize(0..NAMES.len())], random.u32(0..400));
                    let body = stream(units, &mut random);
                    let request = format!(
                        "POST /0/ HTTP/1.1\r\nhost: a\r\nx-key: secret-key-{name}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let address = addresses[random.usize(0..2)];
                    let response = Client::connect(address).exchange(request).expect(200);
                    assert!(response.text().ends_with("data: [DONE]\n\n"));
                    let mut told = told.lock().expect("no client has failed");
                    let sum = told.entry(name).or_default();
                    *sum = (sum.0 + i64::from(units), sum.1 + 1);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let some_more = |more: usize| {
            let before = sent.load(Ordering::Relaxed);
            eventually("more streams", || (sent.load(Ordering::Relaxed) >= before + more).then_some(()));
        };
        some_more(200);
        meanwhile(&mut other);
        some_more(200);
        drop(end);
    });
    let told = told.into_inner().expect("no client has failed");
    let rows: Vec<_> = told.iter().map(|(name, (units, requests))| (*name, *units, *requests)).collect();
    comes_to(&one, &rows);
    comes_to(&other.gateway, &rows);
}

#[test]
fn a_reload_and_an_upgrade_leave_the_sums_exact() {
    let redis = Redis::start();
    let site = SharedSite::new(&redis.store_table());
    stream_while(&site, |gateway| {
        gateway.signal(Signal::HUP);
        gateway.hand_over();
    });
}

/// Each gateway tells the store its sums again, so that a write that was lost is none for the bill.
#[test]
fn a_failover_leaves_the_sums_exact() {
    let mut sentinel = Sentinel::start();
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"100ms\"\n", sentinel.url());
    stream_while(&SharedSite::new(&store), |_| sentinel.fail_over());
}
