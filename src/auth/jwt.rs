//! JSON Web Tokens (RFC 7519) in the compact form of a signed token (RFC 7515 §7.1), by the rules of RFC 8725.
//!
//! A token has one reading: three parts of base64url without padding, a header and claims in which no name occurs twice. It
//! is checked in this order: form, header, signature, claims. Nothing of the claims is read before the signature is good.

mod claims;
mod key_set;
mod unique_names;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

pub use claims::{Claims, ClaimsFault, ClaimsRules};
pub use key_set::{KeySet, KeySetFault, MIN_SECRET, PublicKey, SecretKey};

/// The maximum length of a token, bytes.
pub const MAX_TOKEN: usize = 8 << 10;

/// A signature algorithm with a public key (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// The same with SHA-384.
    Rs384,
    /// The same with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// The same with SHA-384.
    Ps384,
    /// The same with SHA-512.
    Ps512,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl SignatureAlgorithm {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// The algorithm of this name; names are case-sensitive.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    /// Whether its key is one of RSA.
    pub fn is_rsa(self) -> bool {
        !matches!(self, Self::Es256 | Self::Es384 | Self::EdDsa)
    }
}

/// Why a token is refused. As text through `Display`, for logs and `explain`: it has nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// It is longer than [`MAX_TOKEN`].
    TooLong,
    /// It is not three parts of base64url, or its header is not a JSON object with one `alg`.
    Malformed,
    /// Its `alg` is not one of those allowed.
    Algorithm,
    /// It has `crit`: extensions that must be understood, of which none is.
    Critical,
    /// Its `typ` is that of another kind of token.
    Type,
    /// No key has its `kid`.
    UnknownKey,
    /// No key has its `kid` any more.
    FormerKey,
    /// The signature is not of any key for it.
    Signature,
    /// Its claims.
    Claims(ClaimsFault),
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token is too long",
            Self::Malformed => "the token is malformed",
            Self::Algorithm => "the token's `alg` is not allowed",
            Self::Critical => "the token has critical extensions",
            Self::Type => "the token's `typ` is that of another kind",
            Self::UnknownKey => "no key has the token's `kid`",
            Self::FormerKey => "the issuer has withdrawn the key with the token's `kid`",
            Self::Signature => "the token's signature is wrong",
            Self::Claims(fault) => return fault.fmt(f),
        })
    }
}

/// A token that is well-formed, of which nothing is verified.
#[derive(Debug)]
pub struct SignedToken<'t> {
    header: Header,
    /// What is signed: header and claims as they came, with the dot between.
    message: &'t [u8],
    claims: &'t str,
    signature: Vec<u8>,
}

/// The part of a header that counts. Keys inside it (`jwk`, `x5c`) and places of keys (`jku`, `x5u`) are never used.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    #[serde(default)]
    crit: Presence,
}

/// Whether a member is there, whatever its value.
#[derive(Debug, Default)]
struct Presence(bool);

impl<'de> Deserialize<'de> for Presence {
    fn deserialize<D: serde::Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(value).map(|_| Self(true))
    }
}

/// Whether a credential has the form of a compact token: three parts between dots, of which the first begins as JSON in
/// base64url does.
pub fn is_compact(credential: &[u8]) -> bool {
    credential.starts_with(b"ey") && credential.iter().filter(|byte| **byte == b'.').count() == 2
}

impl<'t> SignedToken<'t> {
    /// Parses a token.
    ///
    /// # Errors
    ///
    /// It is too long or malformed, has critical extensions, or is another kind of token.
    pub fn parse(token: &'t [u8]) -> Result<Self, TokenFault> {
        if token.len() > MAX_TOKEN {
            return Err(TokenFault::TooLong);
        }
        let text = std::str::from_utf8(token).map_err(|_| TokenFault::Malformed)?;
        let (message, signature) = text.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(TokenFault::Malformed)?;
        let header: Header = decode(header)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or(TokenFault::Malformed)?;
        if header.crit.0 {
            return Err(TokenFault::Critical);
        }
        if !header.typ.as_deref().is_none_or(is_access_token) {
            return Err(TokenFault::Type);
        }
        let signature = decode(signature).ok_or(TokenFault::Malformed)?;
        Ok(Self { header, message: message.as_bytes(), claims, signature })
    }

    /// The `kid` of the header.
    pub fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// The claims, if a key of the set has made the signature.
    ///
    /// # Errors
    ///
    /// The algorithm is not allowed, no key fits, or the signature or the claims are malformed.
    pub fn verify_public(&self, keys: &KeySet, allowed: &[SignatureAlgorithm]) -> Result<Claims, TokenFault> {
        let algorithm =
            SignatureAlgorithm::named(&self.header.alg).filter(|algorithm| allowed.contains(algorithm));
        let algorithm = algorithm.ok_or(TokenFault::Algorithm)?;
        let mut fitting = keys.fitting(self.key_id(), algorithm).peekable();
        if fitting.peek().is_none() {
            return Err(TokenFault::UnknownKey);
        }
        if !fitting.any(|key| key.verifies(algorithm, self.message, &self.signature)) {
            return Err(TokenFault::Signature);
        }
        self.claims()
    }

    /// The claims, if the holder of the secret has made the signature with HS256.
    ///
    /// # Errors
    ///
    /// It has another algorithm, or the signature or the claims are malformed.
    pub fn verify_secret(&self, secret: &SecretKey) -> Result<Claims, TokenFault> {
        if self.header.alg != "HS256" {
            return Err(TokenFault::Algorithm);
        }
        if !secret.verifies(self.message, &self.signature) {
            return Err(TokenFault::Signature);
        }
        self.claims()
    }

    fn claims(&self) -> Result<Claims, TokenFault> {
        let bytes = decode(self.claims).ok_or(TokenFault::Malformed)?;
        Claims::parse(&bytes).ok_or(TokenFault::Malformed)
    }
}

/// Without padding, line breaks, or bits that are left over.
fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Whether a `typ` is that of a token for access. Tokens of other kinds by the same issuer, such as those about a log-out,
/// have others (RFC 8725 §3.11).
fn is_access_token(typ: &str) -> bool {
    let prefix = "application/";
    let short = match typ.get(..prefix.len()) {
        Some(start) if start.eq_ignore_ascii_case(prefix) => typ.get(prefix.len()..).unwrap_or_default(),
        _ => typ,
    };
    short.eq_ignore_ascii_case("jwt") || short.eq_ignore_ascii_case("at+jwt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::claim::ClaimPath;

    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const RULES: ClaimsRules = ClaimsRules { issuer: None, audience: None, leeway: 0 };

    fn key_set(key: &str) -> KeySet {
        KeySet::parse(format!(r#"{{"keys":[{key}]}}"#).as_bytes()).expect("a good key")
    }

    #[track_caller]
    fn assert_joe(verified: Result<Claims, TokenFault>) {
        let claims = verified.expect("a good signature");
        assert_eq!(claims.text(&ClaimPath::parse("iss").unwrap()).as_deref(), Some("joe"));
        assert_eq!(claims.check(&RULES, 1_300_819_379), Ok(1_300_819_380));
        assert_eq!(claims.check(&RULES, 1_300_819_380), Err(ClaimsFault::Expired));
    }

    /// RFC 7515, appendix A.1.
    #[test]
    fn the_example_of_hs256() {
        let token = format!(
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
        );
        let secret =
            decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
                .unwrap();
        let token = SignedToken::parse(token.as_bytes()).unwrap();
        assert_joe(token.verify_secret(&SecretKey::new(&secret).unwrap()));
        let other = SecretKey::new(&secret[1..]).unwrap();
        assert_eq!(token.verify_secret(&other).unwrap_err(), TokenFault::Signature);
    }

    const RSA: &str = r#""n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB""#;
    const RS256: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    /// RFC 7515, appendix A.2.
    #[test]
    fn the_example_of_rs256() {
        let token = format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.{RS256}");
        let token = SignedToken::parse(token.as_bytes()).unwrap();
        let fitting = key_set(&format!(r#"{{"kty":"RSA",{RSA}}}"#));
        assert_joe(token.verify_public(&fitting, &[SignatureAlgorithm::Rs256]));
        assert_eq!(
            token
                .verify_public(&fitting, &[SignatureAlgorithm::Ps256, SignatureAlgorithm::Es256])
                .unwrap_err(),
            TokenFault::Algorithm
        );
        // The key is pinned to another algorithm.
        let pinned = key_set(&format!(r#"{{"kty":"RSA","alg":"PS256",{RSA}}}"#));
        assert_eq!(
            token.verify_public(&pinned, &[SignatureAlgorithm::Rs256]).unwrap_err(),
            TokenFault::UnknownKey
        );
    }

    const EC: &str = r#""kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;

    /// RFC 7515, appendix A.3.
    #[test]
    fn the_example_of_es256() {
        let signature =
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
        let token = format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}.{signature}");
        let token = SignedToken::parse(token.as_bytes()).unwrap();
        assert_joe(token.verify_public(&key_set(&format!("{{{EC}}}")), &[SignatureAlgorithm::Es256]));
    }

    /// RFC 8037, appendix A.4. What is signed there are no claims.
    #[test]
    fn the_example_of_eddsa() {
        let keys =
            key_set(r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#);
        let key = keys.fitting(None, SignatureAlgorithm::EdDsa).next().expect("one key");
        let signature =
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        assert!(key.verifies(SignatureAlgorithm::EdDsa, message, &decode(signature).unwrap()));
        assert!(!key.verifies(SignatureAlgorithm::EdDsa, &message[1..], &decode(signature).unwrap()));
    }

    #[test]
    fn keys_of_no_use_are_skipped() {
        let document = |keys: &str| KeySet::parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes());
        let good = format!("{{{EC}}}");
        for useless in [
            r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T"}"#.to_owned(),
            format!(r#"{{"use":"enc",{EC}}}"#),
            format!(r#"{{"key_ops":["sign"],{EC}}}"#),
            format!(r#"{{"alg":"ES384",{EC}}}"#),
            format!(r#"{{"alg":"HS256",{EC}}}"#),
            format!(r#"{{"alg":"none",{EC}}}"#),
            format!(r#"{{"kty":"RSA","alg":"HS256",{RSA}}}"#),
            r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.to_owned(),
            r#"{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}"#.to_owned(),
            r#"{"kty":"OKP","crv":"X25519","x":"AQAB"}"#.to_owned(),
            r#"{"kty":7}"#.to_owned(),
            "7".to_owned(),
        ] {
            assert_eq!(document(&useless).unwrap_err(), KeySetFault::NoKeys(1), "{useless}");
            let both = document(&format!("{useless},{good}")).unwrap();
            assert_eq!((both.len(), both.skipped()), (1, 1), "{useless}");
        }
        for malformed in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[]"#] {
            assert_eq!(
                KeySet::parse(malformed.as_bytes()).unwrap_err(),
                KeySetFault::Malformed,
                "{malformed}"
            );
        }
    }

    /// An exponent of the length of the modulus would make each verification a thousand times slower.
    #[test]
    fn a_key_with_a_huge_exponent_verifies_nothing() {
        let huge = RSA.replace("AQAB", &"_".repeat(342));
        let keys = document_or_none(&format!(r#"{{"kty":"RSA",{huge}}}"#));
        let token = format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.{RS256}");
        let token = SignedToken::parse(token.as_bytes()).unwrap();
        let verified = keys.map(|keys| token.verify_public(&keys, &[SignatureAlgorithm::Rs256]).is_ok());
        assert!(verified.is_none_or(|verified| !verified));
    }

    fn document_or_none(key: &str) -> Option<KeySet> {
        KeySet::parse(format!(r#"{{"keys":[{key}]}}"#).as_bytes()).ok()
    }
}
