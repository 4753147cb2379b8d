//! Where the network cuts a message must not matter: a whole connection does the same with it in one piece and in any
//! others.
//!
//! The codec is read under every cut in `tests/it/http1/segmentation.rs`; here it is what stands around it: the wait for
//! a head, the body on its way, the answer, and the next request on the same connection.

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

/// Runs a test on a runtime of one thread.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, test);
}
