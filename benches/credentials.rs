//! What it costs to verify a credential that is not remembered, and to find one that is.
//!
//! `cargo bench --bench credentials`. Threads of their own verify, so that a worker pays only for the look-up.
#![expect(clippy::expect_used, reason = "a benchmark that cannot be set up should stop")]

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use divan::{Bencher, black_box};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tollgate::auth::htpasswd::Users;
use tollgate::auth::jwt::{ClaimsRules, KeySet, SecretKey, SignatureAlgorithm};
use tollgate::auth::passwords::PasswordVerifier;
use tollgate::auth::tokens::{NamedClaims, TokenSettings, TokenVerifier, VerificationKeys};
use tollgate::limit::units::Timestamp;
use tollgate::limit::wall_clock::WallTime;
use tollgate::route::claim::ClaimPath;

fn main() {
    divan::main();
}

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const WALL_NOW: WallTime = WallTime(NOW.0);

fn verifier(keys: VerificationKeys) -> Arc<TokenVerifier> {
    let rules = ClaimsRules { issuer: None, audience: None, leeway: 0 };
    let claims = NamedClaims {
        name: ClaimPath::parse("sub").expect("a name"),
        tier: None,
        counted: Box::default(),
        required: Box::default(),
    };
    Arc::new(TokenVerifier::new(Arc::new(TokenSettings { keys, rules, claims }), None, [7; 16]))
}

fn claims() -> Value {
    json!({"sub": "ann", "exp": 4_102_444_800_u64})
}

fn of_public(algorithm: Algorithm) -> (Arc<TokenVerifier>, String) {
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (key, public, allowed) = if algorithm == Algorithm::ES256 {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        let (x, y) = pair.public_key_raw()[1..].split_at(32);
        let public = json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)});
        (EncodingKey::from_ec_der(&pair.serialize_der()), public, SignatureAlgorithm::Es256)
    } else {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("it is encoded");
        let text = STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).expect("a key of RSA");
        // A sequence of two integers: the modulus of 256 bytes behind a zero, and the exponent 65537.
        let public = pair.public_key().as_ref();
        let modulus = &public[public.len() - 256 - 5..public.len() - 5];
        (key, json!({"kty": "RSA", "n": encoded(modulus), "e": "AQAB"}), SignatureAlgorithm::Rs256)
    };
    let set = KeySet::parse(json!({"keys": [public]}).to_string().as_bytes()).expect("a key set");
    let token = encode(&Header::new(algorithm), &claims(), &key).expect("it is signed");
    (verifier(VerificationKeys::File(set, [allowed].into())), token)
}

fn bench_token(bencher: Bencher<'_, '_>, (verifier, token): &(Arc<TokenVerifier>, String)) {
    bencher.bench(|| verifier.prepare(black_box(token.as_bytes()), WALL_NOW).run().expect("a good token"));
}

#[divan::bench]
fn verify_es256(bencher: Bencher<'_, '_>) {
    bench_token(bencher, &of_public(Algorithm::ES256));
}

#[divan::bench]
fn verify_rs256(bencher: Bencher<'_, '_>) {
    bench_token(bencher, &of_public(Algorithm::RS256));
}

#[divan::bench]
fn verify_hs256(bencher: Bencher<'_, '_>) {
    let secret = [7; 32];
    let token = encode(&Header::new(Algorithm::HS256), &claims(), &EncodingKey::from_secret(&secret));
    let key = SecretKey::new(&secret).expect("a long secret");
    bench_token(bencher, &(verifier(VerificationKeys::Secret(Box::new(key))), token.expect("it is signed")));
}

#[divan::bench]
fn find_remembered_token(bencher: Bencher<'_, '_>) {
    let (verifier, token) = of_public(Algorithm::ES256);
    verifier.prepare(token.as_bytes(), WALL_NOW).run().expect("a good token");
    bencher.bench(|| verifier.find(black_box(token.as_bytes()), WALL_NOW).expect("it is remembered"));
}

fn passwords() -> (Arc<PasswordVerifier>, String) {
    let file = format!("ann:{}\n", bcrypt::hash("secret", 10).expect("a hash"));
    let users = Users::parse(file.as_bytes()).expect("a good file");
    (Arc::new(PasswordVerifier::new(Arc::new(users), [7; 16])), STANDARD.encode("ann:secret"))
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn check_password_with_bcrypt_of_cost_10(bencher: Bencher<'_, '_>) {
    let (verifier, credential) = passwords();
    bencher.bench(|| verifier.prepare(black_box(credential.as_bytes()), NOW).run().expect("a good password"));
}

#[divan::bench]
fn find_remembered_password(bencher: Bencher<'_, '_>) {
    let (verifier, credential) = passwords();
    verifier.prepare(credential.as_bytes(), NOW).run().expect("a good password");
    bencher.bench(|| verifier.find(black_box(credential.as_bytes()), NOW).expect("it is remembered"));
}
