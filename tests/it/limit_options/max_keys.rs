//! `max_keys` of a limit, through the real binary.

use super::{ROUTE, ask, start};
use crate::harness::Gateway;

fn limit(max_keys: &str) -> String {
    format!(
        "{ROUTE}[limits.x]\nalgorithm = \"fixed-window\"\nrate = \"1/366day\"\nkey = \"header:x-client\"\n{max_keys}"
    )
}

fn keys(gateway: &Gateway) -> (serde_json::Value, serde_json::Value) {
    let limits = gateway.admin("/api/v1/limits").json();
    let limit = &limits["limits"][0];
    (limit["keys"].clone(), limit["max_keys"].clone())
}

#[test]
fn a_limit_stays_within_its_share_and_a_reload_changes_it() {
    let gateway = start("", &limit("max_keys = 20\n"));
    let statuses: Vec<u16> =
        (0..100).map(|key| ask(&gateway, &format!("x-client: {key}\r\n")).status).collect();
    assert!(statuses.iter().all(|status| *status == 200), "each key is new: {statuses:?}");
    assert_eq!(keys(&gateway), (20.into(), 20.into()));
    let metrics = gateway.admin("/metrics").text();
    for line in ["tollgate_limit_keys{limit=\"x\"} 20\n", "tollgate_limit_max_keys{limit=\"x\"} 20\n"] {
        assert!(metrics.contains(line), "{line} {metrics}");
    }
    // The counters that are kept refuse.
    let refused = (0..100).filter(|key| ask(&gateway, &format!("x-client: {key}\r\n")).status == 429).count();
    assert!(refused > 0 && refused <= 20, "{refused}");
}
