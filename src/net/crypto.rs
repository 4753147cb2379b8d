//! The library of cryptography: AWS-LC in releases. ring, a part of the same origin, compiles in a fourth of the time and
//! serves builds for trying out. It has no hybrid key exchange with ML-KEM.

#[cfg(not(any(feature = "aws-lc", feature = "ring")))]
compile_error!("enable the feature `aws-lc`, as it is by default, or `ring`: TLS needs one of them");

#[cfg(feature = "aws-lc")]
pub use aws_lc_rs::{aead, digest, hmac, signature};
#[cfg(not(feature = "aws-lc"))]
pub use ring::{aead, digest, hmac, signature};
#[cfg(feature = "aws-lc")]
pub use rustls::crypto::aws_lc_rs as tls;
#[cfg(not(feature = "aws-lc"))]
pub use rustls::crypto::ring as tls;
