//! `tollgate explain --live`, through the real binary, of a gateway that runs.

use std::process::{Command, Output};

use crate::harness::api::ask;
use crate::harness::fleet_config::of;
use crate::harness::{Gateway, Redis, binary, get_with, refuses_connections};

const TOKEN: &str = "a-token-of-the-test";

fn config() -> String {
    let limit = |name: &str, key: &str, lines: &str| format!("[limits.{name}]\nkey = \"{key}\"\n{lines}\n");
    format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}{}\
         [[routes]]\nname = \"search\"\npath = \"/search/*\"\nupstream = \"demo\"\nlimits = [{{ name = \"per-key\", cost = 2 }}, \"per-client\"]\n\
         [[routes]]\nname = \"rest\"\npath = \"/*\"\nupstream = \"demo\"\n",
        limit("per-key", "header:x-api-key", &format!("{}\nreveal = true", of("fixed-window", 4))),
        limit("per-client", "ip", &of("gcra", 100)),
    )
}

fn live(admin: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), admin).expect("it can be written");
    let output: Output = Command::new(binary())
        .args(["explain", "--live"])
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn tells(told: &(Option<i32>, String, String), words: &[&str]) {
    assert_eq!(told.0, Some(0), "{}{}", told.1, told.2);
    for word in words {
        assert!(told.1.contains(word), "{word} is missing in\n{}", told.1);
    }
}

#[test]
fn it_reports_the_state_of_each_limit_and_which_refuses_until_when() {
    let gateway = Gateway::start(&config());
    let file = format!("[admin]\nlisten = \"{}\"\nnonsense = 1\n", gateway.admin_addr());
    let question = ["GET", "/search/a?q=1", "-H", "x-api-key: k1", "--ip", "192.0.2.7"];
    let told = live(&file, &question, &[]);
    tells(
        &told,
        &[
            "verdict   admitted",
            "route     `search`",
            "charges 2: admitted",
            "k1",
            "192.0.2.7",
            "id:",
            "4 of 4 remain",
            "the next now",
        ],
    );
    tells(&told, &["other routes\n  `rest`: matches too"]);
    for status in [200, 200, 429] {
        get_with(gateway.addr(), "/search/a", "x-api-key: k1\r\n").expect(status);
    }
    let told = live(&file, &question, &[]);
    tells(
        &told,
        &[
            "verdict   refused by `per-key`: answered 429, until 2",
            "0 of 4 remain; the next in",
            "all again in",
        ],
    );
    // Two values are no key.
    let two = ["GET", "/search/a", "-H", "x-api-key: k1", "-H", "x-api-key: k2"];
    tells(
        &live(&file, &two, &[]),
        &["refused by `per-key`: answered 400", "header:x-api-key has several values"],
    );
    assert_eq!(ask(&gateway, "POST limits/per-client/keys/192.0.2.7/ban", r#"{"for": "1h"}"#).0, 200);
    let told = live(&file, &question, &[]);
    tells(
        &told,
        // The wait that the gateway tells: the allowance is used up for longer than the ban lasts.
        &["verdict   banned by `per-client`: answered 429, until 2", " more)", "  banned  until 2"],
    );
    tells(&live(&file, &["GET", "/other"], &[]), &["verdict   admitted", "route     `rest`"]);
}

#[test]
fn it_is_0_if_answered_1_if_not_and_2_for_a_question_that_is_none() {
    let toml = config().replace("[admin]\n", "[admin]\ntoken_env = \"TOLLGATE_TEST_TOKEN\"\n");
    let secret = [("TOLLGATE_TEST_TOKEN", TOKEN)];
    let gateway = Gateway::start_in(&toml, &[], &secret);
    let address = gateway.admin_addr();
    let file = format!("[admin]\nlisten = \"{address}\"\ntoken_env = \"TOLLGATE_TEST_TOKEN\"\n");
    tells(&live(&file, &["GET", "/"], &secret), &["verdict   admitted"]);
    for (file, arguments, environment, status, word) in [
        (file.as_str(), &["GET", "/"][..], &[("TOLLGATE_TEST_TOKEN", "wrong")][..], 1, "answers 401"),
        (&file, &["GET", "/"], &[], 2, "`TOLLGATE_TEST_TOKEN` holds none"),
        (&file, &["GET", "no path"], &secret, 2, "error: "),
        (&file, &["GET"], &secret, 2, "error: "),
        ("[log]\nlevel = \"info\"\n", &["GET", "/"], &secret, 2, "names no admin listener"),
    ] {
        let (code, stdout, stderr) = live(file, arguments, environment);
        assert_eq!((code, stdout.as_str()), (Some(status), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{word} is missing in {stderr}");
    }
    drop(gateway);
    refuses_connections(address);
    let (code, _, stderr) = live(&file, &["GET", "/"], &secret);
    assert!(code == Some(1) && stderr.contains("no gateway answers"), "{stderr}");
}

#[test]
fn it_takes_a_token_that_may_read() {
    let tokens = "[admin.tokens]\nbilling = { token_env = \"BILLING\", may = [\"charge:per-client\"] }\n\
                  oncall = { token_env = \"ONCALL\", may = [\"operate\"] }\n\
                  reader = { token_env = \"READER\", may = [\"read\"] }\n";
    let secrets = [("BILLING", "b-secret"), ("ONCALL", "o-secret"), ("READER", "r-secret")];
    let gateway = Gateway::start_in(&format!("{}{tokens}", config()), &[], &secrets);
    let admin = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let file = format!("{admin}{tokens}");
    // The variable of one of them is enough.
    for secret in [&secrets[..], &secrets[1..2], &secrets[2..]] {
        tells(&live(&file, &["GET", "/"], secret), &["verdict   admitted"]);
    }
    let charging = format!("{admin}{}", tokens.lines().take(2).collect::<Vec<_>>().join("\n"));
    for (file, secret, status, word) in [
        (
            &file,
            &secrets[..1],
            2,
            "no environment variable of a token of `[admin.tokens]` that may `read` holds one",
        ),
        (&charging, &secrets[..], 2, "no token of `[admin.tokens]` may `read`"),
        (&admin, &secrets[..], 1, "answers 401"),
    ] {
        let (code, stdout, stderr) = live(file, &["GET", "/"], secret);
        assert_eq!((code, stdout.as_str()), (Some(status), ""), "{stderr}");
        assert!(stderr.contains(word) && !stderr.contains("-secret"), "{word} is missing in {stderr}");
    }
}

#[test]
fn a_route_that_answers_itself_has_no_upstream() {
    let gateway = Gateway::start(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[routes]]\npath = \"/closed\"\nrespond = { status = 503, body = \"closed\" }\n\
         [[routes]]\npath = \"/old\"\nredirect = { to = \"/new\", status = 301 }\n",
    );
    let file = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let told = live(&file, &["GET", "/closed"], &[]);
    tells(&told, &["verdict   answered 503\n", "answer    503 with `text/plain"]);
    assert!(!told.1.contains("upstream"), "{}", told.1);
    let told = live(&file, &["GET", "/old"], &[]);
    tells(&told, &["verdict   redirected: answered 301\n", "answer    301 to `/new`"]);
    assert!(!told.1.contains("upstream"), "{}", told.1);
}

#[test]
fn without_the_shared_store_it_tells_the_rule_of_each_limit() {
    let mut redis = Redis::start();
    let limit = |name: &str, rule: &str| {
        format!("[limits.{name}]\nkey = \"ip\"\non_error = \"{rule}\"\n{}\n", of("fixed-window", 3))
    };
    let route =
        |name: &str| format!("[[routes]]\npath = \"/{name}\"\nupstream = \"demo\"\nlimits = [\"{name}\"]\n");
    let gateway = Gateway::start(&format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nbackend = \"redis\"\n\
         url = \"{}\"\ntimeout = \"200ms\"\n{}{}{}{}{}{}",
        redis.url(),
        limit("counts", "local"),
        limit("passes", "allow"),
        limit("denies", "deny"),
        route("counts"),
        route("passes"),
        route("denies")
    ));
    let file = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let told = live(&file, &["GET", "/counts"], &[]);
    tells(&told, &["verdict   admitted", "3 of 3 remain"]);
    assert!(!told.1.contains("on_error"), "{}", told.1);
    redis.kill();
    for status in [200, 200, 200, 429] {
        gateway.get("/counts").expect(status);
    }
    let told = live(&file, &["GET", "/counts"], &[]);
    tells(
        &told,
        &[
            "verdict   refused by `counts`: answered 429",
            "store   unreachable: `on_error = \"local\"` decides",
            "0 of 3 remain",
        ],
    );
    gateway.get("/passes").expect(200);
    tells(&live(&file, &["GET", "/passes"], &[]), &["verdict   admitted", "`on_error = \"allow\"`"]);
    gateway.get("/denies").expect(503);
    let told = live(&file, &["GET", "/denies"], &[]);
    tells(
        &told,
        &["verdict   answered 503: the shared store is unreachable, and `denies` has `on_error = \"deny\"`"],
    );
}
