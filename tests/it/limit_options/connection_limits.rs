//! `connection_limits` of `[server]`: new connections of a client, decided when they are accepted.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::json;

use crate::harness::api::{api, good};
use crate::harness::upgraded::Upgraded;
use crate::harness::{
    AllVersions, Authority, Backend, Client, Gateway, Redis, binary, eventually, free_address,
};

const RATE: &str = "algorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"5/day\"\nreveal = true";

/// A gateway for this limit of connections.
fn toml(backend: &Backend, server: &str, limit: &str, rest: &str) -> String {
    format!(
        "[server]\nconnection_limits = [\"connections\"]\n{server}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\naccess = \"off\"\n[upstreams]\napi = \"{}\"\n[limits.connections]\n{limit}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n{rest}",
        backend.url(),
    )
}

/// A connection from this address, unless it is closed without an answer.
fn open(from: [u8; 4], address: SocketAddr) -> Option<Client> {
    let mut client = Client::try_connect_from(IpAddr::from(from), address).ok()?;
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let answer = client.try_read("GET").ok()?;
    answer.expect(200);
    Some(client)
}

/// How many of so many connections are served.
fn opened(from: [u8; 4], address: SocketAddr, count: usize) -> usize {
    (0..count).filter(|_| open(from, address).is_some()).count()
}

fn refused(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_connections_refused_total", &["reason=\"limit\""])
}

fn decided(gateway: &Gateway, decision: &str) -> f64 {
    let decision = format!("decision=\"{decision}\"");
    gateway.metric(
        "tollgate_decisions_total",
        &["route=\"server/connections\"", "limit=\"connections\"", &decision],
    )
}

const ONE: [u8; 4] = [127, 0, 0, 1];
const OTHER: [u8; 4] = [127, 0, 0, 2];

/// Of forty connections at once exactly the allowance is served; requests on these cost nothing more.
#[test]
fn exactly_the_allowance_of_connections_is_served() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "workers = 2", RATE, ""));
    let address = gateway.addr();
    let mut served: Vec<Client> = thread::scope(|scope| {
        let all: Vec<_> = (0..40).map(|_| scope.spawn(move || open(ONE, address))).collect();
        all.into_iter().filter_map(|client| client.join().expect("no panic")).collect()
    });
    assert_eq!(served.len(), 5);
    for client in &mut served {
        for _ in 0..3 {
            client.get("/", "").expect(200);
        }
    }
    assert_eq!(
        (refused(&gateway), decided(&gateway, "limited"), decided(&gateway, "allowed")),
        (35.0, 35.0, 5.0)
    );
    assert_eq!(opened(OTHER, address, 7), 5, "each client has its own allowance");
    assert_eq!(backend.count(), 25);

    // The limit has the views of any limit.
    let key = good(&gateway, "GET limits/connections/keys/127.0.0.1", "");
    assert_eq!(key["policies"][0]["used"], 5, "{key}");
    let keys = good(&gateway, "GET limits/connections/keys?by=refused", "");
    let most = &keys["keys"][0];
    assert_eq!((&most["key"][0], &most["refused"]), (&json!("127.0.0.1"), &json!(35)), "{keys}");
    good(&gateway, "DELETE limits/connections/keys/127.0.0.1", "");
    assert_eq!(opened(ONE, address, 7), 5);
}

#[test]
fn check_tells_what_connections_are_charged_to() {
    let folder = tempfile::tempdir().expect("a directory");
    let backend = Backend::ok();
    std::fs::write(folder.path().join("gateway.toml"), toml(&backend, "", RATE, "")).expect("written");
    let output = Command::new(binary()).arg("check").current_dir(folder.path()).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("New connections of a client, before all routes:\n  limit `connections` ("),
        "{text}"
    );
}

#[test]
fn a_shadow_limit_counts_and_refuses_none() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "", &format!("{RATE}\nmode = \"shadow\""), ""));
    assert_eq!(opened(ONE, gateway.addr(), 9), 9);
    assert_eq!((refused(&gateway), decided(&gateway, "shadow_limited")), (0.0, 4.0));
}

/// A trusted proxy opens as many as it likes, and the clients that it announces are counted.
#[test]
fn trusted_proxies_are_exempt_and_announced_clients_are_not() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "trusted_proxies = [\"127.0.0.1\"]", RATE, ""));
    assert_eq!(opened(ONE, gateway.addr(), 12), 12);
    assert_eq!(opened(OTHER, gateway.addr(), 12), 5);

    let listen =
        "trusted_proxies = [\"127.0.0.1\"]\nlisten = [{ address = \"127.0.0.1:0\", proxy_protocol = true }]";
    let gateway = Gateway::start(&toml(&backend, listen, RATE, ""));
    let served = |client: &str| {
        let serve = |_: &usize| {
            let mut connection = Client::connect(gateway.addr());
            connection
                .write(format!("PROXY TCP4 {client} 192.0.2.1 1234 80\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n"));
            connection.try_read("GET").is_ok_and(|answer| answer.status == 200)
        };
        (0..8).filter(serve).count()
    };
    assert_eq!((served("203.0.113.7"), served("203.0.113.8"), refused(&gateway)), (5, 5, 6.0));
    // Without an address in the header, as in a health check, the proxy itself is the client.
    let mut check = Client::connect(gateway.addr());
    check.write("PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
    check.read().expect(200);
}

/// Refused before the handshake of TLS; a stream of HTTP/2 costs nothing.
#[test]
fn connections_with_tls_are_counted_before_their_handshake() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("server", &["a.test"]);
    let tls = format!(
        "[[server.tls]]\ncert = \"{}\"\nkey = \"{}\"",
        authority.path("server.pem").display(),
        authority.path("server.key").display()
    );
    let gateway = Gateway::start(&toml(&backend, &tls, RATE, ""));
    let connect = || {
        let client = Client::try_connect_from(IpAddr::from(ONE), gateway.addr())?;
        client.agree_on_tls(&authority.client(), "a.test")
    };
    let mut served: Vec<Client> = (0..8).filter_map(|_| connect().ok()).collect();
    assert_eq!(served.len(), 5);
    for client in &mut served {
        client.get("/", "").expect(200);
    }
    assert_eq!(
        (refused(&gateway), gateway.metric("tollgate_connections_refused_total", &["reason=\"tls\""])),
        (3.0, 0.0)
    );
}

#[test]
fn streams_of_a_connection_cost_nothing() {
    let backend = Backend::ok();
    let gateway = AllVersions::start(&toml(&backend, "", RATE, ""));
    let clients = gateway.clients();
    for client in clients.iter().cycle().take(20 * clients.len()) {
        assert_eq!(client.get("/").status, 200, "{}", client.version());
    }
    assert_eq!(opened(ONE, gateway.addr(), 6), 5 - clients.len());
}

/// Networks are exempt, and a map gives them tiers.
#[test]
fn networks_have_exemptions_and_tiers() {
    let backend = Backend::ok();
    let folder = tempfile::tempdir().expect("a directory");
    let map = folder.path().join("networks.csv");
    std::fs::write(&map, "127.0.0.2,partner\n").expect("written");
    let limit = format!("{RATE}\nexempt = [\"ip:127.0.0.3\"]\ntier = \"map:networks(ip)\"\n");
    let tiers = format!(
        "[limits.connections.tiers.partner]\nrate = \"8/day\"\n[maps.networks]\nfile = \"{}\"\n",
        map.display()
    );
    let gateway = Gateway::start(&toml(&backend, "", &limit, &tiers));
    for (from, count) in [(ONE, 5), (OTHER, 8), ([127, 0, 0, 3], 10)] {
        assert_eq!(opened(from, gateway.addr(), 10), count, "{from:?}");
    }
    assert_eq!(decided(&gateway, "exempt"), 10.0);
}

#[test]
fn too_many_refusals_ban_the_client() {
    let backend = Backend::ok();
    let limit = format!("{RATE}\nban = {{ after = 3, within = \"1h\", for = \"1h\" }}");
    let gateway = Gateway::start(&toml(&backend, "", &limit, ""));
    assert_eq!(opened(ONE, gateway.addr(), 12), 5);
    let bans = api(&gateway, "bans");
    assert_eq!(
        (&bans["bans"][0]["limit"], &bans["bans"][0]["key"][0]),
        (&json!("connections"), &json!("127.0.0.1"))
    );
    assert_eq!((decided(&gateway, "limited"), decided(&gateway, "banned")), (2.0, 5.0));
    // A ban by hand, of a client that has opened none.
    good(&gateway, "POST limits/connections/keys/127.0.0.2/ban", "{\"for\": \"1h\"}");
    assert_eq!(opened(OTHER, gateway.addr(), 2), 0);
}

#[test]
fn a_reload_brings_changes_and_ends_them() {
    let backend = Backend::ok();
    let without =
        toml(&backend, "", RATE, "limits = []\n").replace("connection_limits = [\"connections\"]", "");
    let without = without.replace("limits = []", "limits = [\"connections\"]");
    let gateway = Gateway::start(&without);
    let mut kept = open(ONE, gateway.addr()).expect("nothing bounds connections");
    let with = toml(&backend, "", RATE, "");
    gateway.reload(&with, "connection_limits none → connections");
    kept.get("/", "").expect(200);
    // The request of before was of the same limit.
    assert_eq!(opened(ONE, gateway.addr(), 9), 4);
    gateway.reload(&with.replace("5/day", "7/day"), "rate 5/day → 7/day");
    assert_eq!(opened(ONE, gateway.addr(), 9), 2);
    gateway
        .reload(&without.replace("limits = [\"connections\"]", ""), "connection_limits connections → none");
    assert_eq!(opened(ONE, gateway.addr(), 9), 9);
}

/// Beside a shared store each gateway counts its own connections, and goes on while the store is away.
#[test]
fn a_shared_store_is_not_asked() {
    let (mut redis, backend) = (Redis::start(), Backend::ok());
    let gateways: [Gateway; 2] =
        std::array::from_fn(|_| Gateway::start(&toml(&backend, "", RATE, &redis.store_table())));
    for gateway in &gateways {
        assert_eq!(opened(ONE, gateway.addr(), 7), 5);
        let key = good(gateway, "GET limits/connections/keys/127.0.0.1", "");
        assert_eq!(key["policies"][0]["used"], 5, "{key}");
    }
    redis.kill();
    assert_eq!((opened(ONE, gateways[0].addr(), 3), opened(OTHER, gateways[0].addr(), 7)), (0, 5));
    good(&gateways[0], "DELETE limits/connections/keys/127.0.0.1", "");
    assert_eq!(opened(ONE, gateways[0].addr(), 7), 5);
}

#[test]
fn an_override_gives_a_client_other_numbers() {
    let (redis, backend) = (Redis::start(), Backend::ok());
    for store in [String::new(), redis.store_table()] {
        let gateway = Gateway::start(&toml(&backend, "", RATE, &store));
        assert_eq!(opened(ONE, gateway.addr(), 7), 5);
        good(&gateway, "PUT limits/connections/keys/127.0.0.1/override", "{\"rate\":\"8/day\"}");
        assert_eq!((opened(ONE, gateway.addr(), 7), opened(OTHER, gateway.addr(), 7)), (3, 5));
    }
}

/// A process that takes over counts the connections on, those that the process before still accepts, too.
#[test]
fn upgrades_under_load_refill_no_allowance() {
    const COUNT: usize = 300;
    let backend = Backend::ok();
    let (listen, admin) = (free_address(), free_address());
    let toml = toml(
        &backend,
        &format!("listen = [\"{listen}\"]\nworkers = 2"),
        &RATE.replace("5/day", "300/day"),
        "",
    );
    let toml = toml.replace("listen = \"127.0.0.1:0\"", &format!("listen = \"{admin}\""));
    let mut command = Command::new(binary());
    command.arg("run").stdin(Stdio::null());
    let mut gateway = Upgraded::new(Gateway::start_by(&toml, command));
    let address = gateway.gateway.addr();
    let end = std::sync::atomic::AtomicBool::new(false);
    let mut served = thread::scope(|scope| {
        let load = || {
            let mut served = 0;
            while !end.load(std::sync::atomic::Ordering::Relaxed) && served < 35 {
                served += opened(ONE, address, 1);
            }
            served
        };
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(load)).collect();
        (0..3).for_each(|_| gateway.upgrade());
        end.store(true, std::sync::atomic::Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("no panic")).sum::<usize>()
    });
    eventually("the allowance to be spent", || {
        let more = opened(ONE, address, 20);
        served += more;
        (more < 20).then_some(())
    });
    assert_eq!(served, COUNT);
    gateway.wait_for(3, "the counters of the process before count on");
}
