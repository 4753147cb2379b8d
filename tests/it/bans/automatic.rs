//! When a ban begins, how long it lasts, and what counts towards the next.

use std::time::{Duration, Instant};

use super::{Met, TWO, ask, bans, is_ban, meet, start};
use crate::harness::api::{api, good, samples_with, sum};
use crate::harness::replayed::replay;
use crate::harness::{Gateway, Load, eventually};

/// Refuses this client this number of times by the limit, of which it has used all.
#[track_caller]
fn refuse(gateway: &Gateway, client: &str, times: usize) {
    for number in 0..times {
        assert_eq!(meet(gateway, client), Met::Refused, "refusal {number}");
    }
}

#[test]
fn a_ban_begins_with_exactly_the_refusal_that_the_file_names() {
    let gateway = start(TWO, "{ after = 5, within = \"10min\", for = \"1h\" }");
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Admitted; 2]);
    refuse(&gateway, "a", 4);
    assert_eq!((bans(&gateway), &api(&gateway, "limits/x/keys/a")["banned_until"]), (0, &().into()));
    assert!(matches!(meet(&gateway, "a"), Met::Banned(3590..=3600)));
    assert!(is_ban(meet(&gateway, "a")));
    let listed = api(&gateway, "bans");
    assert_eq!((&listed["total"], &listed["bans"][0]["limit"]), (&1.into(), &"x".into()), "{listed}");
    let key = api(&gateway, "limits/x/keys/a");
    assert_eq!(key["verdict"], "banned", "{key}");
    assert!(key["ban_cause"].as_str().is_some_and(|cause| cause.contains("5 refusals")), "{key}");
    assert_eq!([meet(&gateway, "b"), meet(&gateway, "b")], [Met::Admitted; 2], "each key counts for itself");
}

/// The refusal that begins a ban says that the client is banned, and counts as one by the ban.
#[test]
fn a_refusal_by_a_ban_is_told_as_one_in_the_log_in_metrics_and_by_replay() {
    let toml = format!(
        "[upstreams]\napi = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\n\
         upstream = \"api\"\nlimits = [\"x\"]\n[limits.x]\nkey = \"ip\"\n{TWO}\n\
         ban = {{ after = 3, within = \"10min\", for = \"1h\" }}\n"
    );
    let mut gateway = Gateway::start(&toml);
    (0..8).for_each(|_| drop(gateway.get("/")));
    let lines = gateway.access_log(8);
    let decisions: Vec<_> = lines.iter().map(|line| line["decision"].as_str().expect("one")).collect();
    let expected = ["allowed", "allowed", "limited", "limited", "banned", "banned", "banned", "banned"];
    assert_eq!(decisions, expected);
    assert!(lines.iter().all(|line| line["limit"] == "x" && line["error"].is_null()), "{lines:?}");
    let count = |decision: &str| {
        let labels = ["limit=\"x\"", &format!("decision=\"{decision}\"")];
        gateway.metric("tollgate_decisions_total", &labels)
    };
    assert_eq!(["allowed", "limited", "banned"].map(count), [2.0, 2.0, 4.0]);
    let samples = samples_with(&gateway, 8);
    assert_eq!((sum(&samples["all"]["refused"]), sum(&samples["limits"]["x"]["refused"])), (6, 6));
    assert_eq!(api(&gateway, "limits")["limits"][0]["minute"]["refused"], 6);
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    assert_eq!(gateway.access_log(8).len(), 8);
    let log = gateway.stdout_lines().join("\n");
    // Logs of earlier versions say `limited`.
    for log in [log.replace("\"banned\"", "\"limited\""), log] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("access.log"), log).expect("it can be written");
        std::fs::write(folder.path().join("gateway.toml"), &toml).expect("it can be written");
        let replayed = replay(folder.path(), &[]);
        let own = &replayed["log_decisions"];
        assert_eq!((&own["same"], &own["different"]), (&8.into(), &0.into()), "{replayed:#}");
        assert_eq!(replayed["refused"], 6);
    }
}

#[test]
fn the_count_is_exact_over_all_workers_and_connections() {
    let gateway = start(TWO, "{ after = 500, within = \"10min\", for = \"1h\" }");
    let request = |_| "GET / HTTP/1.1\r\nhost: test\r\nx-client: a\r\n\r\n".to_owned();
    // Two are admitted, one refusal too few.
    let statuses = Load { requests: 501, concurrency: 16 }.run(gateway.addr(), request);
    assert_eq!((statuses[&429], bans(&gateway)), (499, 0));
    assert!(is_ban(meet(&gateway, "a")), "the 500th");
    assert_eq!(bans(&gateway), 1);
}

#[test]
fn refusals_before_the_span_do_not_count() {
    let gateway = start(TWO, "{ after = 3, within = \"2s\", for = \"1h\" }");
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Admitted; 2]);
    refuse(&gateway, "a", 2);
    std::thread::sleep(Duration::from_millis(2_100));
    refuse(&gateway, "a", 2);
    assert!(is_ban(meet(&gateway, "a")));
}

/// Requests during a ban neither count nor prolong it; the next ban is longer.
#[test]
fn bans_grow_longer_and_the_count_begins_anew_with_each() {
    let gateway = start(TWO, "{ after = 2, within = \"10min\", for = [\"1s\", \"3s\"] }");
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Admitted; 2]);
    refuse(&gateway, "a", 1);
    for longest in [1, 3, 3] {
        let began = Instant::now();
        assert_eq!(meet(&gateway, "a"), Met::Banned(longest));
        // The request that is not banned any more is the first refusal of the next count.
        eventually("the end of the ban", || (!is_ban(meet(&gateway, "a"))).then_some(()));
        let after = began.elapsed();
        let span = Duration::from_secs(longest);
        assert!(
            (span - Duration::from_millis(500)..span + Duration::from_secs(3)).contains(&after),
            "{after:?}"
        );
    }
    assert_eq!(meet(&gateway, "a"), Met::Banned(3));
    // Bans that an operator has lifted are forgotten: the list begins anew.
    good(&gateway, "DELETE limits/x/keys/a/ban", "");
    refuse(&gateway, "a", 1);
    assert_eq!(meet(&gateway, "a"), Met::Banned(1));
}

#[test]
fn a_ban_that_is_lifted_does_not_begin_again_with_the_next_refusal() {
    let gateway = start(TWO, "{ after = 3, within = \"10min\", for = \"1h\" }");
    assert_eq!([meet(&gateway, "a"), meet(&gateway, "a")], [Met::Admitted; 2]);
    refuse(&gateway, "a", 2);
    assert!(is_ban(meet(&gateway, "a")));
    let changed = good(&gateway, "DELETE limits/x/keys/a/ban", "");
    assert_eq!((&changed["changed"], &changed["verdict"]), (&true.into(), &"refused".into()), "{changed}");
    assert_eq!(bans(&gateway), 0);
    refuse(&gateway, "a", 2);
    assert!(is_ban(meet(&gateway, "a")));
}

/// A client that waits for as long as `retry-after` says is admitted.
#[test]
fn the_wait_of_a_banned_response_is_honest() {
    let limit = "algorithm = \"token-bucket\"\nrate = \"1/s\"\nburst = 1\n";
    let gateway = start(limit, "{ after = 3, within = \"1min\", for = \"3s\" }");
    let wait = eventually("a ban", || {
        let response = ask(&gateway, "a");
        let wait = response.header("retry-after").map(|wait| wait.parse::<u64>().expect("seconds"));
        wait.filter(|wait| *wait > 1)
    });
    assert!(wait <= 3, "{wait}");
    let later = ask(&gateway, "a").expect(429);
    let left: u64 = later.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!(left <= wait, "{left} after {wait}");
    std::thread::sleep(Duration::from_secs(left));
    ask(&gateway, "a").expect(200);
}

/// Keys that come once cost others nothing: no ban by hand or by refusals is lost to them.
#[test]
fn a_flood_of_one_off_keys_drives_no_ban_out() {
    let one = "algorithm = \"token-bucket\"\nrate = \"1/366day\"\nburst = 1\n";
    let gateway = start(one, "{ after = 1, within = \"10min\", for = \"1h\" }");
    good(&gateway, "POST limits/x/keys/by-hand/ban", "{\"for\": \"1min\"}");
    assert_eq!(meet(&gateway, "early"), Met::Admitted);
    assert!(is_ban(meet(&gateway, "early")));
    // Each key is admitted once and refused once.
    let request = |number| format!("GET / HTTP/1.1\r\nhost: test\r\nx-client: {}\r\n\r\n", number / 2);
    let started = Instant::now();
    let statuses = Load { requests: 8_000, concurrency: 8 }.run(gateway.addr(), request);
    assert_eq!((statuses[&200], statuses[&429]), (4_000, 4_000));
    assert_eq!(bans(&gateway), 4_002);
    assert!(
        is_ban(meet(&gateway, "early")) && is_ban(meet(&gateway, "by-hand")) && is_ban(meet(&gateway, "7"))
    );
    // Ten are named each second, and the others counted in one line.
    let seconds = usize::try_from(started.elapsed().as_secs()).expect("few");
    let lines = gateway.stderr_lines().len();
    assert!(
        lines < 50 + 11 * seconds,
        "the log names a few bans and counts the others: {lines} in {seconds} s"
    );
    // Keys that are never refused leave no trace.
    let request = |number| format!("GET / HTTP/1.1\r\nhost: test\r\nx-client: once-{number}\r\n\r\n");
    let statuses = Load { requests: 4_000, concurrency: 8 }.run(gateway.addr(), request);
    assert_eq!((statuses[&200], bans(&gateway)), (4_000, 4_002));
}
