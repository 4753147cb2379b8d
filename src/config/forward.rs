//! The keys of an `[auth.NAME]` with `type = "forward"`.

use std::time::Duration;

use http::HeaderName;
use http::uri::PathAndQuery;

use super::jwt::TOKENS;
use super::keys::{Schema, choice, count, duration, flag, keys};
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

keys! {
    /// The keys of `type = "forward"`.
    pub(super) FORWARD: ForwardKeys = "type = \"forward\"" {
        /// forward: the http:// or https:// URL of the service, which is asked with GET. 2xx lets a request
        /// through; any other answer goes to the client.
        url = Schema::Name, example "\"http://127.0.0.1:4181/check\"";
        /// forward: how long the service may take, at most 60s.
        timeout: Duration = duration() => Duration::from_secs(1);
        /// forward: how long a 2xx is remembered, at most 1h. Default "0s": it is not.
        cache = Schema::Text;
        /// forward: the maximum number of questions at once. Requests beyond it get 503, also with on_error =
        /// "allow".
        max_in_flight: usize = count(1, 100_000) => 100;
        /// forward: the cookies that are credentials, for `failures`. With them (or with `authorization`) an answer
        /// of 302, 303 or 307 is a refused credential, too. Default: any cookie, for 401 and 403 only.
        credential_cookies = Schema::List((0, 32), &Schema::Text);
        /// forward: the log-in page, a URL or a path, such as "https://login.example.com/oauth2/start?rd={url}". A
        /// browser that asks for a page is redirected there instead of getting a 401; {url} is the escaped URL that
        /// it asked for.
        sign_in = Schema::Name;
        /// forward: whether the client gets the cookies of a 2xx.
        set_cookie: bool = flag() => false;
        /// forward: headers of the request that the answer depends on, beside method, host, path, query, client,
        /// `authorization` and `cookie`. Default: none.
        cache_by = Schema::List((0, 32), &Schema::Text);
        /// forward: headers of a 2xx that the backend gets. Those of clients are dropped on all routes. Default:
        /// none.
        headers = Schema::List((0, 32), &Schema::Text);
        /// forward: while the service cannot be reached or takes too long, requests get 503, or pass as anonymous.
        on_error: bool = choice(&ON_ERROR) => false;
    }
}

/// The maximum of `timeout`.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum of `cache`.
const MAX_CACHE: Duration = Duration::from_secs(3600);
/// The maximum number of names in `headers`, `cache_by` and `credential_cookies`.
const MAX_NAMES: usize = 32;
pub(super) const ON_ERROR: [(&str, bool); 2] = [("deny", false), ("allow", true)];
const HELP: &str = "write `http://HOST:PORT/PATH`, or `https://`";

/// Reads all keys but those that auths of any type have. `None` if they have faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<ForwardSettings> {
    let target = table.require(&FORWARD.url, |value| target(&value));
    let timeout = table.or_default(&FORWARD.timeout, |value| bounded(&value, MAX_TIMEOUT));
    let max_in_flight = table.value(&FORWARD.max_in_flight);
    let cache = table.or(&FORWARD.cache, Duration::ZERO, |value| match value.whole_text() {
        Some("0s") => Some(Duration::ZERO),
        _ => bounded(&value, MAX_CACHE),
    });
    let cache_by = table.or(&FORWARD.cache_by, Vec::new(), |value| names(&value, "a header", header));
    let credential_cookies =
        table.optional(&FORWARD.credential_cookies, |value| names(&value, "a cookie", cookie));
    let headers = table.or(&FORWARD.headers, Vec::new(), |value| names(&value, "a header", header));
    let field = |value: ConfigValue<'_>| value.text()?.parse("a field of the answer", field);
    let name = table.optional(&TOKENS.name, field);
    let tier = table.optional(&TOKENS.tier, field);
    let sign_in = table.optional(&FORWARD.sign_in, |value| value.text()?.parse("a log-in page", sign_in));
    let sets_cookies = table.value(&FORWARD.set_cookie);
    let allows_on_error = table.value(&FORWARD.on_error);
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
