//! Windows of a calendar: the real length and rest in responses.

use super::{ROUTE, ask, start};

#[test]
fn the_headers_tell_the_length_of_this_month() {
    let limit = "[limits.x]\nalgorithm = \"fixed-window\"\nrate = \"2/month\"\nkey = \"global\"\ntime_zone = \"Asia/Kolkata\"\n";
    let gateway = start("", &format!("{ROUTE}{limit}"));
    let admitted = ask(&gateway, "");
    let policy = admitted.header("ratelimit-policy").expect("a policy").to_owned();
    let days: u64 =
        policy.strip_prefix("\"x\";q=2;w=").expect(&policy).parse::<u64>().expect("seconds") / 86_400;
    assert!((28..=31).contains(&days), "{policy}");
    assert_eq!(ask(&gateway, "").status, 200);
    let refused = ask(&gateway, "");
    let wait: u64 = refused.header("retry-after").expect("a wait").parse().expect("seconds");
    assert_eq!(refused.status, 429);
    assert!(wait <= days * 86_400, "{wait}");
    assert!(refused.header("ratelimit-policy").is_some_and(|told| told == policy), "{}", refused.head);
}
