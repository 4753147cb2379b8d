//! `trial`: a limit is enforced for a share of its keys, and in shadow for the others.

use std::collections::BTreeSet;

use super::{ROUTE, ask, start};

const KEYS: u32 = 300;

/// The keys that are refused under a share of a limit of one request.
fn refused(share: &str) -> (BTreeSet<u32>, String) {
    let limit = format!(
        "[limits.x]\nalgorithm = \"fixed-window\"\nrate = \"1/366day\"\nkey = \"header:x-client\"\ntrial = {share}\n"
    );
    let gateway = start("", &format!("{ROUTE}{limit}"));
    let ask = |key: u32| ask(&gateway, &format!("x-client: {key}\r\n")).status;
    assert!((0..KEYS).all(|key| ask(key) == 200), "the first request of each key");
    let refused = (0..KEYS).filter(|key| ask(*key) == 429).collect();
    (refused, gateway.admin("/metrics").text())
}

#[test]
fn a_larger_share_keeps_the_keys_of_a_smaller_one() {
    let shares = ["0.1", "0.5", "1"].map(refused);
    let [few, half, all] = shares.each_ref().map(|(keys, _)| keys);
    assert!(
        (10..60).contains(&few.len()) && (100..200).contains(&half.len()),
        "{} {}",
        few.len(),
        half.len()
    );
    assert_eq!(all.len(), KEYS as usize);
    assert!(few.is_subset(half), "{few:?} {half:?}");
    // A gateway of its own chooses the same keys, and counts the others.
    let (again, metrics) = refused("0.1");
    assert_eq!(&again, few);
    let counted = format!("decision=\"shadow_limited\"}} {}\n", KEYS as usize - few.len());
    assert!(metrics.contains(&counted), "{metrics}");
}
