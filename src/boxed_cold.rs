//! Rare ways of a future, kept out of the frame of the usual one.

use std::future::Future;
use std::pin::Pin;

/// A future that few requests or connections come to, on the heap, made and polled out of line.
///
/// `Box::pin` where it is awaited is not enough: a future is built on the stack before it goes into its box, and what it
/// calls is inlined where it is polled, so the frame of the caller has room for all that. Each poll enters that frame,
/// even if it never comes there: kilobytes of cold stack between the few bytes that it does use.
#[cold]
#[inline(never)]
pub fn boxed_cold<'f, F: Future + 'f>(
    make: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = F::Output> + 'f>> {
    Box::pin(make())
}
