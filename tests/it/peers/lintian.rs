//! lintian finds no fault in the Debian package.

use crate::harness::package_builder::PackageBuilder;
use crate::harness::tools;

#[test]
fn lintian_finds_no_fault_in_the_package() {
    let Some(mut lintian) = tools::tool("lintian") else { return };
    let builder = PackageBuilder::new();
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    // The programs of tests have fixed addresses (build.rs); `packaging/release` looks that those of a release have none.
    lintian.args(["--suppress-tags", "hardening-no-pie"]).arg(builder.package("1.0", "package", "xz"));
    let output = lintian.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.is_empty(), "{text}");
}
