//! `before_auth`: a limit that is charged before a credential is looked at, and apart from the others.

use http::Request;
use serde_json::json;

use super::start;
use crate::harness::api::good;
use crate::harness::config_folder::ConfigFolder;
use crate::harness::{AllVersions, Backend, Body, Gateway, Http2, Multiplexed, Next, Redis, get_with};

/// A limit by address of this many requests a day.
fn by_address(name: &str, rate: &str, more: &str) -> String {
    format!("[limits.{name}]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"{rate}/366day\"\n{more}\n")
}

/// A service that refuses every credential.
fn refusing() -> Backend {
    Backend::start(|exchange| {
        exchange.write("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    })
}

/// The statuses of `count` requests with a cookie, over HTTP/1.1 or on this connection, and what the last one says of its
/// limit.
fn statuses(gateway: &Gateway, connection: Option<&Multiplexed>, count: usize) -> (Vec<u16>, String) {
    let mut last = String::new();
    let mut statuses = Vec::new();
    for number in 0..count {
        let cookie = format!("session={number}");
        let (status, body) = match connection {
            Some(connection) => {
                let request =
                    Request::get("http://test/").header("cookie", cookie).body(()).expect("a request");
                let answer = connection.exchange(request, Body::default()).expect("an answer");
                (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
            }
            None => {
                let response = get_with(gateway.addr(), "/", &format!("cookie: {cookie}\r\n"));
                (response.status, response.text())
            }
        };
        statuses.push(status);
        last = body;
    }
    (statuses, last)
}

#[test]
fn a_service_is_asked_at_most_as_often_as_the_limit_says() {
    for (shared, version) in [(false, 0_usize), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
        let redis = shared.then(Redis::start);
        let store = redis.as_ref().map_or_else(String::new, |redis| redis.store_table());
        let door = refusing();
        let gateway = AllVersions::start(&format!(
            "[upstreams]\napi = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                 [[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = \"door\"\nlimits = [\"first\", \"second\"]\n\
                 [auth.door]\ntype = \"forward\"\nurl = \"{}/check\"\n{}{}{store}",
            door.url(),
            by_address("first", "5", "before_auth = true"),
            by_address("second", "1000", ""),
        ));
        let others = gateway.clients();
        let (statuses, last) =
            statuses(&gateway, version.checked_sub(1).and_then(|index| others.get(index)), 20);
        let expected: Vec<u16> = (0..20).map(|number| if number < 5 { 401 } else { 429 }).collect();
        assert_eq!(statuses, expected, "shared: {shared}, version: {version}");
        assert_eq!(door.count(), 5);
        assert!(last.contains("first") && !last.contains("second"), "{last}");
        let decided = |limit: &str, decision: &str| {
            let labels = [format!("limit=\"{limit}\""), format!("decision=\"{decision}\"")];
            gateway.metric("tollgate_decisions_total", &labels.each_ref().map(String::as_str))
        };
        let counts = [decided("first", "allowed"), decided("first", "limited"), decided("second", "allowed")];
        let is_wanted = counts.iter().zip([5.0, 15.0, 0.0]).all(|(one, other)| (one - other).abs() < 0.5);
        assert!(is_wanted, "{counts:?}");
    }
}

#[test]
fn of_requests_at_once_exactly_the_allowance_asks_the_service() {
    let door = refusing();
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = \"door\"\nlimits = [\"first\"]\n";
    let gateway = start(
        "workers = 2",
        &format!(
            "{route}[auth.door]\ntype = \"forward\"\nurl = \"{}/\"\n{}",
            door.url(),
            by_address("first", "17", "before_auth = true")
        ),
    );
    let connections: Vec<_> = (0..4).map(|_| Http2::connect(gateway.addr())).collect();
    let request = |number: usize| {
        let cookie = format!("session={number}");
        (Request::get("http://test/").header("cookie", cookie).body(()).expect("a request"), Body::default())
    };
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let ask = |connection| scope.spawn(move || Http2::all(connection, (0..50).map(request)));
        let tasks: Vec<_> = connections.iter().map(ask).collect();
        let answers = tasks.into_iter().flat_map(|task| task.join().expect("no panic"));
        answers.map(|answer| answer.expect("an answer").status).collect()
    });
    let of = |status| answers.iter().filter(|one| **one == status).count();
    assert_eq!((of(401), of(429), door.count()), (17, 183, 17));
}

/// The password of `ann` is `secret`; her key is `key-of-ann`.
fn credentials() -> ConfigFolder {
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    ConfigFolder::new(&[("consumers.csv", "key,name\nkey-of-ann,ann\n"), ("users", &format!("ann:{hash}\n"))])
}

#[test]
fn a_flood_of_passwords_is_checked_as_often_as_the_limit_says() {
    let files = credentials();
    let users = format!("[auth.users]\ntype = \"basic\"\nfile = {:?}\n", files.path("users"));
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = \"users\"\nlimits = [\"first\"]\n";
    let gateway = start("", &format!("{route}{users}{}", by_address("first", "4", "before_auth = true")));
    let right = "authorization: Basic YW5uOnNlY3JldA==\r\n";
    get_with(gateway.addr(), "/", right).expect(200);
    for _ in 0..3 {
        get_with(gateway.addr(), "/", "authorization: Basic YW5uOndyb25n\r\n").expect(401);
    }
    for fields in ["authorization: Basic YW5uOndyb25n\r\n", "", right] {
        let response = get_with(gateway.addr(), "/", fields).expect(429);
        assert!(response.header("www-authenticate").is_none());
    }
    let checked = gateway.metric("tollgate_auth_total", &["result=\"invalid\""]);
    assert!((checked - 3.0).abs() < 0.5, "{checked}");
}

/// `first` admits ten a day, `second` three of each consumer.
fn two_phases(files: &ConfigFolder, server: &str) -> Gateway {
    let keys = format!(
        "[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = {:?}\n",
        files.path("consumers.csv")
    );
    let route =
        "[[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = \"keys\"\nlimits = [\"second\", \"first\"]\n";
    let second = by_address("second", "3", "").replace("\"ip\"", "\"consumer\"");
    start(server, &format!("{route}{keys}{second}{}", by_address("first", "10", "before_auth = true")))
}

#[test]
fn what_a_refused_request_was_charged_before_stays_charged() {
    let files = credentials();
    let gateway = two_phases(&files, "");
    let ask = |key: &str| get_with(gateway.addr(), "/", &format!("x-api-key: {key}\r\n"));
    let admitted = ask("key-of-ann").expect(200);
    assert!(
        admitted.header("ratelimit").is_some_and(|told| told.starts_with("\"second\";r=2")),
        "the tightest"
    );
    ask("wrong").expect(401);
    ask("key-of-ann").expect(200);
    ask("key-of-ann").expect(200);
    for _ in 0..6 {
        let refused = ask("key-of-ann").expect(429);
        assert!(refused.text().contains("second") && !refused.text().contains("first"), "{}", refused.text());
    }
    // Three were admitted, one had a wrong key, and six were refused by the other limit: ten were charged.
    for key in ["key-of-ann", "wrong"] {
        let refused = ask(key).expect(429);
        assert!(refused.text().contains("first") && !refused.text().contains("second"), "{}", refused.text());
        assert!(refused.header("ratelimit").is_some_and(|told| told.starts_with("\"first\";r=0")));
    }
}

#[test]
fn an_admitted_request_is_told_the_policies_of_both_phases() {
    let files = credentials();
    let gateway = two_phases(&files, "ratelimit_policies = \"all\"");
    let ask = || get_with(gateway.addr(), "/", "x-api-key: key-of-ann\r\n");
    let told = ask().expect(200).header("ratelimit").expect("numbers").to_owned();
    assert!(told.contains("\"first\";r=9") && told.contains("\"second\";r=2"), "{told}");
    (0..2).for_each(|_| drop(ask().expect(200)));
    let told = ask().expect(429).header("ratelimit").expect("numbers").to_owned();
    assert!(told.contains("\"second\";r=0") && !told.contains("first"), "{told}");
}

/// What an earlier limit has left is no answer to a client that a later one refuses or bans.
#[test]
fn the_headers_show_the_limit_that_refuses_whatever_an_earlier_one_has_left() {
    const STANDARD: [&str; 2] = ["\"late\";q=2;w=", "\"late\";r=0;t="];
    for (server, rate, names, told) in [
        ("ratelimit_policies = \"all\"", "100/366day", ["ratelimit-policy", "ratelimit"], STANDARD),
        ("", "100/month", ["ratelimit-policy", "ratelimit"], STANDARD),
        (
            "ratelimit_headers = \"openai\"",
            "100/366day",
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"],
            ["2", "0"],
        ),
    ] {
        let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"early\", \"late\"]\n";
        let align = if rate == "100/month" { "calendar" } else { "first-request" };
        let early = format!(
            "[limits.early]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nbefore_auth = true\nrate = \"{rate}\"\n\
             align = \"{align}\"\n"
        );
        let ban = "ban = { after = 2, within = \"1min\", for = \"1h\" }";
        let gateway = start(server, &format!("{route}{early}{}", by_address("late", "2", ban)));
        let ask = |status| get_with(gateway.addr(), "/", "").expect(status);
        (0..2).for_each(|_| drop(ask(200)));
        // The second refusal begins the ban.
        for time in 0..4 {
            let refused = ask(429);
            for (name, begin) in names.iter().zip(told) {
                let value = refused.header(name).unwrap_or_default();
                assert!(value.starts_with(begin), "{server:?}, refusal {time}: {name}: {value}");
            }
        }
    }
}

#[test]
fn a_shadow_limit_counts_and_a_ban_refuses_before_the_credential() {
    let door = refusing();
    let route = |name: &str| {
        format!(
            "[[routes]]\npath = \"/{name}\"\nupstream = \"api\"\nauth = \"door\"\nlimits = [\"{name}\"]\n"
        )
    };
    let ban = "before_auth = true\nban = { after = 2, within = \"1h\", for = \"1h\" }";
    let gateway = start(
        "",
        &format!(
            "{}{}[auth.door]\ntype = \"forward\"\nurl = \"{}/\"\n{}{}",
            route("shadow"),
            route("banning"),
            door.url(),
            by_address("shadow", "1", "mode = \"shadow\"\nbefore_auth = true"),
            by_address("banning", "1", ban)
        ),
    );
    let ask = |path: &str| get_with(gateway.addr(), path, "cookie: session=a\r\n");
    (0..3).for_each(|_| drop(ask("/shadow").expect(401)));
    let shadow =
        gateway.metric("tollgate_decisions_total", &["limit=\"shadow\"", "decision=\"shadow_limited\""]);
    assert!((shadow - 2.0).abs() < 0.5, "{shadow}");
    ask("/banning").expect(401);
    ask("/banning").expect(429);
    let banned = [ask("/banning").expect(429), ask("/banning").expect(429)];
    assert!(banned.iter().all(|response| response.banned_for().is_some()), "{}", banned[1].text());
    assert_eq!(door.count(), 4);
}

#[test]
fn explain_says_which_phase_refuses() {
    let files = credentials();
    let gateway = two_phases(&files, "");
    let explain = || {
        let asked = json!({ "url": "/", "headers": { "x-api-key": "key-of-ann" }, "ip": "127.0.0.1" });
        good(&gateway, "POST explain", &asked.to_string())
    };
    let ask = || get_with(gateway.addr(), "/", "x-api-key: key-of-ann\r\n").status;
    assert_eq!(explain()["verdict"], "admitted");
    (0..3).for_each(|_| assert_eq!(ask(), 200));
    let told = explain();
    assert_eq!(
        (&told["verdict"], &told["limit"], &told["consumer"]),
        (&json!("refused"), &json!("second"), &json!("ann"))
    );
    (0..7).for_each(|_| assert_eq!(ask(), 429));
    let told = explain();
    assert_eq!((&told["verdict"], &told["limit"]), (&json!("refused"), &json!("first")));
    let words: Vec<_> =
        told["limits"].as_array().expect("limits").iter().map(|limit| &limit["verdict"]).collect();
    assert_eq!(words, [&json!("refused"), &json!("refused")]);
}
