//! axe-core finds no violation on the dashboard's page: on a desk, on a phone and at 200 % zoom, light and dark.

use crate::harness::tools;

#[test]
fn axe_finds_nothing_on_the_dashboard() {
    tools::browser();
    let output = tools::needed("python3")
        .args(["tests/dashboard/axe.py", "--axe"])
        .arg(tools::axe())
        .output()
        .expect("it can be run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}
