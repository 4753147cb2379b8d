//! Masking of values that may be secret: an administrator can distinguish keys, and learns no secret.
//!
//! Of a value with 16 or more characters the last four are shown, after `…`, and of any value a short id: `…f3a9
//! #k7Qd`, `… #0aZ9`. The id is 24 bits of a keyed hash. Its key is random and never leaves the process, or it is
//! derived from the secret of a fleet; so an id can neither be reversed nor be found by trying values, however weak the
//! value is.
//!
//! The scheme of `authorization` is not a secret and is shown: `Bearer …f3a9 #k7Qd`. Only known schemes are shown, since
//! the first word of any other value may be part of the secret. Of `Basic` credentials no characters are shown: the
//! last ones are the password's.

use std::fmt::{self, Write as _};

use super::secret::KeySecret;

/// Keys the short ids of masked values.
#[derive(Clone, Copy)]
pub struct ShortIds([u8; 32]);

/// How the values of keys that may be secret are shown.
#[derive(Clone, Copy, Debug)]
pub enum Masking<'a> {
    /// Unmasked: the limit has `reveal = true`.
    Off,
    /// Masked, with a short id.
    Ids(&'a ShortIds),
    /// Masked, without an id: no keys are to be distinguished.
    NoIds,
}

/// The minimum length of a value with its last characters shown: of shorter values they would be too large a part.
const MIN_TO_SHOW_END: usize = 16;
/// The number of those characters.
const END: usize = 4;
/// The characters of ids.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of an id.
const ID: usize = 4;
const CONTEXT: &str = "tollgate 2026-11-22 short ids of masked values";
/// The schemes of `authorization` that are shown, in lower case: IANA's registry and some in common use.
const SCHEMES: &[&str] = &[
    "apikey",
    "aws4-hmac-sha256",
    "basic",
    "bearer",
    "digest",
    "dpop",
    "gnap",
    "hoba",
    "hmac",
    "jwt",
    "mutual",
    "negotiate",
    "ntlm",
    "oauth",
    "privatetoken",
    "scram-sha-1",
    "scram-sha-256",
    "token",
    "vapid",
];

impl fmt::Debug for ShortIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShortIds(…)")
    }
}

impl ShortIds {
    /// The ids are the same wherever the secret is.
    pub fn new(secret: &KeySecret) -> Self {
        let secret: &[u8] = match secret {
            KeySecret::Process(secret) => secret,
            KeySecret::Fleet(secret) => secret,
        };
        Self(blake3::derive_key(CONTEXT, secret))
    }

    /// Appends ` #` and the id of `value`.
    fn write(&self, value: &str, out: &mut String) {
        let [a, b, c, d, e, f, g, h, ..] = *blake3::keyed_hash(&self.0, value.as_bytes()).as_bytes();
        let mut rest = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        out.push_str(" #");
        for _ in 0..ID {
            let base = ALPHABET.len() as u64;
            #[expect(clippy::cast_possible_truncation, reason = "below 62")]
            out.push(char::from(ALPHABET[(rest % base) as usize]));
            rest /= base;
        }
    }
}

impl<'a> Masking<'a> {
    /// For a limit that reveals its keys, or not.
    pub fn of(reveal: bool, ids: &'a ShortIds) -> Self {
        if reveal { Self::Off } else { Self::Ids(ids) }
    }

    /// Whether nothing is masked.
    pub(super) fn is_off(self) -> bool {
        matches!(self, Self::Off)
    }

    /// Appends `value`, masked. `is_authorization`: the value is that of `authorization`.
    pub(super) fn write(self, value: &str, is_authorization: bool, out: &mut String) {
        let (scheme, secret) = if is_authorization { scheme(value) } else { (None, value) };
        // Writing to a `String` cannot fail.
        let _ = scheme.map_or(Ok(()), |scheme| write!(out, "{scheme} "));
        out.push('…');
        let is_password = scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic"));
        if !is_password && secret.chars().nth(MIN_TO_SHOW_END - 1).is_some() {
            let end = secret.char_indices().rev().nth(END - 1).map_or(0, |(start, _)| start);
            let _ = write!(out, "{}", secret[end..].escape_debug());
        }
        if let Self::Ids(ids) = self {
            ids.write(value, out);
        }
    }
}

/// The scheme of `authorization`, if it is a known one, and the credentials.
fn scheme(value: &str) -> (Option<&str>, &str) {
    match value.split_once(' ') {
        Some((scheme, rest)) if SCHEMES.contains(&&*scheme.to_ascii_lowercase()) => {
            (Some(scheme), rest.trim_start())
        }
        _ => (None, value),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(value: &str, is_authorization: bool, secret: &KeySecret) -> String {
        let mut out = String::new();
        Masking::Ids(&ShortIds::new(secret)).write(value, is_authorization, &mut out);
        out
    }

    fn without_id(value: &str, is_authorization: bool) -> String {
        let mut out = String::new();
        Masking::NoIds.write(value, is_authorization, &mut out);
        out
    }

    #[test]
    fn long_values_show_their_end_and_short_ones_nothing() {
        for (value, is_authorization, shown) in [
            ("", false, "…"),
            ("123456789012345", false, "…"),
            ("1234567890123456", false, "…3456"),
            ("ééééééééééééééé\u{85}ß\"", false, "…é\\u{85}ß\\\""),
            ("Bearer 123456789012345", true, "Bearer …"),
            ("bearer  1234567890123456", true, "bearer …3456"),
            ("Bearer 1234567890123456", false, "…3456"),
            ("Basic dXNlcjpwYXNzd29yZC1vZi1taW5l", true, "Basic …"),
            ("hunter2 is the password that I have", true, "…have"),
            ("Bearer", true, "…"),
        ] {
            assert_eq!(without_id(value, is_authorization), shown, "{value}");
        }
    }

    #[test]
    fn ids_follow_from_value_and_secret() {
        let [one, other] = [KeySecret::Process([1; 16]), KeySecret::Process([2; 16])];
        let ids: Vec<_> = (0..100).map(|number| masked(&format!("{number}"), false, &one)).collect();
        assert!(ids.iter().all(|id| id.starts_with("… #") && id.chars().count() == 7), "{ids:?}");
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(different.len(), 100);
        assert_eq!(masked("7", false, &one), ids[7]);
        assert_ne!(masked("7", false, &other), ids[7]);
        let fleet = KeySecret::Fleet([1; 32]);
        assert_eq!(masked("7", false, &fleet), masked("7", false, &fleet));
        assert_ne!(masked("Bearer 7", true, &one), masked("bearer 7", true, &one), "two keys");
    }

    proptest! {
        /// No five consecutive characters of a value are ever shown.
        #[test]
        fn no_more_than_the_end_is_shown(value in "[a-y]{5,40}", scheme in "(Bearer |Basic |x |)") {
            let value = format!("{scheme}{value}");
            let shown = without_id(&value, true);
            let secret = value.strip_prefix("Bearer ").or(value.strip_prefix("Basic ")).unwrap_or(&value);
            for start in 0..secret.len() - 4 {
                prop_assert!(!shown.contains(&secret[start..start + 5]), "{value}: {shown}");
            }
        }
    }
}
