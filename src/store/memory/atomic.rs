//! The atomics of a set's guard. `tests/it/store/loom.rs` builds `set.rs` upon loom's instead.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(super) use std::thread::yield_now;
