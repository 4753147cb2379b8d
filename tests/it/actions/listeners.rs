//! Names of listeners, and routes of some of them.

use serde_json::json;

use crate::harness::api::good;
use crate::harness::{Gateway, get};

const CONFIGURATION: &str = "[server]\nlisten = [{ name = \"public\", address = \"127.0.0.1:0\" }, \
    { name = \"internal\", address = \"127.0.0.2:0\" }, \"127.0.0.3:0\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
    [[routes]]\nname = \"anywhere\"\npath = \"/*\"\nrespond = { body = \"anywhere\" }\n\
    [[routes]]\nname = \"inside\"\npath = \"/*\"\nlisteners = [\"internal\"]\nrespond = { body = \"inside\" }\n\
    [[routes]]\nname = \"status\"\npath = \"/status\"\nlisteners = [\"internal\", \"public\"]\nrespond = { body = \"status\" }\n";

#[test]
fn a_route_takes_requests_of_its_listeners_only() {
    let gateway = Gateway::start(CONFIGURATION);
    let [public, internal, nameless] = *gateway.addresses() else { panic!("three listeners") };
    for (address, path, body) in [
        (public, "/a", "anywhere"),
        (internal, "/a", "inside"),
        (nameless, "/a", "anywhere"),
        (public, "/status", "status"),
        (internal, "/status", "status"),
        (nameless, "/status", "anywhere"),
    ] {
        assert_eq!(get(address, path).expect(200).text(), body, "{address}{path}");
    }
    // A worker remembers the route of a head. Heads are equal at all listeners.
    for _ in 0..20 {
        for (address, body) in [(internal, "inside"), (public, "anywhere"), (nameless, "anywhere")] {
            assert_eq!(get(address, "/b").expect(200).text(), body, "{address}");
        }
    }
    // The names stay those of the running listeners.
    gateway.reload(&CONFIGURATION.replace("body = \"inside\"", "body = \"within\""), "reloaded");
    assert_eq!(get(internal, "/a").expect(200).text(), "within");
}

#[test]
fn explain_takes_the_first_listener_or_the_one_that_is_named() {
    let gateway = Gateway::start(CONFIGURATION);
    for (listener, route) in [(None, "anywhere"), (Some("internal"), "inside"), (Some("other"), "anywhere")] {
        let question = json!({ "url": "http://localhost/a", "listener": listener });
        let told = good(&gateway, "POST explain", &question.to_string());
        assert_eq!(told["route"]["name"], route, "{told}");
    }
}
