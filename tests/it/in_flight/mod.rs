//! Concurrency limits through the real binary: which requests are in flight, which wait, and that no place
//! is lost.

mod exact;
mod history;
mod queue;
mod released;
mod reload;
mod several;
mod takeover;
mod versions;
