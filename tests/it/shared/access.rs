//! Getting in: TLS, passwords, users, databases; and what is said where that fails.

use std::process::{Command, Output};

use crate::harness::api::{ask, good};
use crate::harness::fleet_config::{PATIENT, Plan, of, statuses_of};
use crate::harness::{Backend, Certificates, Gateway, Redis, TlsRedis, binary, eventually};

const PASSWORD: &str = "correct-horse-battery";

fn plan(backend: &Backend) -> Plan {
    let limit = of("token-bucket", 2) + "\non_error = \"local\"";
    Plan::to(backend).route("/*", "limits = [\"per-client\"]").limit("per-client", &limit)
}

fn store_at(url: &str, more: &str) -> String {
    format!("url = \"{url}\"\n{PATIENT}\n{more}")
}

/// The gateway counts, and the server has the key.
#[track_caller]
fn counts_in(gateway: &Gateway, redis: &Redis) {
    assert_eq!(statuses_of(gateway, "/", "a", 3), [200, 200, 429]);
    assert_eq!(redis.keys().len(), 1, "{}", gateway.stderr());
}

/// The gateway counts by itself, and says why with one of these words.
#[track_caller]
fn counts_alone(gateway: &Gateway, redis: &Redis, words: &[&str]) {
    assert_eq!(statuses_of(gateway, "/", "a", 3), [200, 200, 429]);
    assert!(redis.keys().is_empty());
    eventually(&format!("a line with one of {words:?}"), || {
        let log = gateway.stderr().to_lowercase();
        words.iter().any(|word| log.contains(word)).then_some(())
    });
    assert!(gateway.metric("tollgate_store_errors_total", &[]) > 0.5);
}

fn tls(lines: &[(&str, String)]) -> String {
    let lines: Vec<_> = lines.iter().map(|(name, value)| format!("{name} = \"{value}\"")).collect();
    format!("tls = {{ {} }}", lines.join(", "))
}

#[test]
fn over_tls_with_the_right_authority() {
    let (backend, certificates) = (Backend::ok(), Certificates::make());
    let server = TlsRedis::start(&certificates, false);
    let trust = [("ca", certificates.place("ca.pem"))];
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&server.url(), &tls(&trust))));
    counts_in(&gateway, &server.redis);
}

#[test]
fn over_tls_with_a_name_of_its_own() {
    let (backend, certificates) = (Backend::ok(), Certificates::make());
    let server = TlsRedis::start(&certificates, false);
    let named = |name: &str| [("ca", certificates.place("ca.pem")), ("server_name", name.to_owned())];
    let wrong = store_at(&server.url(), &tls(&named("elsewhere.internal")));
    let gateway = Gateway::start(&plan(&backend).store(&wrong));
    counts_alone(&gateway, &server.redis, &["certificate", "name"]);
    let right = store_at(&server.url(), &tls(&named("redis.internal")));
    counts_in(&Gateway::start(&plan(&backend).store(&right)), &server.redis);
}

#[test]
fn an_authority_that_is_not_trusted_is_done_without_and_told() {
    let (backend, certificates) = (Backend::ok(), Certificates::make());
    let server = TlsRedis::start(&certificates, false);
    for trust in ["", &tls(&[("ca", certificates.place("other-ca.pem"))])] {
        let gateway = Gateway::start(&plan(&backend).store(&store_at(&server.url(), trust)));
        counts_alone(&gateway, &server.redis, &["certificate", "issuer"]);
    }
}

#[test]
fn over_tls_with_a_certificate_of_the_clients() {
    let (backend, certificates) = (Backend::ok(), Certificates::make());
    let server = TlsRedis::start(&certificates, true);
    let trust = ("ca", certificates.place("ca.pem"));
    let alone = store_at(&server.url(), &tls(std::slice::from_ref(&trust)));
    counts_alone(&Gateway::start(&plan(&backend).store(&alone)), &server.redis, &["certificate", "closed"]);
    let own = [("cert", certificates.place("client.pem")), ("key", certificates.place("client.key"))];
    let with_own = tls(&[&[trust][..], &own].concat());
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&server.url(), &with_own)));
    counts_in(&gateway, &server.redis);
}

/// A server that speaks no TLS answers what no TLS is, and the other way round.
#[test]
fn tls_on_one_side_alone_is_done_without_and_told() {
    let (backend, certificates) = (Backend::ok(), Certificates::make());
    let server = TlsRedis::start(&certificates, false);
    let plain = server.redis.addr();
    for url in [server.url().replace("rediss", "redis"), format!("rediss://{plain}")] {
        let store = format!("url = \"{url}\"\ntimeout = \"100ms\"");
        let gateway = Gateway::start(&plan(&backend).store(&store));
        counts_alone(&gateway, &server.redis, &["tls", "closed", "reset", "corrupt", "within"]);
    }
}

#[test]
fn with_a_password() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    redis.set(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let url = format!("redis://:{PASSWORD}@{}", redis.addr());
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&url, "")));
    counts_in(&gateway, &redis);
    assert!(!gateway.stderr().contains(PASSWORD));
}

/// What a URL would take for its own signs is written in percent.
#[test]
fn with_a_password_of_any_signs() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    redis.set(&["CONFIG", "SET", "requirepass", "p@ss:w/rd %#"]);
    let url = format!("redis://:p%40ss%3Aw%2Frd%20%25%23@{}", redis.addr());
    counts_in(&Gateway::start(&plan(&backend).store(&store_at(&url, ""))), &redis);
}

/// A user with only the rights that counting needs.
#[test]
fn with_a_user_of_few_rights() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let user =
        ["ACL", "SETUSER", "gate", "on", ">horse", "~tollgate:*", "-@all", "+@connection", "+@scripting"];
    redis.set(&[&user[..], &["+@string", "+@keyspace", "+time", "-@dangerous"]].concat());
    redis.set(&["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://gate:horse@{}", redis.addr());
    counts_in(&Gateway::start(&plan(&backend).store(&store_at(&url, ""))), &redis);
}

/// The rights that the documentation names are enough for what the admin API changes, too.
#[test]
fn with_no_more_rights_than_documented() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let documented =
        include_str!("../../../docs/shared-limits.md").lines().find(|line| line.starts_with("ACL SETUSER"));
    let user = documented.unwrap().replace("PASSWORD", PASSWORD);
    redis.set(&user.split(' ').collect::<Vec<_>>());
    redis.set(&["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://tollgate:{PASSWORD}@{}", redis.addr());
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&url, "")));
    counts_in(&gateway, &redis);
    good(&gateway, "POST limits/per-client/keys/a/grant", r#"{"units": 1}"#);
    good(&gateway, "DELETE limits/per-client/keys/a", "");
    good(&gateway, "POST limits/per-client/keys/a/ban", r#"{"for": "1h"}"#);
    assert_eq!(statuses_of(&gateway, "/", "a", 1), [429]);
    assert_eq!(good(&gateway, "DELETE limits/per-client/keys/a/ban", "")["policies"][0]["remaining"], 2);
    assert_eq!(gateway.stderr().matches("is unreachable").count(), 0);
}

/// A user without the rights of sorted sets, as documented for versions without bans of limits: counters are shared.
#[test]
fn without_the_rights_of_bans_that_limits_begin() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let documented =
        include_str!("../../../docs/shared-limits.md").lines().find(|line| line.starts_with("ACL SETUSER"));
    let user = documented.unwrap().replace("PASSWORD", PASSWORD);
    redis.set(&user.split(' ').filter(|word| !word.starts_with("+z")).collect::<Vec<_>>());
    redis.set(&["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://tollgate:{PASSWORD}@{}", redis.addr());
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&url, "")));
    counts_in(&gateway, &redis);
    for what in ["bans", "the lists of the fleet's gateways"] {
        gateway.wait_for_log(&format!("the store refuses what {what} need: they are off"));
    }
    // Each second the lists are read.
    std::thread::sleep(std::time::Duration::from_secs(6));
    let log = gateway.stderr();
    assert_eq!(
        (log.matches("is unreachable").count(), log.matches("the store refuses").count()),
        (0, 2),
        "{log}"
    );
    assert_eq!(ask(&gateway, "GET fleet", "").0, 503);
    assert_eq!(statuses_of(&gateway, "/", "b", 3), [200, 200, 429]);
    assert!(gateway.metric("tollgate_store_errors_total", &[]) < 0.5);
}

#[test]
fn a_wrong_password_is_told_but_not_repeated() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    redis.set(&["CONFIG", "SET", "requirepass", "another"]);
    let url = format!("redis://:{PASSWORD}@{}", redis.addr());
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&url, "")));
    counts_alone(&gateway, &redis, &["password", "wrongpass", "auth"]);
    for text in [gateway.stderr(), gateway.stdout_lines().join("\n"), gateway.admin("/metrics").text()] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

#[test]
fn no_password_where_one_is_wanted_is_told() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    redis.set(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&redis.url(), "")));
    counts_alone(&gateway, &redis, &["password", "noauth", "auth"]);
}

/// A name may have several addresses, of which only one answers (`::1` and 127.0.0.1, say).
#[test]
fn by_name() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let url = format!("redis://localhost:{}", redis.addr().port());
    counts_in(&Gateway::start(&plan(&backend).store(&store_at(&url, ""))), &redis);
}

#[test]
fn in_a_database_of_another_number() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let url = format!("{}/3", redis.url());
    let gateway = Gateway::start(&plan(&backend).store(&store_at(&url, "")));
    assert_eq!(statuses_of(&gateway, "/", "a", 3), [200, 200, 429]);
    assert!(redis.keys().is_empty());
    redis.set(&["SELECT", "3"]);
    assert_eq!(redis.keys().len(), 1);
}

#[test]
fn with_a_url_that_the_environment_holds() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    redis.set(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let url = format!("redis://:{PASSWORD}@{}", redis.addr());
    let toml = plan(&backend).store(&format!("url_env = \"MY_REDIS\"\n{PATIENT}"));
    counts_in(&Gateway::start_in(&toml, &[], &[("MY_REDIS", &url)]), &redis);
    let output = check(&toml);
    assert_eq!(output.status.code(), Some(2), "the variable is not set");
    assert!(String::from_utf8_lossy(&output.stderr).contains("MY_REDIS"));
}

fn check(toml: &str) -> Output {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("it can be written");
    Command::new(binary())
        .args(["check"])
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary starts")
}
