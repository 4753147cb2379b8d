//! Host patterns: one host by name or address, or all subdomains of a domain.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

use super::{PatternFault, fault};

/// `api.example.com`, `192.0.2.1`, `[2001:db8::1]`, or `*.example.com`: one label or more in front of `example.com`,
/// but not `example.com` itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host: lower case, without final dot, an IPv6 address in brackets and in its canonical form (RFC 5952).
    Exact(Box<str>),
    /// Every host that ends with this suffix, which begins with a dot, and has at least one character before it.
    Below(Box<str>),
}

impl HostPattern {
    /// Parses a host as written in the file; compared lower-case, without final dot.
    ///
    /// # Errors
    ///
    /// Anything but a host name of at most 253 bytes (RFC 1035 §2.3.4; `_` is allowed, as resolvers do), an IP address,
    /// or one of those names after `*.`; in particular a port, a scheme, and a name that is not ASCII.
    pub fn parse(text: &str) -> Result<Self, PatternFault> {
        if text == "*" {
            return fault("the host `*` has no effect", "leave `hosts` out to match any host");
        }
        if let Some(address) = ipv6(text) {
            return Ok(Self::Exact(format!("[{address}]").into()));
        }
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("*.").unwrap_or(&lower);
        let name = name.strip_suffix('.').unwrap_or(name);
        check_name(text, name)?;
        Ok(if lower.starts_with("*.") {
            Self::Below(format!(".{name}").into())
        } else {
            Self::Exact(name.into())
        })
    }

    /// Whether a host in the form of [`bare_host`] matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => host == &**name,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }

    /// Larger for the more specific of two patterns that match one host.
    pub(in crate::route) fn specificity(&self) -> usize {
        match self {
            Self::Exact(_) => usize::MAX,
            Self::Below(suffix) => suffix.len(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// The host of an authority (`host`, `host:port`, `[v6]:port`; no userinfo) in the form that patterns compare: lower
/// case, without port and final dot, an IPv6 address in brackets and in its canonical form. Borrows if it was sent in
/// this form.
pub fn bare_host(authority: &str) -> Cow<'_, str> {
    let end = authority.bytes().position(|byte| !IS_PLAIN[byte as usize]).unwrap_or(authority.len());
    let (name, port) = authority.split_at(end);
    match port.as_bytes() {
        [] => name.strip_suffix('.').unwrap_or(name).into(),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            name.strip_suffix('.').unwrap_or(name).into()
        }
        _ => normal_host(authority),
    }
}

/// The authority in the form that all who decide about a request are shown, and its backend, too: the host as `bare`, which
/// is its [`bare_host`], and the port unless it is the default of the scheme.
#[inline]
pub fn normal_authority<'a>(authority: &'a str, bare: &str, secure: bool) -> Cow<'a, str> {
    // Most requests name the bare host, which is borrowed from the authority.
    if std::ptr::eq(authority, bare) {
        return Cow::Borrowed(authority);
    }
    with_normal_port(authority, bare, secure)
}

fn with_normal_port<'a>(authority: &'a str, bare: &str, secure: bool) -> Cow<'a, str> {
    if authority == bare {
        return Cow::Borrowed(authority);
    }
    let (_, port) = authority.rsplit_once(':').unwrap_or_default();
    let default = if secure { 443 } else { 80 };
    match port.parse::<u16>() {
        Ok(port) if port == default => Cow::Owned(bare.to_owned()),
        // The usual form, which is not copied.
        Ok(_) if !port.starts_with(['0', '+']) && is_joined(authority, bare, port) => {
            Cow::Borrowed(authority)
        }
        Ok(port) => Cow::Owned(format!("{bare}:{port}")),
        // Not a port: too large, or none. What follows the colon of an address is not a number of digits alone.
        Err(_) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Cow::Owned(format!("{bare}:{port}"))
        }
        Err(_) => Cow::Owned(bare.to_owned()),
    }
}

/// Whether the authority is this host, a colon, and this port, which it ends with.
fn is_joined(authority: &str, host: &str, port: &str) -> bool {
    authority.len() == host.len() + 1 + port.len() && authority.starts_with(host)
}

/// The characters of nearly all names: no upper case, no brackets, no colon.
const IS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        table[byte as usize] = matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
        byte += 1;
    }
    table
};

fn normal_host(authority: &str) -> Cow<'_, str> {
    let host = match authority.rfind(']') {
        Some(bracket) => &authority[..=bracket],
        None => authority.split(':').next().unwrap_or(authority),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.strip_prefix('[').and_then(|_| ipv6(host)) {
        Some(address) => {
            let canonical = format!("[{address}]");
            if canonical == host { Cow::Borrowed(host) } else { Cow::Owned(canonical) }
        }
        None if host.bytes().any(|byte| byte.is_ascii_uppercase()) => Cow::Owned(host.to_ascii_lowercase()),
        None => Cow::Borrowed(host),
    }
}

/// An IPv6 address, in brackets or not.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

fn check_name(text: &str, name: &str) -> Result<(), PatternFault> {
    const EXAMPLE: &str = "write a name such as `api.example.com`, or `*.example.com` for all names below it";
    if text.contains("://") || text.contains('/') {
        return fault(format!("the host `{text}` is a URL"), EXAMPLE);
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return fault(
            format!("the host `{text}` has a port"),
            format!("write `{host}`: hosts are compared without port"),
        );
    }
    if !text.is_ascii() {
        return fault(
            format!("the host `{text}` is not ASCII"),
            "write it as clients send it, in its `xn--…` form",
        );
    }
    if name.contains('*') {
        return fault(format!("`*` in the host `{text}` is not a whole label in front"), EXAMPLE);
    }
    if name.len() > 253 || !name.split('.').all(is_label) {
        return fault(format!("`{text}` is not a host name"), EXAMPLE);
    }
    Ok(())
}

fn is_label(label: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&label.len()) && label.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_of_an_authority_are_not_copied() {
        let normal =
            |authority, secure| normal_authority(authority, &bare_host(authority), secure).into_owned();
        for usual in ["a.test", "a.test:8080", "[::1]:81", "192.0.2.1:1"] {
            let borrowed = normal_authority(usual, &bare_host(usual), false);
            assert!(matches!(borrowed, Cow::Borrowed(same) if same == usual), "{usual}");
        }
        for (other, expected) in [
            ("a.test:80", "a.test"),
            ("A.test:8080", "a.test:8080"),
            ("a.test.:8080", "a.test:8080"),
            ("a.test:08080", "a.test:8080"),
            ("a.test:", "a.test"),
            ("a.test:443", "a.test:443"),
            ("[0::1]:81", "[::1]:81"),
        ] {
            assert_eq!(normal(other, false), expected);
        }
        assert_eq!(normal("a.test:443", true), "a.test");
    }
}
