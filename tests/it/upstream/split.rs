//! A route whose requests are split between upstreams by weight.

use crate::harness::api::api;
use crate::harness::{Backend, Client, Gateway, HoldingBackend, get_with};

fn file(upstreams: &[(&str, &Backend)], shares: &str, key: &str) -> String {
    let upstreams: Vec<_> =
        upstreams.iter().map(|(name, backend)| format!("{name} = \"{}\"\n", backend.url())).collect();
    format!(
        "[upstreams]\n{}[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = {shares}\n{key}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        upstreams.concat()
    )
}

#[test]
fn requests_are_drawn_by_weight() {
    let (blue, green) = (Backend::ok(), Backend::ok());
    let gateway =
        Gateway::start(&file(&[("blue", &blue), ("green", &green)], "{ blue = 90, green = 10 }", ""));
    let mut client = Client::connect(gateway.addr());
    (0..1_000).for_each(|_| drop(client.get("/", "").expect(200)));
    assert_eq!(blue.count() + green.count(), 1_000);
    // Eight standard deviations.
    assert!((25..=175).contains(&green.count()), "{}", green.count());
    let responses = |name: &str| {
        gateway
            .metric("tollgate_upstream_responses_total", &[&format!("upstream=\"{name}\""), "class=\"2xx\""])
    };
    let counts = [blue.count(), green.count()].map(|count| count as f64);
    assert_eq!([responses("blue"), responses("green")], counts);
}

#[test]
fn a_weight_of_nought_gets_nothing() {
    let (blue, green) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&[("blue", &blue), ("green", &green)], "{ blue = 0, green = 3 }", ""));
    (0..50).for_each(|_| drop(gateway.get("/").expect(200)));
    assert_eq!((blue.count(), green.count()), (0, 50));
}

/// The numbers of the clients that reach the second upstream.
fn second(gateway: &Gateway, green: &Backend) -> Vec<u32> {
    let reaches = |number: &u32| {
        let before = green.count();
        get_with(gateway.addr(), "/", &format!("cookie: session={number}\r\n")).expect(200);
        green.count() > before
    };
    (0..200).filter(reaches).collect()
}

#[test]
fn a_client_stays_in_every_gateway_and_a_larger_share_keeps_clients() {
    let (blue, green) = (Backend::ok(), Backend::ok());
    let both = [("blue", &blue), ("green", &green)];
    let key = "upstream_key = \"cookie:session\"";
    let one = Gateway::start(&file(&both, "{ blue = 80, green = 20 }", key));
    let first = second(&one, &green);
    assert!((10..=80).contains(&first.len()), "{}", first.len());
    assert_eq!(second(&one, &green), first);
    let other = Gateway::start(&file(&both, "{ blue = 8, green = 2 }", key));
    assert_eq!(second(&other, &green), first, "another gateway, with the same shares");
    let more = Gateway::start(&file(&both, "{ blue = 50, green = 50 }", key));
    let larger = second(&more, &green);
    assert!(larger.len() > first.len() && first.iter().all(|number| larger.contains(number)));
}

#[test]
fn each_upstream_keeps_its_settings_and_the_views_name_them() {
    let (blue, green) = (Backend::ok(), Backend::ok());
    let toml = format!(
        "[upstreams.blue]\nservers = [\"{}/v1\"]\nhost = \"blue.test\"\n[upstreams.green]\nservers = [\"{}/v2\"]\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = {{ blue = 1, green = 1 }}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        blue.url(),
        green.url()
    );
    let gateway = Gateway::start(&toml);
    (0..60).for_each(|_| drop(gateway.get("/a").expect(200)));
    assert!(blue.requests().iter().all(|request| request.target() == "/v1/a"));
    assert!(green.requests().iter().all(|request| request.target() == "/v2/a"));
    assert!(blue.requests().iter().all(|request| request.header("host").as_deref() == Some("blue.test")));
    assert!(blue.count() > 5 && green.count() > 5);
    let routes = api(&gateway, "routes");
    let route = &routes["routes"][0];
    assert!(route["upstream"].is_null(), "{route}");
    assert_eq!(route["split"], serde_json::json!({ "blue": 1, "green": 1 }));
}

/// A slow request stays at its upstream while a reload changes the shares.
#[test]
fn a_reload_moves_new_requests_only() {
    let (slow, green) = (HoldingBackend::start(), Backend::ok());
    let of = |blue: u32, green_share: u32| {
        format!(
            "[upstreams]\nblue = \"{}\"\ngreen = \"{}\"\n[[routes]]\npath = \"/*\"\nupstream = {{ blue = {blue}, green = {green_share} }}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            slow.url(),
            green.url()
        )
    };
    let gateway = Gateway::start(&of(1, 0));
    let mut client = Client::connect(gateway.addr());
    client.write("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n");
    slow.has_got(1);
    gateway.reload(&of(0, 1), "reloaded");
    (0..20).for_each(|_| drop(gateway.get("/").expect(200)));
    assert_eq!(green.count(), 20);
    slow.release("/slow");
    client.read().expect(200);
}
