//! A server behind a Unix socket.

use crate::harness::{Client, Gateway, Redis};

#[test]
fn a_fleet_of_one_machine_shares_its_counters_through_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("redis.sock");
    let path = socket.to_str().expect("UTF-8");
    let _redis = Redis::start_with(&["--unixsocket", path]);
    let config = format!(
        "[store]\nbackend = \"redis\"\nurl = \"unix://{path}?db=2\"\ntimeout = \"5s\"\non_error = \"deny\"\n\
         [upstreams]\ndemo = \"builtin:echo\"\n\
         [limits.all]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"10/day\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"all\"]\n"
    );
    let gateways = [Gateway::start(&config), Gateway::start(&config)];
    let mut clients = gateways.each_ref().map(|gateway| Client::connect(gateway.addr()));
    let statuses: Vec<_> = (0..20).map(|number| clients[number % 2].get("/", "").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 10, "{statuses:?}");
}
