//! `limits` of `[server]`: on every route, before its own.

use super::start;
use crate::harness::get_with;

#[test]
fn limits_of_the_server_are_on_every_route() {
    let limit = |name: &str, count: u32| {
        format!(
            "[limits.{name}]\nalgorithm = \"fixed-window\"\nrate = \"{count}/366day\"\nkey = \"global\"\n"
        )
    };
    let route = |name: &str, more: &str| {
        format!("[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"api\"\n{more}\n")
    };
    let routes = [
        route("plain", ""),
        route("dear", "cost = 2"),
        route("own", "limits = [\"mine\", { name = \"everyone\", cost = 4 }]"),
        route("free", "server_limits = false"),
    ]
    .concat();
    let gateway =
        start("limits = [\"everyone\"]", &format!("{routes}{}{}", limit("everyone", 10), limit("mine", 100)));
    let remaining = |path: &str| {
        let response = get_with(gateway.addr(), path, "");
        let left = response.header("x-ratelimit-remaining").map(str::to_owned);
        (response.status, left.unwrap_or_default())
    };
    assert_eq!(remaining("/plain"), (200, "9".to_owned()));
    assert_eq!(remaining("/dear"), (200, "7".to_owned()));
    assert_eq!(remaining("/own"), (200, "3".to_owned()));
    assert_eq!(remaining("/free"), (200, String::new()));
    assert_eq!(remaining("/own").0, 429, "it costs 4");
    let refused = get_with(gateway.addr(), "/own", "");
    assert!(refused.text().contains(r#""violated-policies":["everyone"]"#), "{}", refused.text());
    assert_eq!(remaining("/plain"), (200, "2".to_owned()), "a refusal costs nothing");
    assert_eq!(remaining("/free").0, 200);
}
