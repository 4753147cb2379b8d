//! The machine's clock is wrong at start, and is corrected while the gateway runs.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header};
use serde_json::json;

use crate::harness::{Backend, FakeClock, Gateway, Redis, Response, eventually, everything_to, get_with};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";
const TWO_A_DAY: &str = "limits = [\"daily\"]\n[limits.daily]\nalgorithm = \"fixed-window\"\nrate = \"2/day\"\nalign = \"calendar\"\nkey = \"global\"\n";

/// Seconds since 1970.
fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()).expect("small")
}

/// By how much a clock that shows noon, UTC, is ahead.
fn noon() -> i64 {
    (DAY + DAY / 2 - now() % DAY) % DAY
}

/// The wait of a refusal.
fn wait(gateway: &Gateway) -> i64 {
    let refused = gateway.get("/");
    assert_eq!(refused.status, 429, "{}", refused.head);
    refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a wait")
}

fn passed(gateway: &Gateway, requests: usize) -> usize {
    (0..requests).filter(|_| gateway.get("/").status == 200).count()
}

/// Waits until the gateway has noticed a number of steps.
fn steps(gateway: &Gateway, count: f64) {
    eventually("the gateway to notice", || {
        (gateway.metric("tollgate_clock_steps_total", &[]) == count).then_some(())
    });
}

#[test]
fn tokens_are_good_by_the_clock_as_it_is_now() {
    let Some(clock) = FakeClock::ahead_by(-HOUR) else { return };
    let secret = "0123456789abcdef0123456789abcdef";
    let auth = "[auth.sso]\ntype = \"jwt\"\nsecret_env = \"TOKEN_SECRET\"\n";
    let backend = Backend::ok();
    let gateway = clock.gateway(
        &everything_to(&backend, &format!("auth = \"sso\"\n{auth}{ADMIN}")),
        &[("TOKEN_SECRET", secret)],
    );
    let ask = |from: i64, until: i64| -> Response {
        let claims = json!({ "sub": "ann", "nbf": now() + from, "exp": now() + until });
        let key = EncodingKey::from_secret(secret.as_bytes());
        let token = jsonwebtoken::encode(&Header::default(), &claims, &key).expect("it is signed");
        get_with(gateway.addr(), "/", &format!("authorization: Bearer {token}\r\n"))
    };
    ask(-60, 600).expect(401);
    // It expired half an hour ago, which the gateway cannot know.
    let expired = now() - HOUR / 2;
    let old = |now: i64| (-2 * HOUR, expired - now);
    let (from, until) = old(now());
    ask(from, until).expect(200);
    clock.step_to(0);
    steps(&gateway, 1.0);
    ask(-60, 600).expect(200);
    ask(from, until).expect(401);
    gateway.wait_for_log("clock stepped by +3600");
    let log = gateway.access_log(4);
    let hours: Vec<&str> = log.iter().map(|line| line["time"].as_str().expect("a time")).collect();
    assert!(hours[0] < hours[2] && hours[0][..13] != hours[2][..13], "{hours:?}");
}

#[test]
fn a_calendar_day_ends_when_the_clock_is_set_to_another() {
    let Some(clock) = FakeClock::ahead_by(noon()) else { return };
    let backend = Backend::ok();
    let gateway = clock.gateway(&everything_to(&backend, &format!("{TWO_A_DAY}{ADMIN}")), &[]);
    assert_eq!(passed(&gateway, 5), 2);
    assert!((DAY / 2 - 600..=DAY / 2).contains(&wait(&gateway)));
    // Within the day its end moves, and the count stays.
    clock.step_to(noon() + 6 * HOUR);
    steps(&gateway, 1.0);
    assert!((DAY / 4 - 600..=DAY / 4).contains(&wait(&gateway)));
    clock.step_to(noon() + DAY);
    steps(&gateway, 2.0);
    assert_eq!(passed(&gateway, 5), 2, "another day");
    // Back: the day stays until it is over.
    clock.step_to(noon() - 3 * DAY);
    steps(&gateway, 3.0);
    assert_eq!(passed(&gateway, 5), 0);
    assert!((DAY / 2 - 600..=DAY / 2).contains(&wait(&gateway)));
}

/// Only the server's time says which day it is.
#[test]
fn with_redis_a_wrong_clock_of_a_gateway_has_no_effect_on_days() {
    let redis = Redis::start();
    let store = redis.store_table();
    let backend = Backend::ok();
    let toml = everything_to(&backend, &format!("{TWO_A_DAY}{ADMIN}{store}"));
    let right = Gateway::start(&toml);
    assert_eq!(passed(&right, 1), 1);
    for days in [-3, 3, -400] {
        let Some(clock) = FakeClock::ahead_by(days * DAY) else { return };
        let gateway = clock.gateway(&toml, &[]);
        let wanted = usize::from(days == -3);
        assert_eq!(passed(&gateway, 4), wanted, "{days} days: one of two a day is left");
        let rest = DAY - now() % DAY;
        assert!((wait(&gateway) - rest).abs() <= 60, "{days} days");
        assert_eq!(gateway.metric("tollgate_store_errors_total", &[]), 0.0);
    }
}
