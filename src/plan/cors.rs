//! `cors` of a route: which sites' scripts may read its answers (the Fetch standard, "CORS protocol").

use http::HeaderValue;

/// The fields of ours that scripts may read; what else they may, the route names.
pub const EXPOSED: &str =
    "retry-after, ratelimit-policy, ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

/// `cors` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Whose scripts.
    pub origins: Origins,
    /// `access-control-allow-methods`.
    pub methods: HeaderValue,
    /// Which fields a script may send.
    pub headers: AllowedHeaders,
    /// `access-control-expose-headers`.
    pub exposed: HeaderValue,
    /// Whether cookies and the like may go along.
    pub credentials: bool,
    /// How many seconds a browser may keep the answer to a preflight.
    pub max_age: u64,
}

/// Whose scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// `["*"]`: everybody's.
    Any,
    /// Those of one of these. At least one.
    Listed(Vec<Origin>),
}

/// An origin of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `https://app.example.com`, as browsers write it.
    Exact(Box<str>),
    /// `https://*.example.com`: all names below, at any depth.
    Below {
        /// `https://`.
        scheme: Box<str>,
        /// `.example.com`, with a port if there is one.
        suffix: Box<str>,
    },
}

/// Which fields a script may send beside those that every script may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHeaders {
    /// `["*"]`: whatever it asks for.
    Asked,
    /// These; an empty value: none.
    Listed(HeaderValue),
}

impl Origins {
    /// Whether scripts of `origin` are meant. `null`, which any site can send, is never listed.
    pub fn include(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(listed) => listed.iter().any(|one| one.matches(origin)),
        }
    }
}

impl Origin {
    fn matches(&self, origin: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact.as_bytes() == origin,
            Self::Below { scheme, suffix } => {
                let rest = origin.strip_prefix(scheme.as_bytes());
                let name = rest.and_then(|rest| rest.strip_suffix(suffix.as_bytes()));
                name.is_some_and(|name| !name.is_empty() && name.iter().all(|byte| is_of_name(*byte)))
            }
        }
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_holds_for_names_below_and_nothing_else() {
        let below = Origin::Below { scheme: "https://".into(), suffix: ".example.com".into() };
        for origin in ["https://a.example.com", "https://a.b-1.example.com"] {
            assert!(below.matches(origin.as_bytes()), "{origin}");
        }
        for origin in [
            "https://example.com",
            "https://.example.com",
            "http://a.example.com",
            "https://aexample.com",
            "https://a.example.com:8443",
            "https://a.example.com.evil.net",
            "https://evil.net/.example.com",
            "https://evil.net:1.example.com",
            "https://evil@a.example.com",
            "null",
            "",
        ] {
            assert!(!below.matches(origin.as_bytes()), "{origin}");
        }
    }
}
