//! Keeps rare branches of a future out of the frame of the usual one.

use std::future::Future;
use std::pin::Pin;

/// A future needed by few requests or connections, on the heap, created and polled out of line.
///
/// `Box::pin` at the await is not enough: a future is built on the stack before it is moved into its box, and its
/// callees are inlined where it is polled, so the frame of the caller has room for all of that. Each poll enters that
/// frame, even if it never reaches the rare branch: kilobytes of cold stack between the few bytes that it uses.
#[cold]
#[inline(never)]
pub fn boxed_cold<'f, F: Future + 'f>(
    make: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = F::Output> + 'f>> {
    Box::pin(make())
}
