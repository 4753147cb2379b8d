//! The secret that keys fingerprints.

use std::fmt;

/// The secret that keys fingerprints, so that clients cannot make keys collide.
#[derive(Clone, Copy)]
pub enum KeySecret {
    /// Of this process alone: SipHash-1-3, fast, and secure as long as no fingerprint is revealed.
    Process([u8; 16]),
    /// Of a fleet with shared counters, which have names that others can see: BLAKE3 (keyed), from which no client's
    /// key can be read back; if the secret is known, a key can still be guessed and tried.
    Fleet([u8; 32]),
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
