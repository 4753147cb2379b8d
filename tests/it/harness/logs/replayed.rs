//! What tests of replay stand on: streams of requests that look random, and the command.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::binary;

/// Numbers that look random; the same for the same seed.
pub(crate) fn numbers(seed: u32) -> impl FnMut() -> u32 {
    let mut state = u64::from(seed) * 2 + 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 33).unwrap()
    }
}

/// The answer of `replay --json` about the log in a folder, by the file beside it.
pub(crate) fn replay(folder: &Path, environment: &[(&str, &str)]) -> Value {
    let output = Command::new(binary())
        .args(["replay", "access.log", "-c", "gateway.toml", "--json"])
        .envs(environment.iter().copied())
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
