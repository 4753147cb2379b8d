//! Logins that are bound to a connection instead of a request: NTLM and Negotiate (RFC 4559).

use super::syntax::items;

const SCHEMES: [&[u8]; 2] = [b"ntlm", b"negotiate"];

/// Whether credentials are of such a scheme, in any case.
pub fn binds_connection(credentials: &[u8]) -> bool {
    let begins = |scheme: &&[u8]| {
        credentials.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    SCHEMES.iter().any(begins)
}

/// Whether a list of challenges names such a scheme.
///
/// A comma within a quoted string is treated as one between challenges: that can only find one scheme too many.
pub fn asks_to_bind_connection(challenges: &[u8]) -> bool {
    items(challenges).any(binds_connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_any_item_counts_and_nothing_else() {
        for value in [
            "NTLM",
            "ntlm TlRMTVNTUAAB",
            "Basic realm=\"a\", Negotiate",
            "Digest a=\"b, c\",\tNeGoTiAtE oQ==",
        ] {
            assert!(asks_to_bind_connection(value.as_bytes()), "{value}");
        }
        for value in ["", "Basic realm=\"NTLM\"", "Bearer ntlm", "NT, LM", "Digest realm=Negotiate"] {
            assert!(!asks_to_bind_connection(value.as_bytes()), "{value}");
        }
        assert!(binds_connection(b"negotiate oQ==") && !binds_connection(b"Bearer a, NTLM"));
    }
}
