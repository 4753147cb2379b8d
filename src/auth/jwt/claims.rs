//! The claims of a verified token (RFC 7519 §4), and the rules for them.

use std::fmt;

use serde_json::{Map, Value};

use super::unique_names::UniqueNames;
use crate::route::claim::ClaimPath;

/// The end of the year 9999, seconds since 1970: no time of a token lies behind it.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// The claims of a token. No object in them has a name twice.
#[derive(Debug)]
pub struct Claims(Map<String, Value>);

/// The rules for the claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimsRules {
    /// The value of `iss`; `None`: any, or none.
    pub issuer: Option<Box<str>>,
    /// One of the values of `aud`; `None`: any, or none.
    pub audience: Option<Box<str>>,
    /// By how much clocks may differ, seconds.
    pub leeway: u32,
}

/// Why claims are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimsFault {
    /// There is no `exp`.
    NoExpiry,
    /// A time is not a number from 1970 to the year 9999.
    Time,
    /// The time of `exp` has come.
    Expired,
    /// The time of `nbf` or `iat` has not come.
    NotYet,
    /// `iss` is another.
    Issuer,
    /// `aud` has other values.
    Audience,
    /// The claim that names the consumer is absent, or no text or whole number of up to 256 bytes.
    Name,
}

impl fmt::Display for ClaimsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoExpiry => "the token has no `exp`",
            Self::Time => "a time of the token is not a number",
            Self::Expired => "the token has expired",
            Self::NotYet => "the token is not valid yet",
            Self::Issuer => "the token's issuer is another",
            Self::Audience => "the token is for another audience",
            Self::Name => "the token names no consumer",
        })
    }
}

impl Claims {
    /// Parses a JSON object in which no name occurs twice.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        match serde_json::from_slice(bytes) {
            Ok(UniqueNames(Value::Object(claims))) => Some(Self(claims)),
            _ => None,
        }
    }

    /// Checks the claims at `now`, seconds since 1970. Returns the second from which the token has expired, leeway
    /// included.
    ///
    /// # Errors
    ///
    /// A rule does not hold.
    pub fn check(&self, rules: &ClaimsRules, now: u64) -> Result<u64, ClaimsFault> {
        let leeway = u64::from(rules.leeway);
        let expiry = self.time("exp")?.ok_or(ClaimsFault::NoExpiry)?;
        // "On or after" the time of `exp` (RFC 7519 §4.1.4).
        let end = expiry.saturating_add(leeway);
        if now >= end {
            return Err(ClaimsFault::Expired);
        }
        for name in ["nbf", "iat"] {
            if self.time(name)?.is_some_and(|begin| begin > now.saturating_add(leeway)) {
                return Err(ClaimsFault::NotYet);
            }
        }
        if let Some(issuer) = &rules.issuer
            && self.0.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err(ClaimsFault::Issuer);
        }
        if let Some(audience) = &rules.audience {
            let is_it = |value: &Value| value.as_str() == Some(audience);
            let has_it = match self.0.get("aud") {
                Some(Value::Array(values)) => values.iter().any(is_it),
                Some(value) => is_it(value),
                None => false,
            };
            if !has_it {
                return Err(ClaimsFault::Audience);
            }
        }
        Ok(end)
    }

    /// The text of a claim: a string that is not empty, or a whole number or a boolean as JSON writes it. `None`: it is
    /// absent, or of another type.
    pub fn text(&self, claim: &ClaimPath) -> Option<String> {
        match claim.find(&self.0)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// Whether a claim is this text, or a list that has it.
    pub fn has(&self, claim: &ClaimPath, wanted: &str) -> bool {
        claim.find(&self.0).is_some_and(|value| claim.has(value, wanted))
    }

    /// A time, in whole seconds, rounded down; `None`: it is absent.
    fn time(&self, name: &str) -> Result<Option<u64>, ClaimsFault> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| (0.0..=LAST_SECOND).contains(seconds));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the range")]
        let whole = seconds.map(|seconds| seconds as u64);
        whole.map(Some).ok_or(ClaimsFault::Time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: ClaimsRules = ClaimsRules { issuer: None, audience: None, leeway: 30 };

    fn check(text: &str, rules: &ClaimsRules, now: u64) -> Option<Result<u64, ClaimsFault>> {
        Claims::parse(text.as_bytes()).map(|claims| claims.check(rules, now))
    }

    #[test]
    fn times_hold_with_their_leeway() {
        let at = |text: &str, now| check(text, &RULES, now).unwrap();
        assert_eq!(at(r#"{"exp":1000}"#, 1029), Ok(1030));
        assert_eq!(at(r#"{"exp":1000}"#, 1030), Err(ClaimsFault::Expired));
        assert_eq!(at(r#"{"exp":1000.9}"#, 1029), Ok(1030));
        assert_eq!(at(r#"{"exp":1000,"nbf":530}"#, 500), Ok(1030));
        assert_eq!(at(r#"{"exp":1000,"nbf":531}"#, 500), Err(ClaimsFault::NotYet));
        assert_eq!(at(r#"{"exp":1000,"iat":531}"#, 500), Err(ClaimsFault::NotYet));
        assert_eq!(at("{}", 0), Err(ClaimsFault::NoExpiry));
        for wrong in ["-1", "1e300", "\"1000\"", "null", "[1000]", "253402300800", "1e20"] {
            assert_eq!(at(&format!(r#"{{"exp":{wrong}}}"#), 0), Err(ClaimsFault::Time), "{wrong}");
            assert_eq!(at(&format!(r#"{{"exp":1000,"nbf":{wrong}}}"#), 0), Err(ClaimsFault::Time), "{wrong}");
        }
    }

    #[test]
    fn objects_have_one_reading() {
        for wrong in [
            r#"{"exp":1,"exp":1000}"#,
            r#"{"exp":1,"\u0065xp":1000}"#,
            r#"{"sub":"a","sub":"a","exp":1000}"#,
            r#"{"exp":1e999}"#,
            r#"{"exp":1000,"a":{"b":1,"b":1}}"#,
            r#"{"exp":1000,"a":[{"b":[{"c":1,"\u0063":1}]}]}"#,
            "[]",
            "null",
            "",
            r#"{"exp":1000}x"#,
            "{'exp':1000}",
        ] {
            assert!(check(wrong, &RULES, 0).is_none(), "{wrong}");
        }
    }

    #[test]
    fn issuer_and_audience_are_compared_whole() {
        let rules =
            ClaimsRules { issuer: Some("https://a/".into()), audience: Some("api".into()), leeway: 0 };
        let with = |rest: &str| check(&format!(r#"{{"exp":1000{rest}}}"#), &rules, 0).unwrap();
        let issuer = r#","iss":"https://a/""#;
        assert_eq!(with(&format!(r#"{issuer},"aud":"api""#)), Ok(1000));
        assert_eq!(with(&format!(r#"{issuer},"aud":["other","api"]"#)), Ok(1000));
        for wrong in [
            "",
            r#","aud":"ap""#,
            r#","aud":"api2""#,
            r#","aud":[]"#,
            r#","aud":["API"]"#,
            r#","aud":[["api"]]"#,
        ] {
            assert_eq!(with(&format!("{issuer}{wrong}")), Err(ClaimsFault::Audience), "{wrong}");
        }
        for wrong in ["", r#","iss":"https://a""#, r#","iss":["https://a/"]"#, r#","iss":"https://a/x""#] {
            assert_eq!(with(&format!(r#"{wrong},"aud":"api""#)), Err(ClaimsFault::Issuer), "{wrong}");
        }
    }

    #[test]
    fn texts_are_strings_whole_numbers_and_booleans() {
        let claims =
            Claims::parse(br#"{"a":"x","b":7,"c":true,"d":1.5,"e":"","f":null,"g":["x"],"h":{}}"#).unwrap();
        let text = |name| claims.text(&ClaimPath::parse(name).unwrap());
        assert_eq!(
            (text("a"), text("b"), text("c")),
            (Some("x".into()), Some("7".into()), Some("true".into()))
        );
        for name in ["d", "e", "f", "g", "h", "i"] {
            assert_eq!(text(name), None, "{name}");
        }
    }
}
