//! A master and its replica under a sentinel: the gateways follow the master, and the counters have gone along.

use crate::harness::fleet_config::{PATIENT, Plan, is_up, of, shares, statuses, statuses_of};
use crate::harness::{Backend, Fleet, Gateway, Sentinel, eventually};

fn plan(backend: &Backend) -> Plan {
    Plan::to(backend)
        .route("/two", "limits = [\"two\"]")
        .route("/ten", "limits = [\"ten\"]")
        .limit("two", &of("sliding-window", 2))
        .limit("ten", &of("sliding-log", 10))
}

#[test]
fn the_sentinel_names_the_master() {
    let (backend, sentinel) = (Backend::ok(), Sentinel::start());
    let fleet = Fleet::start(&plan(&backend).store(&format!("url = \"{}\"\n{PATIENT}", sentinel.url())));
    assert_eq!(statuses(&fleet, "/two", "a", 4), [200, 200, 429, 429]);
    assert_eq!(sentinel.servers[0].keys().len(), 1);
}

#[test]
fn a_new_master_is_found_with_all_that_was_counted() {
    let (backend, mut sentinel) = (Backend::ok(), Sentinel::start());
    let store = format!("url = \"{}\"\ntimeout = \"100ms\"", sentinel.url());
    let fleet = Fleet::start(&plan(&backend).store(&store));
    shares(&fleet, "/two");
    assert_eq!(statuses(&fleet, "/ten", "a", 4), [200; 4]);
    sentinel.replicate();
    sentinel.fail_over();
    for gateway in &fleet.gateways {
        assert_eq!(statuses_of(gateway, "/two", "meanwhile", 2), [200, 200], "no request fails");
    }
    is_up(&fleet);
    shares(&fleet, "/two");
    let passed = statuses(&fleet, "/ten", "a", 20).into_iter().filter(|status| *status == 200).count();
    assert_eq!(passed, 6, "four of ten were used");
}

/// The old master comes back as a replica, which refuses writes: no gateway may use it.
#[test]
fn a_master_that_lost_its_place_is_left() {
    let (backend, mut sentinel) = (Backend::ok(), Sentinel::start());
    let store = format!("url = \"{}\"\ntimeout = \"100ms\"", sentinel.url());
    let gateway = Gateway::start(&plan(&backend).store(&store));
    assert_eq!(statuses_of(&gateway, "/two", "a", 3), [200, 200, 429]);
    sentinel.fail_over();
    sentinel.servers[0].restart();
    let master = sentinel.servers[1].addr().port().to_string();
    sentinel.servers[0].set(&["REPLICAOF", "127.0.0.1", &master]);
    let mut tries = 0;
    eventually("the gateway to ask the new master", || {
        tries += 1;
        let (before, name) = (sentinel.servers[1].calls_of("evalsha"), format!("try-{tries}"));
        assert_eq!(statuses_of(&gateway, "/two", &name, 2), [200, 200]);
        (sentinel.servers[1].calls_of("evalsha") >= before + 2).then_some(())
    });
}
