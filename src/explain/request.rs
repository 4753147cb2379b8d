//! The request that `tollgate explain` is asked about.

use std::net::{IpAddr, Ipv4Addr};

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method};

use crate::http1::fields::FieldList;
use crate::route::folding::PathMatching;
use crate::route::path::{Path, PathFault};
use crate::route::pattern::bare_host;

/// A request as a person describes it, checked as the gateway checks one.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    pub(super) method: Method,
    /// The URL as given, without scheme and authority.
    pub(super) target: String,
    /// As routes compare it; empty if none was named.
    pub(super) host: String,
    /// As given.
    path: String,
    pub(super) query: Option<String>,
    pub(super) headers: FieldList,
    /// Who connects to the gateway.
    pub(super) peer: IpAddr,
}

/// What is wrong with the request, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExplainFault {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: String,
}

impl ExplainRequest {
    /// Reads a method, a URL (`http://host/path?query` or only `/path?query`) and fields (`name: value`). `ip` is the
    /// peer: who connects to the gateway, which is the client unless it is a trusted proxy; 127.0.0.1 if not given.
    ///
    /// # Errors
    /// Whatever is no request that the gateway would route; it would answer most of them 400, CONNECT and TRACE 405.
    pub fn new(
        method: &str,
        url: &str,
        headers: &[String],
        ip: Option<IpAddr>,
    ) -> Result<Self, ExplainFault> {
        let method = parse_method(method)?;
        let (authority, target) = split_url(url)?;
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let path = if path.is_empty() { "/" } else { path };
        Path::parse(path, PathMatching::Strict).or_else(|cause| not_a_path(url, cause))?;
        if query.is_some_and(|query| !query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')) {
            return fault(
                format!("the query of `{}` contains what is not plain ASCII", url.escape_debug()),
                "percent-encode it, and leave a fragment (`#…`) away: clients never send it",
            );
        }
        let headers = parse_headers(headers, authority)?;
        let host = headers
            .fields()
            .first(&HOST)
            .and_then(|host| std::str::from_utf8(host).ok())
            .map_or_else(String::new, |host| bare_host(host).into());
        Ok(Self {
            method,
            target: query.map_or_else(|| path.into(), |query| format!("{path}?{query}")),
            host,
            path: path.to_owned(),
            query: query.map(str::to_owned),
            headers,
            peer: ip.unwrap_or(Ipv4Addr::LOCALHOST.into()).to_canonical(),
        })
    }

    /// The path as a gateway with this matching reads it.
    ///
    /// # Errors
    /// The gateway would answer 400.
    pub(super) fn path(&self, matching: PathMatching) -> Result<Path<'_>, ExplainFault> {
        Path::parse(&self.path, matching).or_else(|cause| not_a_path(&self.target, cause))
    }
}

fn parse_method(text: &str) -> Result<Method, ExplainFault> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => fault(
            format!("`{text}` is never routed: it is answered 405"),
            "ask about another method, such as `GET`",
        ),
        Ok(method) if !text.bytes().any(|byte| byte.is_ascii_lowercase()) => Ok(method),
        Ok(_) => fault(
            format!("the method `{text}` is not in capitals, and would be answered 400"),
            format!("write `{}`", text.to_ascii_uppercase()),
        ),
        Err(_) => fault(format!("`{}` is not a method", text.escape_debug()), "write one such as `GET`"),
    }
}

/// Authority, if any, and the rest.
fn split_url(url: &str) -> Result<(Option<&str>, &str), ExplainFault> {
    if url.starts_with('/') {
        return Ok((None, url));
    }
    let Some((_, rest)) = url.split_once("://").filter(|(scheme, _)| is_http(scheme)) else {
        return fault(
            format!("`{}` is neither a URL nor a path", url.escape_debug()),
            "write `http://host/path`, or the path alone: `/path`",
        );
    };
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    check_authority(authority)?;
    Ok((Some(authority), target))
}

fn is_http(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn check_authority(text: &str) -> Result<(), ExplainFault> {
    match text.parse::<Authority>() {
        Ok(authority) if !text.contains('@') && !authority.host().is_empty() => Ok(()),
        _ => fault(
            format!("`{}` is not `host` or `host:port`", text.escape_debug()),
            "write one such as `api.example.com`",
        ),
    }
}

fn not_a_path<T>(url: &str, cause: PathFault) -> Result<T, ExplainFault> {
    let help = match cause {
        PathFault::Forbidden(b'#') => "leave a fragment (`#…`) away: clients never send it",
        PathFault::DotParameters => "leave the `;` away, or escape it: `%3B`",
        PathFault::AboveRoot => "leave the `..` away that has nothing before it",
        PathFault::NotAbsolute | PathFault::Forbidden(_) | PathFault::BadEscape | PathFault::Nul => {
            "percent-encode what is not plain: a blank is `%20`, the percent sign `%25`"
        }
    };
    fault(format!("`{}` is refused with 400: {cause}", url.escape_debug()), help)
}

fn parse_headers(lines: &[String], authority: Option<&str>) -> Result<FieldList, ExplainFault> {
    let mut headers = FieldList::default();
    for line in lines {
        let (name, value) = parse_header(line)?;
        if name == HOST && headers.fields().first(&HOST).is_some() {
            return fault("there are two Host fields", "give one: a request with two is answered 400");
        }
        headers.push(&name, value.as_bytes());
    }
    let host = headers.fields().first(&HOST).map(|host| String::from_utf8_lossy(host).into_owned());
    match (host, authority) {
        (None, None) => {}
        (None, Some(authority)) => {
            headers.push(&HOST, parse_header(&format!("host: {authority}"))?.1.as_bytes());
        }
        (Some(host), None) => check_authority(&host)?,
        (Some(host), Some(authority)) if host.eq_ignore_ascii_case(authority) => {}
        (Some(host), Some(authority)) => {
            return fault(
                format!("the URL names the host `{authority}`, but the field Host `{host}`"),
                "give one of them: a request with both is answered 400",
            );
        }
    }
    Ok(headers)
}

fn parse_header(line: &str) -> Result<(HeaderName, HeaderValue), ExplainFault> {
    let parsed = line.split_once(':').and_then(|(name, value)| {
        let name = HeaderName::try_from(name).ok()?;
        Some((name, HeaderValue::from_bytes(value.trim_ascii().as_bytes()).ok()?))
    });
    match parsed {
        Some(header) => Ok(header),
        None => fault(
            format!("`{}` is not a field", line.escape_debug()),
            "write `name: value`, as in `-H 'x-api-key: k1'`",
        ),
    }
}

fn fault<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, ExplainFault> {
    Err(ExplainFault { message: message.into(), help: help.into() })
}
