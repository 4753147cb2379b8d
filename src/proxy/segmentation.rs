//! A connection handles a message in the same way, whatever the segments in which it arrives.
//!
//! `tests/it/http1/segmentation.rs` tests the codec under every cut. These tests cover the code around it: the wait for
//! a head, the relayed body, the response, and the next request on the same connection.

#[expect(dead_code, reason = "some of it is for tests of the codec alone")]
#[path = "../../tests/it/harness/corpus/mod.rs"]
mod corpus;

mod answers;
mod backend;
mod gateway;
mod requests;
mod seen;

use std::future::Future;

use tokio::task::LocalSet;

/// Runs a test on a single-threaded runtime.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, test);
}
