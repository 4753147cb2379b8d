//! A reload that reorders the rates of a limit, adds rates or removes some: each rate that stays keeps its counter, and none
//! gets the counter of another one. In memory and in Redis.

use serde_json::json;

use crate::harness::api::good;
use crate::harness::{Backend, Gateway, Redis, everything_to};

const ALGORITHMS: [&str; 5] = ["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"];

/// Each of these in memory and in Redis.
fn in_both_stores(story: impl Fn(&str)) {
    story("");
    let redis = Redis::start();
    story(&format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"2s\"\n", redis.url()));
}

/// The limit has the name of its algorithm, so that the limits of one Redis are apart.
fn limited(backend: &Backend, (algorithm, rate, store): (&str, &str, &str)) -> String {
    let burst = if algorithm == "gcra" { "burst = 10\n" } else { "" };
    let rest = format!(
        "limits = [\"{algorithm}\"]\n[limits.{algorithm}]\nalgorithm = \"{algorithm}\"\nkey = \"ip\"\n{burst}rate = {rate}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{store}"
    );
    everything_to(backend, &rest)
}

fn passed(gateway: &Gateway, requests: usize) -> usize {
    (0..requests).filter(|_| gateway.get("/").status == 200).count()
}

#[test]
fn a_rate_keeps_its_counter_wherever_it_stands_in_the_list() {
    in_both_stores(|store| {
        for algorithm in ALGORITHMS {
            let backend = Backend::ok();
            let with = |rate: &str| limited(&backend, (algorithm, rate, store));
            let gateway = Gateway::start(&with("\"10/300day\""));
            assert_eq!(passed(&gateway, 12), 10, "{algorithm}");
            for rate in [
                "[\"100/280day\", \"10/300day\"]",
                "\"10/300day\"",
                "[\"100/280day\", \"10/300day\"]",
                "[\"1000/290day\", \"10/300day\", \"100/280day\"]",
                "[\"10/300day\", \"1000/290day\"]",
            ] {
                gateway.reload(&with(rate), "reloaded");
                assert_eq!(passed(&gateway, 2), 0, "{algorithm}: ten are used up: {rate}");
            }
            // A bucket that is full stays full if only its rate grows.
            if algorithm == "gcra" {
                continue;
            }
            let changed = with("[\"100/280day\", \"2000/300day\"]");
            gateway.reload(&changed, "reloaded");
            assert_eq!(passed(&gateway, 1), 1, "{algorithm}: another number of the same period");
        }
    });
}

#[test]
fn a_rate_that_is_left_alone_has_its_own_counter() {
    in_both_stores(|store| {
        for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
            let backend = Backend::ok();
            let with = |rate: &str| limited(&backend, (algorithm, rate, store));
            let remaining = |gateway: &Gateway| {
                let answer = gateway.get("/").expect(200);
                answer.header("x-ratelimit-remaining").expect("the header").to_owned()
            };
            let gateway = Gateway::start(&with("[\"10/300day\", \"100/366day\"]"));
            assert_eq!(passed(&gateway, 12), 10, "{algorithm}");
            gateway.reload(&with("\"100/366day\""), "reloaded");
            assert_eq!(remaining(&gateway), "89", "{algorithm}: ten are used, and this one");
            gateway.reload(&with("\"50/200day\""), "reloaded");
            if algorithm == "token-bucket" {
                assert_eq!(remaining(&gateway), "38", "eleven are in use, and this one");
                continue;
            }
            assert_eq!(remaining(&gateway), "49", "{algorithm}: a new period has a new counter");
            gateway.wait_for_log("counters of rate 50/200day start afresh");
            gateway.reload(&with("[\"50/200day\", \"100/366day\"]"), "reloaded");
            assert_eq!(remaining(&gateway), "48", "{algorithm}: both have their counters");
        }
    });
}

#[test]
fn two_rates_of_one_period_have_two_counters() {
    in_both_stores(|store| {
        let backend = Backend::ok();
        let with = |rate: &str| limited(&backend, ("fixed-window", rate, store));
        let gateway = Gateway::start(&with("[\"4/300day\", \"6/300day\"]"));
        assert_eq!(passed(&gateway, 8), 4);
        gateway.reload(&with("[\"100/200day\", \"6/300day\", \"9/300day\"]"), "reloaded");
        assert_eq!(passed(&gateway, 8), 2, "each has the four requests");
    });
}

/// Bans and overrides are of the limit: they know nothing of the order of its rates.
#[test]
fn a_ban_outlives_another_order_and_another_period() {
    let backend = Backend::ok();
    let with = |rate: &str| limited(&backend, ("fixed-window", rate, ""));
    let gateway = Gateway::start(&with("[\"10/300day\", \"100/366day\"]"));
    good(&gateway, "POST limits/fixed-window/keys/127.0.0.1/ban", &json!({ "for": "1h" }).to_string());
    assert_eq!(passed(&gateway, 1), 0);
    for rate in ["[\"100/366day\", \"10/300day\"]", "\"100/200day\""] {
        gateway.reload(&with(rate), "reloaded");
        assert_eq!(passed(&gateway, 1), 0, "{rate}");
    }
}
