//! Costs of consumers with tiers: the counter that admitted is corrected, also when its consumer has moved meanwhile.

use rustix::process::Signal;

use crate::harness::metered::{a_day, begin, comes_to_use, json, metered, parrot, used};
use crate::harness::{Gateway, eventually};

#[test]
fn a_consumer_that_moves_to_another_tier_is_settled_to_the_unit() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.csv");
    let move_to =
        |tier: &str| std::fs::write(&file, format!("key,name,tier\nsecret-1,acme,{tier}\n")).unwrap();
    move_to("free");
    let backend = parrot();
    let auth = format!(
        "[auth.c]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = \"{}\"\n\
         [limits.x.tiers.free]\n[limits.x.tiers.pro]\nrate = \"2000/day\"\n",
        file.display()
    );
    let toml = metered(&backend.url(), &["{ reserve = 100, settle = \"json:/total\" }"], &a_day(400), &auth)
        .replace("header:x-client", "consumer")
        .replace("upstream = \"api\"\n", "upstream = \"api\"\nauth = \"c\"\n");
    let gateway = Gateway::start(&toml);
    let body = "{\"total\":30}";
    let held = format!("HTTP/1.1 200 OK\r\n|content-length: {}\r\n\r\n{body}", body.len());
    let mut clients =
        [(); 3].map(|()| begin(&gateway, 0, "-", "x-key: secret-1\r\nx-then: gate\r\n", held.as_bytes()));
    comes_to_use(&gateway, "acme", 300);
    move_to("pro");
    let reloads = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    let before = reloads();
    gateway.signal(Signal::HUP);
    eventually("a reload", || (reloads() > before).then_some(()));
    // Decided under the numbers of the other tier.
    for number in 1..=5 {
        begin(&gateway, 0, "-", "x-key: secret-1\r\n", &json(body)).read().expect(200);
        assert_eq!(used(&gateway, "acme"), 300 + 30 * number);
    }
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    comes_to_use(&gateway, "acme", 240);
}
