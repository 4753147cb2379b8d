//! Other numbers for single keys, set and taken back while the gateway runs.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::api::{ask, good};
use crate::harness::upgraded::Upgraded;
use crate::harness::{
    Backend, FakeClock, Gateway, Redis, binary, eventually, everything_to, free_address, get_with,
    refuses_connections,
};

const DAY: i64 = 86_400;
const KEY: &str = "limits/month/keys/acme/override";

fn limits() -> String {
    "limits = [\"month\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
     [limits.month]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nrate = \"3/month\"\n"
        .to_owned()
}

fn passed(gateway: &Gateway, key: &str, requests: usize) -> usize {
    let fields = format!("x-key: {key}\r\n");
    (0..requests).filter(|_| get_with(gateway.addr(), "/", &fields).status == 200).count()
}

fn put(gateway: &Gateway, place: &str, body: &Value) -> Value {
    good(gateway, &format!("PUT {place}"), &body.to_string())
}

fn refused(gateway: &Gateway, place: &str, body: &Value) -> (u16, String) {
    let (status, answer) = ask(gateway, &format!("PUT {place}"), &body.to_string());
    (status, answer["detail"].as_str().expect("words").to_owned())
}

#[test]
fn an_override_counts_in_the_same_counter_until_it_is_taken_back() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &limits()));
    assert_eq!((passed(&gateway, "acme", 5), passed(&gateway, "other", 5)), (3, 3));
    let set = put(&gateway, KEY, &json!({ "rate": "5/month" }));
    let expected = json!({ "rate": ["5/month"], "burst": null, "until": null, "persistent": false });
    assert_eq!((&set["override"], &set["changed"]), (&expected, &json!(true)));
    assert_eq!((&set["policies"][0]["quota"], &set["policies"][0]["used"]), (&json!(5), &json!(3)));
    assert_eq!(put(&gateway, KEY, &json!({ "rate": ["5/month"] }))["changed"], json!(false));
    let response = get_with(gateway.addr(), "/", "x-key: acme\r\n").expect(200);
    assert_eq!(response.header("ratelimit").map(|told| told.contains("\"month\";r=1")), Some(true));
    assert_eq!((passed(&gateway, "acme", 5), passed(&gateway, "other", 5)), (1, 0));
    // Shown wherever the key is.
    let look = good(&gateway, "GET limits/month/keys/acme", "");
    assert_eq!(look["override"], expected);
    let keys = good(&gateway, "GET limits/month/keys", "");
    assert_eq!(
        keys["keys"].as_array().expect("a list").iter().filter(|one| one["override"] == expected).count(),
        1
    );
    let question = json!({ "method": "GET", "url": "http://test/", "headers": { "x-key": "acme" } });
    let told = good(&gateway, "POST explain", &question.to_string());
    assert_eq!((&told["limits"][0]["overridden"], &told["verdict"]), (&json!(true), &json!("refused")));
    assert_eq!(told["limits"][0]["policies"][0]["quota"], json!(5));
    let set = good(&gateway, &format!("DELETE {KEY}"), "");
    assert_eq!(
        (set.get("override"), &set["changed"], &set["policies"][0]["quota"]),
        (None, &json!(true), &json!(3))
    );
    assert_eq!(good(&gateway, &format!("DELETE {KEY}"), "")["changed"], json!(false));
    assert_eq!(passed(&gateway, "acme", 2), 0);
    gateway.wait_for_log("sets 5/month for id:");
    gateway.wait_for_log("takes back the override of id:");
    assert!(!gateway.stderr().contains("acme"), "the log has no key");
}

#[test]
fn buckets_several_rates_and_tiers() {
    let backend = Backend::ok();
    let consumers = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(consumers.path(), "key,name,tier\nsecret-of-acme,acme,gold\n").expect("it is written");
    let limits = format!(
        "limits = [\"bucket\", \"both\"]\nauth = \"keys\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = \"{}\"\n\
         [limits.bucket]\nalgorithm = \"token-bucket\"\nkey = \"consumer\"\nrate = \"1/day\"\nburst = 2\n\
         tiers.gold = {{ rate = \"1/day\", burst = 4 }}\n\
         [limits.both]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = [\"100/day\", \"200/month\"]\n",
        consumers.path().display()
    );
    let gateway = Gateway::start(&everything_to(&backend, &limits));
    assert_eq!(passed(&gateway, "secret-of-acme", 1), 1);
    let set = put(&gateway, "limits/bucket/keys/acme/override", &json!({ "rate": "1/day", "burst": 6 }));
    assert_eq!((&set["policies"][0]["quota"], &set["tier"]), (&json!(6), &json!("gold")), "over the tier");
    assert_eq!(passed(&gateway, "secret-of-acme", 9), 5);
    // Without a burst, that of the limit.
    let set = put(&gateway, "limits/bucket/keys/acme/override", &json!({ "rate": "5/day" }));
    assert_eq!(set["policies"][0]["quota"], json!(2));
    let set = put(&gateway, "limits/both/keys/acme/override", &json!({ "rate": ["7/month", "6/day"] }));
    assert_eq!(set["override"]["rate"], json!(["6/day", "7/month"]));
    good(&gateway, "DELETE limits/bucket/keys/acme", "");
    put(&gateway, "limits/bucket/keys/acme/override", &json!({ "rate": "100/day", "burst": 100 }));
    assert_eq!(passed(&gateway, "secret-of-acme", 9), 0, "six were used before");
}

/// A reload changes the periods of rates, their order and their number.
#[test]
fn an_override_keeps_its_speed_when_a_reload_changes_periods() {
    let backend = Backend::ok();
    let toml = |rate: &str| everything_to(&backend, &limits().replace("\"3/month\"", rate));
    let gateway = Gateway::start(&toml("\"10/day\""));
    let rates = || good(&gateway, "GET limits/month/keys/acme", "")["override"]["rate"].clone();
    put(&gateway, KEY, &json!({ "rate": "48/day" }));
    gateway.reload(&toml("\"1/h\""), "reloaded");
    assert_eq!((rates(), passed(&gateway, "acme", 5)), (json!(["2/h"]), 2));
    gateway.reload(&toml("[\"1/h\", \"10/day\"]"), "reloaded");
    assert_eq!(rates(), json!(["2/h", "48/day"]));
    put(&gateway, KEY, &json!({ "rate": ["5/h", "90/day"] }));
    gateway.reload(&toml("[\"10/day\", \"1/h\"]"), "reloaded");
    assert_eq!(rates(), json!(["90/day", "5/h"]));
    gateway.reload(&toml("\"3/month\""), "reloaded");
    assert_eq!(rates(), json!(["2790/month"]));
}

#[test]
fn what_a_limit_cannot_have_is_refused_in_words() {
    let backend = Backend::ok();
    let limits = limits()
        + "[limits.bucket]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"10/s\"\nburst = 5\n\
           [limits.places]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 5\n\
           [limits.log]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = \"5/min\"\nmax_keys = 50\n\
           [limits.twice]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = [\"10/s\", \"20/s\"]\n";
    let limits = limits.replace("[\"month\"]", "[\"month\", \"bucket\", \"places\", \"log\", \"twice\"]");
    let gateway = Gateway::start(&everything_to(&backend, &limits));
    let bucket = "limits/bucket/keys/127.0.0.1/override";
    for (place, body, words) in [
        (KEY, json!({ "rate": "5/day" }), "the limit has `3/month`"),
        (KEY, json!({ "rate": ["5/month", "5/month"] }), "the limit has `3/month`"),
        (KEY, json!({ "rate": [] }), "the limit has `3/month`"),
        (KEY, json!({ "rate": "0/month" }), "`0/month` is no rate"),
        (KEY, json!({ "rate": "5" }), "`5` is no rate"),
        (KEY, json!({ "rate": "1000000001/month" }), "is no rate"),
        (KEY, json!({ "rate": "5/month", "burst": 7 }), "the limit has no `burst`"),
        (KEY, json!({ "rate": "5/month", "until": "tomorrow" }), "`until` a moment"),
        (KEY, json!({ "rate": "5/month", "until": "2020-01-01T00:00:00Z" }), "`until` has passed"),
        (KEY, json!({ "rate": "5/month", "until": -1 }), "`until` a moment"),
        (KEY, json!({ "rate": "5/month", "until": 1e300 }), "`until` a moment"),
        (KEY, json!({ "rate": "5/month", "for": "1h" }), "unknown field `for`"),
        (KEY, json!({}), "missing field `rate`"),
        (bucket, json!({ "rate": "10/min" }), "the limit has `10/s`"),
        (bucket, json!({ "rate": "10/s", "burst": 0 }), "`burst` a whole number"),
        ("limits/places/keys/127.0.0.1/override", json!({ "rate": "5/s" }), "the limit has no rate"),
        (
            "limits/twice/keys/127.0.0.1/override",
            json!({ "rate": ["3/s", "4/s"] }),
            "the limit has `10/s`, `20/s`: no override can name one of two with the same period",
        ),
        ("limits/log/keys/127.0.0.1/override", json!({ "rate": "51/min" }), "only 50 events"),
    ] {
        let (status, detail) = refused(&gateway, place, &body);
        assert!(status == 400 && detail.contains(words), "{body}: {status} {detail}");
    }
    assert_eq!(refused(&gateway, "limits/other/keys/a/override", &json!({ "rate": "5/s" })).0, 404);
    assert_eq!(
        put(&gateway, bucket, &json!({ "rate": "20/s", "burst": 9 }))["policies"][0]["quota"],
        json!(9)
    );
}

#[test]
fn an_override_outlives_an_upgrade_and_with_a_file_a_restart() {
    let backend = Backend::ok();
    let folder = tempfile::tempdir().expect("a folder");
    let (address, admin) = (free_address(), free_address());
    let store = format!(
        "[store]\nsnapshot = \"{}\"\n[server]\nlisten = [\"{address}\"]\nworkers = 2\n",
        folder.path().join("counters").display()
    );
    let toml =
        everything_to(&backend, &format!("{}{store}", limits())).replace("127.0.0.1:0", &admin.to_string());
    let start = || {
        let mut command = Command::new(binary());
        command.arg("run").stdin(Stdio::null());
        Upgraded::new(Gateway::start_by(&toml, command))
    };
    let mut gateway = start();
    let set = put(&gateway.gateway, KEY, &json!({ "rate": "6/month", "until": "2100-01-01T00:00:00Z" }));
    assert_eq!(
        (&set["override"]["persistent"], &set["override"]["until"]),
        (&json!(true), &json!(4_102_444_800.0))
    );
    assert_eq!(passed(&gateway.gateway, "acme", 4), 4);
    gateway.upgrade();
    assert_eq!(passed(&gateway.gateway, "acme", 1), 1);
    let mut first = gateway;
    first.signal(Signal::TERM);
    first.gateway.wait_for_exit();
    first.wait_for(2, "stopped");
    refuses_connections(admin);
    let gateway = start();
    assert_eq!(passed(&gateway.gateway, "acme", 3), 1);
    assert_eq!(good(&gateway.gateway, "GET limits/month/keys/acme", "")["override"], set["override"]);
}

#[test]
fn it_ends_by_the_wall_clock() {
    let Some(clock) = FakeClock::ahead_by(0) else { return };
    let backend = Backend::ok();
    let gateway = clock.gateway(&everything_to(&backend, &limits().replace("3/month", "3/day")), &[]);
    let tomorrow =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_secs() + 86_400;
    put(&gateway, KEY, &json!({ "rate": "9/day", "until": tomorrow }));
    assert_eq!(good(&gateway, "GET limits/month/keys/acme", "")["policies"][0]["quota"], json!(9));
    clock.step_to(2 * DAY);
    eventually("the clock to be noticed", || {
        (gateway.metric("tollgate_clock_steps_total", &[]) > 0.5).then_some(())
    });
    let look = good(&gateway, "GET limits/month/keys/acme", "");
    assert_eq!((look.get("override"), &look["policies"][0]["quota"]), (None, &json!(3)));
    assert_eq!(passed(&gateway, "acme", 5), 3);
}

/// Each gateway of a fleet has it within about a second, also one that starts later, and it is in the counters of all.
#[test]
fn a_fleet_shares_its_overrides() {
    let backend = Backend::ok();
    let mut redis = Redis::start();
    let store = format!(
        "[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"5s\"\non_error = \"deny\"\n",
        redis.url()
    );
    let toml = everything_to(&backend, &format!("{}{store}", limits()));
    let (one, other) = (Gateway::start(&toml), Gateway::start(&toml));
    assert_eq!(passed(&one, "acme", 2) + passed(&other, "acme", 4), 3);
    let body = json!({ "rate": "7/month", "until": "2100-01-01T00:00:00Z" });
    let set = put(&one, KEY, &body);
    let expected =
        json!({ "rate": ["7/month"], "burst": null, "until": 4_102_444_800.0, "persistent": true });
    assert_eq!((&set["override"], &set["changed"]), (&expected, &json!(true)));
    assert_eq!(put(&one, KEY, &body)["changed"], json!(false));
    let quota =
        |gateway: &Gateway| good(gateway, "GET limits/month/keys/acme", "")["policies"][0]["quota"].clone();
    eventually("the other gateway to know", || (quota(&other) == json!(7)).then_some(()));
    let later = Gateway::start(&toml);
    eventually("a new gateway to know", || (quota(&later) == json!(7)).then_some(()));
    assert_eq!(passed(&other, "acme", 1) + passed(&one, "acme", 2) + passed(&later, "acme", 4), 4);
    // A gateway whose limit has another period counts by the same speed.
    let daily = Gateway::start(&toml.replace("3/month", "1/day"));
    let rate = || good(&daily, "GET limits/month/keys/acme", "")["override"]["rate"].clone();
    eventually("it to know", || (rate() == json!(["1/day"])).then_some(()));
    put(&one, KEY, &json!({ "rate": "62/month" }));
    eventually("it to know", || (rate() == json!(["2/day"])).then_some(()));
    put(&one, KEY, &body);
    // A burst, several rates and several keys, and none of them any more.
    for key in 0..30 {
        put(&other, &format!("limits/month/keys/k{key}/override"), &json!({ "rate": "9/month" }));
    }
    assert_eq!(good(&one, &format!("DELETE {KEY}"), "")["changed"], json!(true));
    eventually("the others to know", || {
        let look = good(&other, "GET limits/month/keys/acme", "");
        (look.get("override").is_none() && quota(&later) == json!(3)).then_some(())
    });
    eventually("all of them", || {
        let look = good(&one, "GET limits/month/keys/k29", "");
        (look["policies"][0]["quota"] == json!(9)).then_some(())
    });
    for key in 0..30 {
        good(&other, &format!("DELETE limits/month/keys/k{key}/override"), "");
    }
    assert!(!redis.keys().iter().any(|key| key.contains("overrides")), "{:?}", redis.keys());
    redis.kill();
    let (status, _) = refused(&one, KEY, &body);
    assert_eq!(status, 503);
}
