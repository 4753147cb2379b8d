//! The URL of a service that the gateway itself calls: `http://HOST[:PORT][/PATH]`, or the same with `https`.

use http::uri::PathAndQuery;

use super::endpoint::authority;
use super::report::quoted;
use super::text::SyntaxError;
use super::tls;
use super::value::ConfigValue;
use crate::plan::Endpoint;

/// A URL in parts.
pub(super) struct ServiceUrl {
    /// Its TLS settings are still to be set.
    pub(super) server: Endpoint,
    /// Whether it uses TLS.
    pub(super) secure: bool,
    /// `None`: none, or `/`.
    pub(super) path: Option<PathAndQuery>,
}

/// Parses the URL of a service called `noun`. `help` gives its form.
pub(super) fn parse(text: &str, noun: &str, help: &'static str) -> Result<ServiceUrl, SyntaxError> {
    let secure = text.starts_with("https://");
    let (scheme, default_port) = if secure { ("https://", 443) } else { ("http://", 80) };
    let Some(rest) = text.strip_prefix(scheme) else {
        return Err(SyntaxError::new(format!("{} is not the URL of a {noun}", quoted(text)), help));
    };
    let (authority_text, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority_text.contains('@') {
        // The text is not repeated: the part before the `@` may be a password.
        let help =
            "leave out what stands before the `@`, and use `headers = { authorization = \"${NAME}\" }`";
        return Err(SyntaxError::new(format!("the URL of the {noun} has a user"), help));
    }
    let server = authority(authority_text, default_port)?;
    let path = match path {
        "" | "/" => None,
        path => {
            let parsed = PathAndQuery::try_from(path).ok();
            let sound = parsed.filter(|_| path.starts_with('/') && !path.contains('#'));
            let faulty = || SyntaxError::new(format!("{} has no good path", quoted(text)), help);
            Some(sound.ok_or_else(faulty)?)
        }
    };
    Ok(ServiceUrl { server, secure, path })
}

impl ServiceUrl {
    /// The server, with trust in the system's authorities if it uses TLS. `None` if no certificate can be for its name.
    pub(super) fn trusted(self, value: &ConfigValue<'_>) -> Option<Endpoint> {
        let Self { server, secure, .. } = self;
        if !secure {
            return Some(server);
        }
        let trust = tls::client(None, value, &[b"http/1.1"])?;
        if trust.name(&server.host).is_none() {
            value.fault(
                format!("no certificate can be for the name {}", quoted(&server.host)),
                "write the name that its certificate carries",
            );
            return None;
        }
        Some(Endpoint { tls: Some(trust), ..server })
    }
}
