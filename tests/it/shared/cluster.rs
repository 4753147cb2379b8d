//! A cluster of three nodes: every slot counts, several limits are charged all or none, and a node that dies takes only its own along.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::fleet_config::{PATIENT, Plan, client, of, request, shares, statuses, statuses_of};
use crate::harness::{Backend, Cluster, Fleet, Gateway, Load, eventually};

fn store_of(cluster: &Cluster) -> String {
    format!("url = {}\n{PATIENT}", cluster.urls())
}

#[test]
fn clients_of_every_node_are_counted_exactly() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"per-client\"]");
    let fleet = Fleet::start(&plan.limit("per-client", &of("token-bucket", 3)).store(&store_of(&cluster)));
    let load = Load { requests: 500, concurrency: 10 };
    let statuses = load.run_over(&fleet.addrs(), |number| request("/", number % 100));
    assert_eq!(statuses, BTreeMap::from([(200, 300), (429, 200)]));
    let mut keys = [0; 3];
    cluster.keys().iter().for_each(|(node, _)| keys[*node] += 1);
    assert_eq!(keys.iter().sum::<usize>(), 100);
    assert!(keys.iter().all(|keys| *keys > 10), "{keys:?}");
    assert!(fleet.metric("tollgate_store_errors_total", &[]) < 0.5);
}

/// One node is enough to find the others.
#[test]
fn the_other_nodes_are_learned_from_one() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"per-client\"]");
    let store = format!("url = [\"{}\"]\n{PATIENT}", cluster.nodes[2].url());
    let gateway = Gateway::start(&plan.limit("per-client", &of("gcra", 1)).store(&store));
    for number in 0..30 {
        assert_eq!(statuses_of(&gateway, "/", &number.to_string(), 2), [200, 429]);
    }
    assert!(cluster.nodes.iter().all(|node| !node.keys().is_empty()));
}

/// The keys of one client stand anywhere, so the limits are asked in turn and refunded.
#[test]
fn several_limits_are_charged_all_or_none_across_nodes() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let plan = Plan::to(&backend)
        .quiet()
        .route("/both", "limits = [\"per-client\", \"everyone\"]")
        .route("/alone", "limits = [\"per-client\"]")
        .limit("per-client", &of("token-bucket", 10))
        .limit_by("global", "everyone", &of("fixed-window", 35));
    let fleet = Fleet::start(&plan.store(&store_of(&cluster)));
    let passed = |path: &str, name: &str, count| {
        statuses(&fleet, path, name, count).into_iter().filter(|status| *status == 200).count()
    };
    assert_eq!(passed("/both", "greedy", 40), 10, "the greedy client has its own ten");
    let others = ["a", "b", "c", "d"].map(|name| passed("/both", name, 8));
    assert_eq!(others, [8, 8, 8, 1], "what is left of the 35 was not eaten by refused requests");
    // What was refused for everybody's sake has charged the clients nothing.
    assert_eq!(passed("/alone", "d", 20), 9);
    assert_eq!(passed("/alone", "e", 20), 10);
    assert_eq!(backend.count(), 35 + 9 + 10);
}

#[test]
fn several_limits_never_admit_too_many_under_concurrency() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let plan = Plan::to(&backend)
        .quiet()
        .route("/*", "limits = [\"per-client\", \"everyone\"]")
        .limit("per-client", &of("sliding-window", 40))
        .limit_by("global", "everyone", &of("sliding-log", 100));
    let fleet = Fleet::start(&plan.store(&store_of(&cluster)));
    let load = Load { requests: 3_000, concurrency: 30 };
    let statuses = load.run_over(&fleet.addrs(), |number| request("/", number % 5));
    assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(backend.count() <= 100, "{} passed", backend.count());
    assert!(backend.count() >= 90, "refunds may come late, but not so late: {}", backend.count());
    let of_each = (0..5).map(|name| client(name).trim_end().to_owned());
    for field in of_each {
        let passed = backend.requests().iter().filter(|it| it.head.contains(&field)).count();
        assert!(passed <= 40, "{field}: {passed}");
    }
}

/// A client whose key stands on this node, and hasn't asked before.
fn a_client_of(cluster: &Cluster, node: usize, gateway: &Gateway, path: &str, name: &str) -> String {
    (0..100)
        .map(|number| format!("{name}-{number}"))
        .find(|name| {
            let before = cluster.nodes[node].keys().len();
            statuses_of(gateway, path, name, 1);
            cluster.nodes[node].keys().len() > before
        })
        .expect("one of a hundred")
}

#[test]
fn a_dead_node_takes_only_its_own_clients_along() {
    let (backend, mut cluster) = (Backend::ok(), Cluster::start());
    let deny = |count| of("token-bucket", count) + "\non_error = \"deny\"";
    let plan = Plan::to(&backend)
        .route("/deny", "limits = [\"deny\"]")
        .route("/local", "limits = [\"local\"]")
        .limit("deny", &deny(3))
        .limit("local", &of("sliding-window", 2));
    let store = format!("url = {}\ntimeout = \"200ms\"", cluster.urls());
    let fleet = Fleet::start(&plan.store(&store));
    shares(&fleet, "/local");
    let gateway = &fleet.gateways[0];
    let dead = a_client_of(&cluster, 0, gateway, "/deny", "dead");
    let local = a_client_of(&cluster, 0, gateway, "/local", "local");
    let well = [1, 2].map(|node| a_client_of(&cluster, node, gateway, "/deny", &format!("well-{node}")));
    cluster.nodes[0].kill();
    for name in well {
        assert_eq!(statuses(&fleet, "/deny", &name, 4), [200, 200, 429, 429], "exact: one of three was used");
    }
    for gateway in &fleet.gateways {
        assert_eq!(statuses_of(gateway, "/deny", &dead, 30), [503; 30]);
        let status = statuses_of(gateway, "/local", &local, 4);
        assert!(status.iter().all(|status| [200, 429].contains(status)) && status[3] == 429, "{status:?}");
        gateway.admin("/readyz").expect(503);
    }
    cluster.nodes[0].restart();
    eventually("the node's clients to be counted together again", || {
        let told = statuses(&fleet, "/deny", &dead, 5);
        (told == [200, 200, 200, 429, 429]).then_some(()).or_else(|| {
            cluster.nodes[0].command(["FLUSHALL"]);
            std::thread::sleep(Duration::from_millis(200));
            None
        })
    });
    for gateway in &fleet.gateways {
        eventually("the gateway to be ready", || (gateway.admin("/readyz").status == 200).then_some(()));
    }
}

/// A request that is refused for want of one node gives back what the others have charged.
#[test]
fn what_a_dead_node_refuses_is_charged_nowhere_else() {
    let (backend, mut cluster) = (Backend::ok(), Cluster::start());
    let plan = Plan::to(&backend)
        .route("/everyone", "limits = [\"everyone\"]")
        .route("/both", "limits = [\"everyone\", \"per-client\"]")
        .route("/alone", "limits = [\"per-client\"]")
        .limit_by("global", "everyone", &of("token-bucket", 200))
        .limit("per-client", &(of("gcra", 5) + "\non_error = \"deny\""));
    let gateway = Gateway::start(&plan.store(&store_of(&cluster)));
    let left = || {
        let response = gateway.get("/everyone").expect(200);
        response.header("x-ratelimit-remaining").and_then(|left| left.parse::<u32>().ok()).expect("the field")
    };
    assert_eq!(left(), 199);
    let [(node, _)] = cluster.keys()[..] else { panic!("one key: {:?}", cluster.keys()) };
    let dead = (node + 1) % 3;
    let name = a_client_of(&cluster, dead, &gateway, "/alone", "dead");
    cluster.nodes[dead].kill();
    assert_eq!(statuses_of(&gateway, "/both", &name, 30), [503; 30]);
    assert_eq!(left(), 198);
    let well = a_client_of(&cluster, 3 - node - dead, &gateway, "/alone", "well");
    assert_eq!(statuses_of(&gateway, "/both", &well, 6), [200, 200, 200, 200, 429, 429]);
    assert_eq!(left(), 193);
}

#[test]
fn a_slot_that_moves_takes_its_counters_along() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let limit = of("sliding-log", 10) + "\non_error = \"deny\"";
    let plan = Plan::to(&backend).route("/*", "limits = [\"per-client\"]").limit("per-client", &limit);
    let fleet = Fleet::start(&plan.store(&store_of(&cluster)));
    assert_eq!(statuses(&fleet, "/", "a", 4), [200; 4]);
    let [(from, key)] = &cluster.keys()[..] else { panic!("one key: {:?}", cluster.keys()) };
    let (slot, to) = (cluster.slot(key), (from + 1) % 3);
    cluster.begin_move(slot, *from, to);
    assert_eq!(statuses(&fleet, "/", "a", 2), [200; 2], "the key is still where it was");
    cluster.end_move(slot, *from, to);
    assert_eq!(statuses(&fleet, "/", "a", 6), [200, 200, 200, 200, 429, 429]);
    assert_eq!(cluster.keys(), [(to, key.clone())]);
    assert!(fleet.metric("tollgate_store_errors_total", &[]) < 0.5);
}

/// A key that does not exist yet, in a slot that is on its way, is made where the slot goes (ASK).
#[test]
fn a_new_client_of_a_slot_on_its_way_is_counted_where_the_slot_goes() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let limit = of("fixed-window", 3) + "\non_error = \"deny\"";
    let plan = Plan::to(&backend).route("/*", "limits = [\"per-client\"]").limit("per-client", &limit);
    let fleet = Fleet::start(&plan.store(&store_of(&cluster)));
    assert_eq!(statuses(&fleet, "/", "a", 1), [200]);
    let [(from, key)] = &cluster.keys()[..] else { panic!("one key: {:?}", cluster.keys()) };
    assert_eq!(cluster.nodes[*from].command(["DEL", key]).integer(), 1);
    let (slot, to) = (cluster.slot(key), (from + 1) % 3);
    cluster.begin_move(slot, *from, to);
    assert_eq!(statuses(&fleet, "/", "a", 2), [200; 2]);
    assert_eq!(cluster.keys(), [(to, key.clone())]);
    cluster.end_move(slot, *from, to);
    assert_eq!(statuses(&fleet, "/", "a", 3), [200, 429, 429]);
}
