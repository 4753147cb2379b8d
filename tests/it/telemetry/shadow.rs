//! The access log names the limits in shadow that would have refused a request.

use serde_json::Value;

use crate::harness::{Backend, Gateway, everything_to, get_with};

fn limit(name: &str, rest: &str) -> String {
    format!("[limits.{name}]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\n{rest}\n")
}

#[test]
fn a_line_names_the_limits_in_shadow_that_would_have_refused() {
    let backend = Backend::ok();
    let first = limit("first", "rate = \"1/366day\"\nmode = \"shadow\"");
    let second = limit("second", "rate = \"2/366day\"\nmode = \"shadow\"");
    let enforced = limit("enforced", "rate = \"3/366day\"");
    let limits = format!("limits = [\"first\", \"second\", \"enforced\"]\n{first}{second}{enforced}");
    let gateway = Gateway::start(&everything_to(&backend, &limits));
    for status in [200, 200, 200, 429] {
        get_with(gateway.addr(), "/", "").expect(status);
    }
    let lines = gateway.access_log(4);
    let named: Vec<_> = lines.iter().map(|line| line["shadow"].as_str()).collect();
    // What an enforced limit refuses is charged to none in shadow: the second still has what the fourth would have used.
    assert_eq!(named, [None, Some("first"), Some("first,second"), Some("first,second")]);
    assert_eq!(lines[3]["limit"], "enforced");
}

#[test]
fn a_log_without_limits_in_shadow_has_no_such_field() {
    let backend = Backend::ok();
    let limits = format!("limits = [\"enforced\"]\n{}", limit("enforced", "rate = \"3/366day\""));
    let gateway = Gateway::start(&everything_to(&backend, &limits));
    get_with(gateway.addr(), "/", "").expect(200);
    let line: Value = gateway.access_log(1).remove(0);
    assert!(line.get("shadow").is_none(), "{line}");
}

#[test]
fn a_sampled_log_has_all_requests_that_a_limit_in_shadow_would_have_refused() {
    let backend = Backend::ok();
    let limits = limit("first", "rate = \"2/366day\"\nmode = \"shadow\"");
    let rest = format!("limits = [\"first\"]\n[log]\nsample = 0\n{limits}");
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    for _ in 0..5 {
        get_with(gateway.addr(), "/", "").expect(200);
    }
    let lines = gateway.access_log(3);
    assert!(lines.iter().all(|line| line["shadow"] == "first"), "{lines:?}");
}
