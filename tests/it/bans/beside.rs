//! Bans beside other features: shadow limits, bans by hand, concurrency limits, wrong keys and reloads.

use serde_json::{Value, json};

use super::{Met, TWO, bans, is_ban, meet, start};
use crate::harness::api::{api, good};
use crate::harness::in_flight::{begin, fits, held, limited};
use crate::harness::{Backend, Gateway, HoldingBackend, everything_to, get_with};

const THREE: &str = "{ after = 3, within = \"10min\", for = \"1h\" }";

#[test]
fn a_shadow_limit_bans_no_client_and_counts() {
    let gateway = start(&format!("{TWO}mode = \"shadow\"\n"), THREE);
    for _ in 0..20 {
        assert_eq!(meet(&gateway, "a"), Met::Admitted);
    }
    let labels = ["limit=\"x\"", "decision=\"shadow_limited\""];
    assert!((gateway.metric("tollgate_decisions_total", &labels) - 18.0).abs() < 0.5);
    let listed = api(&gateway, "bans");
    assert_eq!((&listed["total"], &listed["bans"][0]["mode"]), (&1.into(), &"shadow".into()), "{listed}");
    let explained = || {
        let request = "{\"method\": \"GET\", \"url\": \"/\", \"headers\": {\"x-client\": \"a\"}}";
        good(&gateway, "POST explain", request)["verdict"].clone()
    };
    assert_eq!(
        (explained(), &api(&gateway, "limits/x/keys/a")["verdict"]),
        ("admitted".into(), &"refused".into())
    );
    // By hand it bans, as the API says.
    good(&gateway, "POST limits/x/keys/a/ban", "{\"for\": \"1min\"}");
    assert!(is_ban(meet(&gateway, "a")));
    assert_eq!(
        (explained(), &api(&gateway, "limits/x/keys/a")["verdict"]),
        ("banned".into(), &"banned".into())
    );
}

/// Also where the limit itself would admit the requests again.
#[test]
fn what_a_ban_in_shadow_would_refuse_is_counted() {
    let gateway = start(&format!("{TWO}mode = \"shadow\"\n"), THREE);
    let counted = |decision: &str| {
        let decision = format!("decision=\"{decision}\"");
        gateway.metric("tollgate_decisions_total", &["limit=\"x\"", &decision])
    };
    (0..5).for_each(|_| assert_eq!(meet(&gateway, "a"), Met::Admitted));
    assert_eq!(bans(&gateway), 1);
    good(&gateway, "DELETE limits/x/keys/a", "");
    assert_eq!((meet(&gateway, "a"), bans(&gateway)), (Met::Admitted, 1));
    assert_eq!((counted("allowed"), counted("shadow_limited")), (2.0, 4.0));
}

#[test]
fn a_ban_by_hand_is_independent_of_refusals() {
    let gateway = start(TWO, "{ after = 3, within = \"10min\", for = \"1s\" }");
    good(&gateway, "POST limits/x/keys/a/ban", "{\"for\": \"1h\"}");
    for _ in 0..20 {
        assert!(matches!(meet(&gateway, "a"), Met::Banned(3500..)), "its refusals do not count");
    }
    assert_eq!(bans(&gateway), 1);
    // A ban by hand in place of one that refusals have begun, which ends first.
    assert_eq!([meet(&gateway, "b"), meet(&gateway, "b")], [Met::Admitted; 2]);
    assert_eq!([meet(&gateway, "b"), meet(&gateway, "b")], [Met::Refused; 2]);
    assert!(is_ban(meet(&gateway, "b")));
    good(&gateway, "POST limits/x/keys/b/ban", "{\"for\": \"1h\"}");
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert!(matches!(meet(&gateway, "b"), Met::Banned(3500..)));
    assert_eq!(api(&gateway, "limits/x/keys/b")["verdict"], "banned");
    good(&gateway, "DELETE limits/x/keys/b/ban", "");
    assert_eq!(meet(&gateway, "b"), Met::Refused, "by the limit");
}

#[test]
fn a_concurrency_limit_bans_after_its_refusals() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, &format!("max = 1\nban = {THREE}"), "", ""));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    for _ in 0..2 {
        assert_eq!(begin(&gateway, "/more").read().expect(429).header("retry-after"), None);
    }
    let banned = begin(&gateway, "/more").read().expect(429);
    assert_eq!(banned.header("retry-after"), Some("3600"), "{}", banned.head);
    backend.open();
    first.read().expect(200);
    crate::harness::in_flight::comes_to_hold(&gateway, 0);
    let banned = begin(&gateway, "/more").read().expect(429);
    assert!(banned.header("retry-after").is_some(), "also with a free place: {}", banned.head);
    assert_eq!((held(&gateway), backend.max()), (0, 1));
    good(&gateway, "DELETE limits/x/keys/a/ban", "");
    fits(&gateway, &backend, 1);
}

/// A request that waits for a place is refused only when its wait is over, and that refusal counts once.
#[test]
fn a_wait_in_vain_is_one_refusal() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 1\nqueue = 5\nmax_wait = \"100ms\"\nban = {THREE}");
    let gateway = Gateway::start(&limited(&backend, &limit, "", ""));
    let _first = begin(&gateway, "/0");
    backend.holds(1);
    for _ in 0..2 {
        assert_eq!(begin(&gateway, "/more").read().expect(429).header("retry-after"), None);
        assert_eq!(bans(&gateway), 0);
    }
    let banned = begin(&gateway, "/more").read().expect(429);
    assert_eq!(banned.header("retry-after"), Some("3600"), "the ban begins after the wait: {}", banned.head);
    assert_eq!(bans(&gateway), 1);
}

#[test]
fn a_request_that_waits_is_refused_once_its_key_is_banned() {
    let backend = HoldingBackend::start();
    let limit = "max = 1\nqueue = 5\nmax_wait = \"60s\"\n";
    let gateway = Gateway::start(&limited(&backend, limit, "", ""));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let mut waiting = begin(&gateway, "/1");
    crate::harness::eventually("it to wait", || {
        (gateway.metric("tollgate_concurrency_waiting", &["limit=\"x\""]) > 0.5).then_some(())
    });
    good(&gateway, "POST limits/x/keys/a/ban", "{\"for\": \"1h\"}");
    backend.open();
    first.read().expect(200);
    let refused = waiting.read().expect(429);
    assert!(refused.banned_for().is_some(), "{}", refused.head);
    crate::harness::in_flight::comes_to_hold(&gateway, 0);
    assert_eq!(backend.max(), 1);
}

/// Good keys from the banned address pass: the ban is that of the limit of wrong keys.
#[test]
fn the_limit_of_wrong_keys_bans_addresses() {
    let (backend, directory) = (Backend::ok(), tempfile::tempdir().expect("a temporary directory"));
    let file = directory.path().join("consumers.csv");
    std::fs::write(&file, "key,name\nkey-ada-1,ada\n").expect("it can be written");
    let rest = format!(
        "auth = \"keys\"\n[limits.x]\nkey = \"ip\"\n{TWO}ban = {THREE}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\nfailures = \"x\"\n",
        file.display()
    );
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let guess = |key: &str| {
        let response = get_with(gateway.addr(), "/", &format!("x-api-key: {key}\r\n"));
        (response.status, response.header("retry-after").map(|wait| wait.parse::<u64>().expect("seconds")))
    };
    assert_eq!([guess("1"), guess("2")], [(401, None); 2]);
    assert!([guess("3"), guess("4")].iter().all(|met| met.0 == 429 && met.1 > Some(86_400)));
    for number in 5..10 {
        let response = get_with(gateway.addr(), "/", &format!("x-api-key: {number}\r\n"));
        assert!(response.status == 429 && response.banned_for().is_some(), "{}", response.head);
    }
    assert_eq!((guess("key-ada-1"), bans(&gateway)), ((200, None), 1));
    good(&gateway, "DELETE limits/x/keys/127.0.0.1/ban", "");
    assert!(guess("10").1 > Some(86_400), "by the limit");
}

#[test]
fn a_ban_outlives_a_reload_and_is_not_shown_without_its_limit() {
    let gateway = start(TWO, THREE);
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Admitted; 2]);
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Refused; 2]);
    assert!(is_ban(meet(&gateway, "a")));
    let with = std::fs::read_to_string(gateway.config_path()).expect("it can be read");
    gateway.reload(&with.replace("after = 3", "after = 9"), "reload");
    assert!(is_ban(meet(&gateway, "a")), "the ban is in force");
    gateway.reload(&with.replace("limits = [\"x\"]", ""), "reload");
    assert_eq!(meet(&gateway, "a"), Met::Admitted);
    gateway.reload(&with, "reload");
    assert!(is_ban(meet(&gateway, "a")));
}

/// The number of bans of a limit that refuse and of those in shadow, in each view of the gateway.
#[track_caller]
fn assert_bans(gateway: &Gateway, in_force: u64, in_shadow: u64) {
    let numbers = [in_force, in_shadow];
    let fields = |told: &Value| [&told["bans"], &told["shadow_bans"]].map(|count| count.as_u64().unwrap());
    assert_eq!(fields(&api(gateway, "status")), numbers);
    assert_eq!(fields(&api(gateway, "limits")["limits"][0]), numbers);
    let listed = api(gateway, "bans");
    let marks = listed["bans"].as_array().unwrap().iter().map(|ban| ban["in_shadow"].as_bool().unwrap());
    let marked = marks.filter(|mark| *mark).count() as u64;
    assert_eq!((&listed["total"], marked), (&(in_force + in_shadow).into(), in_shadow), "{listed}");
    let metric = |name| gateway.metric(name, &["limit=\"x\""]).round();
    assert_eq!([metric("tollgate_bans"), metric("tollgate_shadow_bans")], numbers.map(|count| count as f64));
}

/// Writes the file, and reloads it by the API. Returns the bans that the reload has ended.
fn reload(gateway: &Gateway, file: &str) -> Value {
    gateway.write_config(file);
    good(gateway, "POST reload", "")["ended_bans"].clone()
}

#[test]
fn a_ban_in_shadow_is_marked_and_never_becomes_real() {
    let gateway = start(&format!("{TWO}mode = \"shadow\"\n"), THREE);
    (0..5).for_each(|_| assert_eq!(meet(&gateway, "a"), Met::Admitted));
    assert_bans(&gateway, 0, 1);
    for key in [api(&gateway, "limits/x/keys")["keys"][0].clone(), api(&gateway, "limits/x/keys/a")] {
        assert_eq!((key["banned_until"].is_f64(), &key["ban_in_shadow"]), (true, &true.into()), "{key}");
    }
    let file = std::fs::read_to_string(gateway.config_path()).expect("it can be read");
    let enforced = file.replace("shadow", "enforce");
    let ended = json!([{ "limit": "x", "bans": 1, "in_shadow": true }]);
    assert_eq!(reload(&gateway, &enforced), ended);
    gateway.wait_for_log("limit `x`: 1 ban has ended, begun in shadow: the limit is enforced now");
    assert_bans(&gateway, 0, 0);
    assert_eq!(meet(&gateway, "a"), Met::Refused, "by the limit, whose counter stays");
    good(&gateway, "DELETE limits/x/keys/a", "");
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Admitted; 2]);
    // One refusal counted above, none in shadow: this is the second, and the next begins a ban.
    assert_eq!(meet(&gateway, "a"), Met::Refused);
    assert!(is_ban(meet(&gateway, "a")));
    assert_bans(&gateway, 1, 0);
    // In shadow again, the limit has no ban in force, and none that comes back.
    let ended = json!([{ "limit": "x", "bans": 1, "in_shadow": false }]);
    assert_eq!(reload(&gateway, &file), ended);
    gateway.wait_for_log("limit `x`: 1 ban has ended, in force before: the limit is in shadow now");
    assert_bans(&gateway, 0, 0);
    assert_eq!(meet(&gateway, "a"), Met::Admitted);
    assert_eq!((reload(&gateway, &enforced), meet(&gateway, "a")), (json!([]), Met::Refused));
}

#[test]
fn a_ban_by_hand_stays_whatever_the_mode_becomes() {
    let gateway = start(&format!("{TWO}mode = \"shadow\"\n"), THREE);
    good(&gateway, "POST limits/x/keys/a/ban", "{\"for\": \"1h\"}");
    assert_bans(&gateway, 1, 0);
    let file = std::fs::read_to_string(gateway.config_path()).expect("it can be read");
    for file in [file.replace("shadow", "enforce"), file] {
        assert_eq!(reload(&gateway, &file), json!([]));
        assert!(is_ban(meet(&gateway, "a")));
        assert_bans(&gateway, 1, 0);
    }
}

/// A trial has both kinds of keys. `a` is in shadow while the trial is small.
#[test]
fn a_key_that_comes_into_a_trial_leaves_its_ban_in_shadow_behind() {
    let gateway = start(&format!("{TWO}trial = 0.0001\n"), THREE);
    (0..5).for_each(|_| assert_eq!(meet(&gateway, "a"), Met::Admitted));
    assert_bans(&gateway, 0, 1);
    let file = std::fs::read_to_string(gateway.config_path()).expect("it can be read");
    assert_eq!(reload(&gateway, &file.replace("0.0001", "0.00001")), json!([]), "a smaller share ends none");
    assert_bans(&gateway, 0, 1);
    let ended = json!([{ "limit": "x", "bans": 1, "in_shadow": true }]);
    assert_eq!(reload(&gateway, &file.replace("0.0001", "1.0")), ended);
    assert_bans(&gateway, 0, 0);
    assert_eq!(meet(&gateway, "a"), Met::Refused, "by the limit");
}

#[test]
fn a_ban_in_shadow_can_be_lifted() {
    let gateway = start(&format!("{TWO}mode = \"shadow\"\n"), THREE);
    (0..5).for_each(|_| assert_eq!(meet(&gateway, "a"), Met::Admitted));
    let lifted = good(&gateway, "DELETE limits/x/keys/a/ban", "");
    assert_eq!((&lifted["changed"], &lifted["banned_until"]), (&true.into(), &Value::Null), "{lifted}");
    assert_bans(&gateway, 0, 0);
    (0..2).for_each(|_| assert_eq!(meet(&gateway, "a"), Met::Admitted));
    assert_bans(&gateway, 0, 0);
}
