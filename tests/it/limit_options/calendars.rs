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

/// The refusal of a ban has the same fields as any other.
#[test]
fn a_ban_tells_the_length_of_this_year() {
    let limit = "[limits.x]\nalgorithm = \"fixed-window\"\nrate = \"1/year\"\nkey = \"ip\"\nban = { after = 2, within = \"1h\", for = \"1h\" }\n";
    let gateway = start("", &format!("{ROUTE}{limit}"));
    let policy = ask(&gateway, "").header("ratelimit-policy").expect("a policy").to_owned();
    let days = policy.strip_prefix("\"x\";q=1;w=").expect(&policy).parse::<u64>().expect("seconds") / 86_400;
    assert!((365..=366).contains(&days), "{policy}");
    for number in 0..4 {
        let refused = ask(&gateway, "");
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("ratelimit-policy"), Some(&*policy), "{number}: {}", refused.head);
        assert!(refused.header("ratelimit").is_some_and(|rest| rest.contains(";t=")), "{}", refused.head);
    }
    assert!(gateway.admin("/metrics").text().contains("tollgate_bans{limit=\"x\"} 1\n"));
}
