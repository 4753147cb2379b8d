//! What the fuzz targets assert of tokens and of key sets.

use tollgate::auth::jwt::{KeySet, MAX_TOKEN, SignatureAlgorithm, SignedToken, TokenFault};

/// The key set and the token of RFC 7515, appendix A.3.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9\
    pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

/// The one token that the key has signed is verified, and no other bytes.
pub(crate) fn token(data: &[u8]) {
    let keys = KeySet::parse(KEYS.as_bytes()).expect("a key");
    let all = SignatureAlgorithm::ALL.map(|(_, algorithm)| algorithm);
    let verified = SignedToken::parse(data).and_then(|token| token.verify_public(&keys, &all));
    assert_eq!(verified.is_ok(), data == TOKEN.as_bytes());
    if let Err(fault) = verified {
        assert_eq!(fault == TokenFault::TooLong, data.len() > MAX_TOKEN);
    }
}

/// A key set has keys, and none of them verifies what another key has signed.
pub(crate) fn key_set(data: &[u8]) {
    let Ok(keys) = KeySet::parse(data) else { return };
    assert!(!keys.is_empty() && keys.is_within(&keys));
    let token = SignedToken::parse(TOKEN.as_bytes()).expect("a good one");
    let has_key =
        ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"]
            .iter()
            .all(|part| String::from_utf8_lossy(data).contains(part));
    let all = SignatureAlgorithm::ALL.map(|(_, algorithm)| algorithm);
    assert!(token.verify_public(&keys, &all).is_err() || has_key || data.contains(&b'\\'));
}
