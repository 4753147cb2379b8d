//! The keys of an `[auth.NAME]` with `type = "forward"`.

use std::time::Duration;

use http::HeaderName;
use http::uri::PathAndQuery;

use super::report::quoted;
use super::service_url;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::auth::fetch::ServiceTarget;
use crate::auth::forward::ForwardSettings;
use crate::auth::forward::sign_in::SignIn;
use crate::http1::name::{Name, claims_consumer};
use crate::http1::syntax::is_token;
use crate::limit::units::Micros;
use crate::plan::Endpoint;

/// The default and the maximum of `timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum of `cache`.
const MAX_CACHE: Duration = Duration::from_secs(3600);
/// The default and the maximum of `max_in_flight`.
const DEFAULT_IN_FLIGHT: usize = 100;
const MAX_IN_FLIGHT: u64 = 100_000;
/// The maximum number of names in `headers`, `cache_by` and `credential_cookies`.
const MAX_NAMES: usize = 32;
const ON_ERROR: [(&str, bool); 2] = [("deny", false), ("allow", true)];
const HELP: &str = "write `http://HOST:PORT/PATH`, or `https://`";

/// Reads all keys but those that auths of any type have. `None` if they have faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<ForwardSettings> {
    let target = table.require("url", "\"http://127.0.0.1:4181/check\"", |value| target(&value));
    let timeout = table.or("timeout", DEFAULT_TIMEOUT, |value| bounded(&value, MAX_TIMEOUT));
    let max_in_flight = table.or("max_in_flight", DEFAULT_IN_FLIGHT, |value| {
        value.whole(1..=MAX_IN_FLIGHT).and_then(|count| count.try_into().ok())
    });
    let cache = table.or("cache", Duration::ZERO, |value| match value.whole_text() {
        Some("0s") => Some(Duration::ZERO),
        _ => bounded(&value, MAX_CACHE),
    });
    let cache_by = table.or("cache_by", Vec::new(), |value| names(&value, "a header", header));
    let credential_cookies = table.optional("credential_cookies", |value| names(&value, "a cookie", cookie));
    let headers = table.or("headers", Vec::new(), |value| names(&value, "a header", header));
    let field = |value: ConfigValue<'_>| value.text()?.parse("a field of the answer", field);
    let name = table.optional("name", field);
    let tier = table.optional("tier", field);
    let sign_in = table.optional("sign_in", |value| value.text()?.parse("a log-in page", sign_in));
    let sets_cookies = table.or("set_cookie", false, |value| value.boolean());
    let allows_on_error = table.or("on_error", false, |value| value.choice(&ON_ERROR));
    Some(ForwardSettings {
        target: target?,
        timeout,
        max_in_flight,
        cache: Micros(u64::try_from(cache.as_micros()).unwrap_or(u64::MAX)),
        cache_by: cache_by.into(),
        credential_cookies: credential_cookies.map(Into::into),
        headers: headers.into(),
        name,
        tier,
        sign_in,
        sets_cookies,
        allows_on_error,
    })
}

fn target(value: &ConfigValue<'_>) -> Option<ServiceTarget> {
    let text = value.text()?;
    let url = text.parse("the URL of a service", |text| service_url::parse(text, "service", HELP))?;
    let path = url.path.clone().unwrap_or(PathAndQuery::from_static("/"));
    let Endpoint { host, port, authority, tls, .. } = url.trusted(value)?;
    let default = if tls.is_some() { ":443" } else { ":80" };
    let authority = authority.strip_suffix(default).unwrap_or(&authority).into();
    Some(ServiceTarget { host, port, authority, tls, path })
}

fn bounded(value: &ConfigValue<'_>, max: Duration) -> Option<Duration> {
    let span = value.duration()?;
    if span > max {
        value.fault("this is too long", format!("use at most `{}s`", max.as_secs()));
        return None;
    }
    Some(span)
}

fn names<T>(
    value: &ConfigValue<'_>,
    noun: &'static str,
    parse: fn(&str) -> Result<T, SyntaxError>,
) -> Option<Vec<T>> {
    let names = value.some_of(|item| item.text()?.parse(noun, parse))?;
    if names.len() > MAX_NAMES {
        value.fault("these are too many names", format!("name at most {MAX_NAMES}"));
    }
    Some(names)
}

fn cookie(text: &str) -> Result<String, SyntaxError> {
    if !text.is_empty() && text.bytes().all(is_token) {
        return Ok(text.to_owned());
    }
    Err(SyntaxError::new(
        format!("{} is not a cookie name", quoted(text)),
        "write the name alone, such as `_oauth2_proxy`",
    ))
}

/// A URL, or a path of the gateway itself.
fn sign_in(text: &str) -> Result<SignIn, SyntaxError> {
    const EXAMPLE: &str =
        "write `https://login.example.com/oauth2/start?rd={url}`, or a path such as `/login?rd={url}`";
    let fault = |what: &str| Err(SyntaxError::new(format!("{} {what}", quoted(text)), EXAMPLE));
    let (before, query) = text.split_once('?').unwrap_or((text, ""));
    let is_path = before.starts_with('/') && !before.starts_with("//");
    let is_url = ["https://", "http://"].iter().any(|scheme| {
        before.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    });
    if !(is_path || is_url) || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return fault("is not the address of a log-in page");
    }
    if before.contains(['{', '}']) || query.replace(SignIn::URL, "").contains(['{', '}']) {
        return fault("has braces elsewhere than in `{url}` in its query");
    }
    Ok(SignIn::new(text))
}

fn header(text: &str) -> Result<HeaderName, SyntaxError> {
    let name = HeaderName::try_from(text)
        .map_err(|_| SyntaxError::new(format!("{} is not a header name", quoted(text)), "write `x-user`"))?;
    let is_own =
        claims_consumer(name.as_str().as_bytes()) || Name::of(name.as_str().as_bytes()) != Name::Other;
    if is_own {
        return Err(SyntaxError::new(
            format!("the gateway itself reads or writes the header {}", quoted(text)),
            "name another header, such as `x-user`",
        ));
    }
    Ok(name)
}

/// `header:NAME`.
fn field(text: &str) -> Result<HeaderName, SyntaxError> {
    let unknown =
        || SyntaxError::new(format!("{} is not a field of an answer", quoted(text)), "write `header:x-user`");
    let name = text.strip_prefix("header:").ok_or_else(unknown)?;
    HeaderName::try_from(name).map_err(|_| unknown())
}
