//! The keys of packets that carry no state: resets and tokens. `quinn` takes them from ring if it is built with it.

#[cfg(not(feature = "ring"))]
use aws_lc_rs::{hkdf, hmac};
#[cfg(feature = "ring")]
use ring::{hkdf, hmac};

/// The key of stateless resets.
pub(super) fn of_resets(secret: &[u8; 32]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

/// The key of tokens for the validation of addresses.
pub(super) fn of_tokens(secret: &[u8; 32]) -> hkdf::Prk {
    hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(secret)
}
