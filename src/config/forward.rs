//! The keys of an `[auth.NAME]` with `type = "forward"`.

use std::time::Duration;

use http::HeaderName;
use http::uri::PathAndQuery;
use rustix::rand::{GetRandomFlags, getrandom};

use super::report::quoted;
use super::service_url;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::auth::fetch::ServiceTarget;
use crate::auth::forward::{ForwardAuth, ForwardSettings};
use crate::http1::name::{Name, claims_consumer};
use crate::limit::units::Micros;
use crate::plan::Endpoint;

/// The default and the maximum of `timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum of `cache`.
const MAX_CACHE: Duration = Duration::from_secs(3600);
/// The maximum number of names in `headers` and in `cache_by`.
const MAX_NAMES: usize = 32;
const ON_ERROR: [(&str, bool); 2] = [("deny", false), ("allow", true)];
const HELP: &str = "write `http://HOST:PORT/PATH`, or `https://`";

/// Reads all keys but those that auths of any type have. `None` if they have faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<ForwardAuth> {
    let target = table.require("url", "\"http://127.0.0.1:4181/check\"", |value| target(&value));
    let timeout = table.or("timeout", DEFAULT_TIMEOUT, |value| bounded(&value, MAX_TIMEOUT));
    let cache = table.or("cache", Duration::ZERO, |value| match value.whole_text() {
        Some("0s") => Some(Duration::ZERO),
        _ => bounded(&value, MAX_CACHE),
    });
    let cache_by = table.or("cache_by", Vec::new(), |value| names(&value));
    let headers = table.or("headers", Vec::new(), |value| names(&value));
    let field = |value: ConfigValue<'_>| value.text()?.parse("a field of the answer", field);
    let name = table.optional("name", field);
    let tier = table.optional("tier", field);
    let allows_on_error = table.or("on_error", false, |value| value.choice(&ON_ERROR));
    let mut secret = [0; 16];
    if getrandom(&mut secret, GetRandomFlags::empty()).is_err() {
        table.reader().fault(table.span(), "the system has no random numbers", "look at `/dev/urandom`");
        return None;
    }
    let settings = ForwardSettings {
        target: target?,
        timeout,
        cache: Micros(u64::try_from(cache.as_micros()).unwrap_or(u64::MAX)),
        cache_by: cache_by.into(),
        headers: headers.into(),
        name,
        tier,
        allows_on_error,
    };
    Some(ForwardAuth::new(settings, secret))
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

fn names(value: &ConfigValue<'_>) -> Option<Vec<HeaderName>> {
    let names = value.some_of(|item| item.text()?.parse("a header", header))?;
    if names.len() > MAX_NAMES {
        value.fault("these are too many headers", format!("name at most {MAX_NAMES}"));
    }
    Some(names)
}

fn header(text: &str) -> Result<HeaderName, SyntaxError> {
    let name = HeaderName::try_from(text).map_err(|_| {
        SyntaxError::new(format!("{} is no name of a header", quoted(text)), "write `x-user`")
    })?;
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
        || SyntaxError::new(format!("{} is no field of an answer", quoted(text)), "write `header:x-user`");
    let name = text.strip_prefix("header:").ok_or_else(unknown)?;
    HeaderName::try_from(name).map_err(|_| unknown())
}
