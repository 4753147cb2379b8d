//! `retry_jitter`: clients that are refused together do not return together.

use std::collections::BTreeSet;

use super::{ROUTE, ask, start};

#[test]
fn clients_refused_together_return_over_the_whole_span() {
    let limit = "[limits.x]\nalgorithm = \"token-bucket\"\nrate = \"1/100s\"\nkey = \"global\"\nretry_jitter = \"1000s\"\n";
    let gateway = start("", &format!("{ROUTE}{limit}"));
    assert_eq!(ask(&gateway, "").status, 200);
    let waits: BTreeSet<u64> = (0..20)
        .map(|_| {
            let refused = ask(&gateway, "");
            let told = refused.header("retry-after").expect("a wait").parse().expect("seconds");
            assert!(refused.text().contains(&format!("\"retry_after\":{told}")), "{}", refused.text());
            assert!((90..=1_101).contains(&told), "{told}");
            told
        })
        .collect();
    assert!(waits.len() > 10, "{waits:?}");
    let (first, last) = (waits.first().expect("one"), waits.last().expect("one"));
    assert!(last - first > 300, "{waits:?}");
}
