//! The memory of a table: zeroed words, which use physical memory when they are first touched.
//!
//! A decision on a random key of a large table waits for memory, and half of that wait is for the address translation:
//! on pages of 4 KiB every set has a page of its own. So a large table asks for huge pages (`madvise(2)`): about a
//! quarter less a decision at 10 million keys. The price is memory in pieces of 2 MiB, so small tables do not ask for
//! them.

use std::sync::atomic::AtomicU64;

use zerocopy::FromZeros as _;

/// Tables from this size on ask for huge pages: 64 MiB, some 2.4 million keys.
const HUGE: usize = 64 << 20;

/// Zeroed words, aligned to a page or to what the allocator gives.
#[derive(Debug)]
pub(super) enum BackingMemory {
    /// Freed with the table.
    Own(Vec<AtomicU64>),
    /// Never freed: a gateway's store lives as long as the process.
    Huge(&'static [AtomicU64]),
}

impl BackingMemory {
    /// `count` zeroed words; `None` if the system has no memory for them. A system that refuses huge pages provides
    /// ordinary ones.
    pub(super) fn zeroed(count: usize) -> Option<Self> {
        huge(count).map(Self::Huge).or_else(|| AtomicU64::new_vec_zeroed(count).ok().map(Self::Own))
    }

    /// All words.
    #[inline]
    pub(super) fn as_slice(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Huge(words) => words,
        }
    }
}

#[cfg(target_os = "linux")]
fn huge(count: usize) -> Option<&'static [AtomicU64]> {
    use zerocopy::FromBytes as _;

    let bytes = count.checked_mul(size_of::<AtomicU64>()).filter(|&bytes| bytes >= HUGE)?;
    let map = memmap2::MmapMut::map_anon(bytes).ok()?;
    map.advise(memmap2::Advice::HugePage).ok()?;
    let map = Box::leak(Box::new(map));
    <[AtomicU64]>::mut_from_bytes(map).ok().map(|words| &*words)
}

#[cfg(not(target_os = "linux"))]
fn huge(_: usize) -> Option<&'static [AtomicU64]> {
    None
}
