//! When a ban begins, how long it lasts, and what counts towards the next.

use std::time::{Duration, Instant};

use super::{Met, TWO, ask, bans, is_ban, meet, start};
use crate::harness::api::{api, good};
use crate::harness::{Load, eventually};

/// Refuses this client this number of times by the limit, of which it has used all.
#[track_caller]
fn refuse(gateway: &crate::harness::Gateway, client: &str, times: usize) {
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
