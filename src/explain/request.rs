//! The request that `tollgate explain` explains, as a client would send it.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;

use crate::http1::fields::FieldSpan;
use crate::http1::request::{RequestError, RequestHead};
use crate::plan::decision::{CALL_OF_DESCRIPTORS, CalledDescriptor, WrittenDescriptor, read_descriptors};
use crate::plan::{Listener, Plan};
use crate::route::content::RequestContent;

/// A request as described by a user, written as the head that a client would send. The gateway's own parser reads it.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// The head in HTTP/1.1 syntax. Without a host it is one of HTTP/1.0, which needs none.
    text: Vec<u8>,
    /// The text for method and target where they cannot be read.
    pub(super) title: String,
    /// The address that connects to the gateway.
    pub(super) peer: IpAddr,
    /// The name of the listener that it comes at; `None`: the first one.
    pub(super) listener: Option<String>,
    /// Whether the scheme of the URL is https; `None`: it is a path alone, which has no scheme.
    is_https: Option<bool>,
    /// The body; unknown, unless it is given.
    pub(super) content: RequestContent,
    /// The call, if it is one on descriptors: then the head says nothing.
    pub(super) call: Option<DescribedCall>,
}

/// A call on descriptors, as typed.
#[derive(Clone, Debug)]
pub(super) struct DescribedCall {
    /// The domain; may be empty.
    pub(super) domain: String,
    /// The entries and the hits of each descriptor.
    pub(super) descriptors: Vec<WrittenDescriptor>,
}

/// The fault of a described request, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExplainFault {
    /// The fault.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl ExplainRequest {
    /// The same request, at the listener of this name.
    #[must_use]
    pub fn at_listener(self, listener: Option<String>) -> Self {
        Self { listener, ..self }
    }

    /// The same request with this body, as far as routes and limits of the plan read it.
    #[must_use]
    pub fn with_body(self, body: &Bytes, plan: &Plan) -> Self {
        let of_routes = plan.routes.iter().flat_map(|route| &route.json_pointers);
        let pointers: Vec<_> = plan.body_pointers().iter().chain(of_routes).cloned().collect();
        let mut spans = Vec::new();
        let content = match self.head(&mut spans) {
            Ok(head) => RequestContent::new(head.fields, body.clone(), &pointers),
            Err(_) => RequestContent::Unknown,
        };
        Self { content, ..self }
    }

    /// Reads a method, a URL (`http://host/path?query` or only `/path?query`) and headers (`name: value`). `ip` is the
    /// peer's address, which is the client unless it is a trusted proxy; 127.0.0.1 if not given.
    ///
    /// # Errors
    ///
    /// The parts are no head that a client could send. A request that the gateway refuses is explained, and no error.
    pub fn new(
        method: &str,
        url: &str,
        headers: &[String],
        ip: Option<IpAddr>,
    ) -> Result<Self, ExplainFault> {
        let SplitUrl { is_https, authority, target } = split_url(url)?;
        let peer = ip.unwrap_or(Ipv4Addr::LOCALHOST.into()).to_canonical();
        if method == CALL_OF_DESCRIPTORS {
            return Self::of_call(authority.unwrap_or_default(), target, headers, peer);
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        let mut lines = String::new();
        let mut host = None;
        for line in headers {
            let (name, value) = split_header(line)?;
            if name.eq_ignore_ascii_case("host") {
                host = Some(value);
            }
            lines.extend([name, ": ", value, "\r\n"]);
        }
        // A host beside that of the URL is written twice, which the parser refuses.
        let of_url =
            authority.filter(|authority| !host.is_some_and(|host| host.eq_ignore_ascii_case(authority)));
        let version = if host.or(authority).is_some() { "1.1" } else { "1.0" };
        let of_url = of_url.map_or_else(String::new, |authority| format!("host: {authority}\r\n"));
        let text = format!("{method} {slash}{target} HTTP/{version}\r\n{of_url}{lines}\r\n").into_bytes();
        let title = format!("{method} {slash}{target}").escape_debug().to_string();
        if method.contains(is_line_end) || target.contains(is_line_end) {
            return fault(format!("`{title}` has a line end"), "percent-encode it: `%0A`");
        }
        let content = RequestContent::Unknown;
        Ok(Self { text, title, peer, listener: None, is_https, content, call: None })
    }

    fn of_call(domain: &str, target: &str, headers: &[String], peer: IpAddr) -> Result<Self, ExplainFault> {
        if !headers.is_empty() {
            let help = "write what Envoy sends of it as an entry of a descriptor";
            return fault("a call on descriptors has no headers of a request", help);
        }
        let title = format!("{CALL_OF_DESCRIPTORS} {domain}{target}").escape_debug().to_string();
        let Some(descriptors) = read_descriptors(target) else {
            let help = "write `NAME=VALUE`, with `,` between entries, `;` between descriptors, and `*HITS` behind one: \
                 `http://shop/generic_key=search,remote_address=192.0.2.7*10`";
            return fault(format!("`{title}` has no list of descriptors"), help);
        };
        let call = Some(DescribedCall { domain: domain.to_owned(), descriptors });
        let (text, content) = (b"POST / HTTP/1.0\r\n\r\n".to_vec(), RequestContent::Unknown);
        Ok(Self { text, title, peer, listener: None, is_https: None, content, call })
    }

    /// The head in HTTP/1.1 syntax.
    pub fn head_text(&self) -> &[u8] {
        &self.text
    }

    /// The address of the peer.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Whether the peer uses TLS: as the scheme of the URL says, and of a path alone, as its listener does.
    pub fn uses_tls(&self, plan: &Plan) -> bool {
        let listeners = || plan.server.client_listeners();
        let is_named = |listener: &&Listener| listener.name.as_deref() == self.listener.as_deref();
        let named = self.listener.as_ref().and_then(|_| listeners().find(is_named));
        let listener = || named.or_else(|| listeners().next());
        self.is_https.unwrap_or_else(|| listener().is_some_and(|listener| listener.tls))
    }

    /// Whether it was described without scheme and host.
    pub(super) fn is_path_alone(&self) -> bool {
        self.is_https.is_none()
    }

    /// Method and target, on one line.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The head, as the gateway reads it.
    ///
    /// # Errors
    ///
    /// The gateway refuses it.
    pub(super) fn head<'r>(&'r self, spans: &'r mut Vec<FieldSpan>) -> Result<RequestHead<'r>, RequestError> {
        RequestHead::parse(&self.text, spans)
    }
}

impl DescribedCall {
    /// Its descriptors, each with its rule.
    pub(super) fn called<'p>(&self, plan: &'p Plan) -> Vec<CalledDescriptor<'p>> {
        let domain = self.domain.as_bytes();
        self.descriptors.iter().map(|written| written.called(plan, domain)).collect()
    }
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\r' | '\n')
}

/// A URL, or a path without scheme and authority.
struct SplitUrl<'u> {
    is_https: Option<bool>,
    authority: Option<&'u str>,
    target: &'u str,
}

fn split_url(url: &str) -> Result<SplitUrl<'_>, ExplainFault> {
    if url.starts_with('/') {
        return Ok(SplitUrl { is_https: None, authority: None, target: url });
    }
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_http(scheme)) else {
        return fault(
            format!("`{}` is neither a URL nor a path", url.escape_debug()),
            "write `http://host/path`, or the path alone: `/path`",
        );
    };
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.is_empty() || authority.contains(is_line_end) {
        return fault(format!("`{}` names no host", url.escape_debug()), "write `http://host/path`");
    }
    let is_https = Some(scheme.eq_ignore_ascii_case("https"));
    Ok(SplitUrl { is_https, authority: Some(authority), target })
}

fn is_http(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn split_header(line: &str) -> Result<(&str, &str), ExplainFault> {
    match line.split_once(':') {
        Some((name, value)) if !line.contains(is_line_end) => Ok((name, value.trim_matches([' ', '\t']))),
        _ => fault(
            format!("`{}` is not a header", line.escape_debug()),
            "write `name: value`, as in `-H 'x-api-key: k1'`",
        ),
    }
}

fn fault<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, ExplainFault> {
    Err(ExplainFault { message: message.into(), help: help.into() })
}
