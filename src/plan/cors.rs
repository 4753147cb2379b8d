//! `cors` of a route: the sites with scripts that may read its responses (the Fetch standard, "CORS protocol").

use http::HeaderValue;

/// The gateway's headers that scripts may read; the route names others.
pub const EXPOSED: &str = "retry-after, ratelimit-policy, ratelimit, x-ratelimit-limit, x-ratelimit-remaining, \
                           x-ratelimit-reset, x-request-id";

/// `cors` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The allowed origins.
    pub origins: Origins,
    /// `access-control-allow-methods`.
    pub methods: HeaderValue,
    /// The headers that a script may send.
    pub headers: AllowedHeaders,
    /// `access-control-expose-headers`.
    pub exposed: HeaderValue,
    /// Whether credentials such as cookies are allowed.
    pub credentials: bool,
    /// How many seconds a browser may cache the response to a preflight.
    pub max_age: u64,
}

/// The allowed origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// `["*"]`: all origins.
    Any,
    /// The listed origins. At least one.
    Listed(Vec<Origin>),
}

/// An origin of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `https://app.example.com`, as browsers send it.
    Exact(Box<str>),
    /// `https://*.example.com`: all subdomains, at any depth.
    Below {
        /// `https://`.
        scheme: Box<str>,
        /// `.example.com`, with a port if there is one.
        suffix: Box<str>,
    },
}

/// The headers that a script may send beside those that every script may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHeaders {
    /// `["*"]`: all requested headers.
    Asked,
    /// These; an empty value: none.
    Listed(HeaderValue),
}

impl Origins {
    /// Whether `origin` is allowed. `null`, which any site can send, is never listed.
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
