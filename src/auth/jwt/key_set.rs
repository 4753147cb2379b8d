//! The keys that verify tokens: a JSON Web Key Set (RFC 7517) of public keys, or a secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::SignatureAlgorithm;
use crate::net::crypto::{hmac, signature};

/// The maximum number of keys that are read of a set.
const MAX_KEYS: usize = 256;
/// The maximum number of keys that are tried for a token without `kid`.
const MAX_TRIED: usize = 8;
/// The least length of a secret for HS256, bytes (RFC 7518 §3.2).
pub const MIN_SECRET: usize = 32;

/// The public keys of an issuer.
#[derive(Debug, Default, PartialEq)]
pub struct KeySet {
    keys: Vec<PublicKey>,
    /// Keys of the document that are of no use: of another type or purpose, or malformed.
    skipped: usize,
}

/// Why a document is not a key set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// It is not a JSON object with a list `keys`.
    #[error("it is not a JSON Web Key Set: an object with a list `keys`")]
    Malformed,
    /// No key of it can verify tokens.
    #[error(
        "none of its {0} keys is a public key of RSA (2048 bits or more), P-256, P-384 or Ed25519 for signatures"
    )]
    NoKeys(usize),
}

/// A public key, and the algorithms that it is for.
pub struct PublicKey {
    id: Option<String>,
    material: Material,
    /// The one of its `alg`; an RSA key without `alg` is for any of RSA.
    algorithm: Option<SignatureAlgorithm>,
}

enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// The secret of HS256.
pub struct SecretKey {
    key: hmac::Key,
    /// The secret's MAC of nothing, which tells secrets apart.
    mark: hmac::Tag,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

/// A JSON Web Key (RFC 7517 §4, RFC 7518 §6, RFC 8037 §2).
#[derive(Deserialize)]
struct WebKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl KeySet {
    /// Reads a key set. Keys of no use are skipped, as RFC 7517 §5 asks.
    ///
    /// # Errors
    ///
    /// It is not a key set, or has no key of use.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetFault> {
        let Document { keys: all } = serde_json::from_slice(bytes).map_err(|_| KeySetFault::Malformed)?;
        let count = all.len();
        let read = |key: Value| PublicKey::of(serde_json::from_value(key).ok()?);
        let keys: Vec<_> = all.into_iter().take(MAX_KEYS).filter_map(read).collect();
        if keys.is_empty() {
            Err(KeySetFault::NoKeys(count))
        } else {
            Ok(Self { skipped: count - keys.len(), keys })
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no keys, as before the first answer of an issuer.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Keys of the document that are of no use.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// The keys for this algorithm with this `kid`; without a `kid`, the first few for the algorithm.
    pub(super) fn fitting<'k>(
        &'k self,
        id: Option<&'k str>,
        algorithm: SignatureAlgorithm,
    ) -> impl Iterator<Item = &'k PublicKey> {
        let fits = move |key: &&PublicKey| key.is_for(algorithm) && (id.is_none() || key.id.as_deref() == id);
        self.keys.iter().filter(fits).take(MAX_TRIED)
    }

    /// The `kid`s of its keys.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter_map(|key| key.id.as_deref())
    }

    /// Whether a key of it has this `kid`.
    pub fn has_id(&self, id: &str) -> bool {
        self.key_ids().any(|other| other == id)
    }

    /// Whether `other` has all keys of this one: then no token has lost its key.
    pub fn is_within(&self, other: &Self) -> bool {
        self.keys.iter().all(|key| other.keys.contains(key))
    }
}

impl PublicKey {
    /// `None`: it is of another type or purpose, or malformed.
    fn of(key: WebKey) -> Option<Self> {
        let is_for_signatures = key.r#use.as_deref().is_none_or(|purpose| purpose == "sig");
        let verifies = key.key_ops.as_ref().is_none_or(|all| all.iter().any(|one| one == "verify"));
        if !is_for_signatures || !verifies {
            return None;
        }
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |length: usize| {
            let (x, y) = (bytes(&key.x)?, bytes(&key.y)?);
            // 4: an uncompressed point (SEC 1, section 2.3.3).
            (x.len() == length && y.len() == length).then(|| [&[4][..], &x, &y].concat())
        };
        let (material, default) = match (&*key.kty, key.crv.as_deref()) {
            ("RSA", None) => (Material::Rsa { modulus: bytes(&key.n)?, exponent: bytes(&key.e)? }, None),
            ("EC", Some("P-256")) => (Material::P256(point(32)?), Some(SignatureAlgorithm::Es256)),
            ("EC", Some("P-384")) => (Material::P384(point(48)?), Some(SignatureAlgorithm::Es384)),
            ("OKP", Some("Ed25519")) => {
                (Material::Ed25519(bytes(&key.x).filter(|x| x.len() == 32)?), Some(SignatureAlgorithm::EdDsa))
            }
            _ => return None,
        };
        if let Material::Rsa { modulus, .. } = &material
            && !(256..=1024).contains(&modulus.len())
        {
            return None;
        }
        let algorithm = match key.alg.as_deref() {
            None => default,
            // The name of RFC 9864 for this curve.
            Some("Ed25519") => {
                Some(SignatureAlgorithm::EdDsa).filter(|_| default == Some(SignatureAlgorithm::EdDsa))
            }
            Some(name) => {
                let algorithm = SignatureAlgorithm::named(name)?;
                let fits = if default.is_some() { default == Some(algorithm) } else { algorithm.is_rsa() };
                Some(algorithm).filter(|_| fits)
            }
        };
        if algorithm.is_none() && (default.is_some() || key.alg.is_some()) {
            return None;
        }
        Some(Self { id: key.kid, material, algorithm })
    }

    fn is_for(&self, algorithm: SignatureAlgorithm) -> bool {
        match self.algorithm {
            Some(own) => own == algorithm,
            None => algorithm.is_rsa(),
        }
    }

    /// Whether this key has made the signature. A key that is not for the algorithm has made none.
    pub(super) fn verifies(&self, algorithm: SignatureAlgorithm, message: &[u8], made: &[u8]) -> bool {
        let verified = match (&self.material, algorithm) {
            (Material::Rsa { modulus, exponent }, algorithm) => {
                let Some(parameters) = rsa_parameters(algorithm) else { return false };
                signature::RsaPublicKeyComponents { n: modulus, e: exponent }
                    .verify(parameters, message, made)
            }
            (Material::P256(point), SignatureAlgorithm::Es256) => {
                signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, made)
            }
            (Material::P384(point), SignatureAlgorithm::Es384) => {
                signature::UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, made)
            }
            (Material::Ed25519(key), SignatureAlgorithm::EdDsa) => {
                signature::UnparsedPublicKey::new(&signature::ED25519, key).verify(message, made)
            }
            _ => return false,
        };
        self.is_for(algorithm) && verified.is_ok()
    }
}

fn rsa_parameters(algorithm: SignatureAlgorithm) -> Option<&'static signature::RsaParameters> {
    Some(match algorithm {
        SignatureAlgorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SignatureAlgorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SignatureAlgorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        SignatureAlgorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        SignatureAlgorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        SignatureAlgorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        SignatureAlgorithm::Es256 | SignatureAlgorithm::Es384 | SignatureAlgorithm::EdDsa => return None,
    })
}

impl SecretKey {
    /// `None`: it is shorter than [`MIN_SECRET`].
    pub fn new(secret: &[u8]) -> Option<Self> {
        (secret.len() >= MIN_SECRET).then(|| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
            let mark = hmac::sign(&key, b"");
            Self { key, mark }
        })
    }

    pub(super) fn verifies(&self, message: &[u8], made: &[u8]) -> bool {
        hmac::verify(&self.key, message, made).is_ok()
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.mark.as_ref() == other.mark.as_ref()
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, self.algorithm, self.material.parts())
            == (&other.id, other.algorithm, other.material.parts())
    }
}

impl Material {
    /// What tells keys apart.
    fn parts(&self) -> (u8, &[u8], &[u8]) {
        match self {
            Self::Rsa { modulus, exponent } => (0, modulus, exponent),
            Self::P256(point) => (1, point, &[]),
            Self::P384(point) => (2, point, &[]),
            Self::Ed25519(key) => (3, key, &[]),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reload keeps what is known of tokens only if the secret is the same.
    #[test]
    fn secrets_are_equal_if_their_bytes_are() {
        let key = |byte| SecretKey::new(&[byte; MIN_SECRET]).expect("it is long enough");
        assert_eq!(key(1), key(1));
        assert_ne!(key(1), key(2));
    }

    /// A key of RSA that is said to be for a curve verifies nothing.
    #[test]
    fn a_key_with_the_algorithm_of_another_type_is_left_out() {
        let n = URL_SAFE_NO_PAD.encode([0xff; 256]);
        let parsed = |algorithm: &str| {
            let key = format!(r#"{{"kty":"RSA","n":"{n}","e":"AQAB","alg":"{algorithm}"}}"#);
            KeySet::parse(format!(r#"{{"keys":[{key}]}}"#).as_bytes()).is_ok()
        };
        assert!(parsed("RS256") && parsed("PS512"));
        assert!(!parsed("ES256") && !parsed("EdDSA") && !parsed("Ed25519") && !parsed("RSA-OAEP"));
    }
}
