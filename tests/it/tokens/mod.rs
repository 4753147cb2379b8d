//! Tokens: `[auth]` with `type = "jwt"`, through the real binary.

mod claims;
mod faults;
mod forged;
mod issuer;
mod require;
mod rotation;

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::harness::{Backend, Gateway, Next, Response, everything_to, get_with};

/// A key that signs tokens, made for one test. Signatures are computed by another library than the gateway's.
struct SigningKey {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
    public: Value,
}

impl SigningKey {
    fn new(id: &'static str, algorithm: Algorithm) -> Self {
        let (key, mut public) = match algorithm {
            Algorithm::ES256 => Self::elliptic(&rcgen::PKCS_ECDSA_P256_SHA256, "P-256"),
            Algorithm::ES384 => Self::elliptic(&rcgen::PKCS_ECDSA_P384_SHA384, "P-384"),
            Algorithm::EdDSA => {
                let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
                let public = json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(pair.public_key_raw())});
                (EncodingKey::from_ed_der(&pair.serialize_der()), public)
            }
            _ => Self::rsa(),
        };
        public["kid"] = id.into();
        public["alg"] = format!("{algorithm:?}").into();
        Self { id, algorithm, key, public }
    }

    fn elliptic(kind: &'static rcgen::SignatureAlgorithm, curve: &str) -> (EncodingKey, Value) {
        let pair = rcgen::KeyPair::generate_for(kind).expect("a key");
        let (x, y) = pair.public_key_raw()[1..].split_at((pair.public_key_raw().len() - 1) / 2);
        let public = json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)});
        (EncodingKey::from_ec_der(&pair.serialize_der()), public)
    }

    fn rsa() -> (EncodingKey, Value) {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("it is encoded");
        let text = STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).expect("a key of RSA");
        // A sequence of two integers: the modulus of 256 bytes behind a zero, and the exponent 65537.
        let public = pair.public_key().as_ref();
        let modulus = &public[public.len() - 256 - 5..public.len() - 5];
        assert!(public.ends_with(&[2, 3, 1, 0, 1]));
        (key, json!({"kty": "RSA", "n": encoded(modulus), "e": "AQAB"}))
    }

    /// The public key as a JSON Web Key.
    fn public(&self) -> Value {
        self.public.clone()
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_as(&self.header(), claims)
    }

    fn header(&self) -> Header {
        Header { kid: Some(self.id.to_owned()), ..Header::new(self.algorithm) }
    }

    fn sign_as(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.key).expect("it is signed")
    }
}

/// Without padding.
fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Claims that are good for an hour.
fn claims(subject: &str) -> Value {
    json!({"iss": ISSUER, "aud": "api", "sub": subject, "plan": "pro", "exp": now() + 3600})
}

const ISSUER: &str = "https://idp.example.com/";
/// The challenge of a 401 for a token that is refused.
const INVALID: &str = "Bearer realm=\"sso\", error=\"invalid_token\"";

/// A server with a key set, which can be changed.
struct KeySetServer {
    backend: Backend,
    document: Arc<Mutex<String>>,
}

impl KeySetServer {
    fn start(keys: &[&SigningKey]) -> Self {
        let server = Self::behind_a_gate(keys);
        server.backend.open_gate();
        server
    }

    /// One that answers once its gate is open.
    fn behind_a_gate(keys: &[&SigningKey]) -> Self {
        let document = Arc::new(Mutex::new(key_set(keys)));
        let shown = Arc::clone(&document);
        let backend = Backend::start(move |exchange| {
            exchange.wait_at_gate();
            let body = shown.lock().expect("no panic inside").clone();
            exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
            Next::KeepAlive
        });
        Self { backend, document }
    }

    fn publish(&self, keys: &[&SigningKey]) {
        *self.document.lock().expect("no panic inside") = key_set(keys);
    }

    /// It answers with no keys from now on.
    fn break_down(&self) {
        *self.document.lock().expect("no panic inside") = "oops".to_owned();
    }

    fn url(&self) -> String {
        format!("{}/keys", self.backend.url())
    }
}

fn key_set(keys: &[&SigningKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()}).to_string()
}

/// `[auth.sso]` with these further lines.
fn sso(jwks: &str, rest: &str) -> String {
    format!(
        "[auth.sso]\ntype = \"jwt\"\njwks = \"{jwks}\"\nissuer = \"{ISSUER}\"\naudience = \"api\"\ntier = \"plan\"\n\
         algorithms = [\"RS256\", \"PS256\", \"ES256\", \"ES384\", \"EdDSA\"]\n{rest}\n"
    )
}

fn gateway(backend: &Backend, auth: &str) -> Gateway {
    Gateway::start(&everything_to(backend, &format!("auth = \"sso\"\n{auth}")))
}

fn ask(gateway: &Gateway, token: &str) -> Response {
    get_with(gateway.addr(), "/", &format!("authorization: Bearer {token}\r\n"))
}
