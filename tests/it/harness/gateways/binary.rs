//! The binary that all tests run.

use std::sync::LazyLock;

/// The path of the binary: what `TOLLGATE_TEST_BINARY` names, such as a release, or else the one that cargo has built.
pub(crate) fn binary() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        std::env::var("TOLLGATE_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_tollgate").to_owned())
    });
    &PATH
}
