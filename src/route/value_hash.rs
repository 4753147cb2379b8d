//! The hash by which values of headers are looked up.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

/// foldhash of the bytes alone. A slice also has its length hashed, as a word of its own, which takes as long again as
/// to hash a short value; only keys of several parts need that.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueHash(RandomState);

/// See [`ValueHash`].
pub(super) struct ValueHasher(<RandomState as BuildHasher>::Hasher);

impl BuildHasher for ValueHash {
    type Hasher = ValueHasher;

    #[inline]
    fn build_hasher(&self) -> ValueHasher {
        ValueHasher(self.0.build_hasher())
    }
}

impl Hasher for ValueHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    #[inline]
    fn write_usize(&mut self, _length: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
