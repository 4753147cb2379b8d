//! `cors` of a route.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use super::conditions::{distinct, method};
use super::headers;
use super::headers::FIELD_NAMES;
use super::keys::{SOME, Schema, duration, flag, keys};
use super::report::quoted;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::plan::cors::{AllowedHeaders, Cors, EXPOSED, Origin, Origins};

keys! {
    /// Which sites' scripts may read the answers. Preflights are answered here, never charged. Default: the
    /// backend's business.
    pub(super) CORS: CorsKeys = "cors" {
        /// As browsers write them, such as "https://app.example.com", "https://*.example.com" (all names below); or
        /// ["*"].
        origins = Schema::List(SOME, &Schema::Text), required "[\"https://app.example.com\"]";
        /// What scripts may use. Default: the route's methods, else GET, HEAD, POST, PUT, PATCH, DELETE.
        methods = Schema::List(SOME, &Schema::Text);
        /// Fields that scripts may send beside those that all may; ["*"]: any. Default: none.
        headers = Schema::Named(&FIELD_NAMES);
        /// Fields of answers that scripts may read beside retry-after, x-request-id and the rate-limit fields.
        /// Default: none.
        expose_headers = Schema::Named(&FIELD_NAMES);
        /// Whether cookies and the like may go along; not with origins = ["*"].
        credentials: bool = flag() => false;
        /// How long a browser may keep the answer to a preflight.
        max_age: Duration = duration() => Duration::from_secs(600);
    }
}

/// The methods for scripts if neither `cors` nor the route names any.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// Reads `cors` of a route that names these methods.
pub(super) fn read(value: &ConfigValue<'_>, route_methods: &[Method]) -> Option<Cors> {
    if !value.is_table() {
        let help =
            "write `cors = { origins = [\"https://app.example.com\"] }`; `[\"*\"]` stands for all sites";
        return value.mismatch("a table", help);
    }
    let mut table = value.table("`cors`")?;
    let origins = table.require(&CORS.origins, |value| origins(&value));
    let methods = table.or(&CORS.methods, route_methods.to_vec(), |value| distinct(&value, method));
    let headers = table.or(&CORS.headers, AllowedHeaders::Listed(listed("")), |value| allowed(&value));
    let exposed = table.or(&CORS.expose_headers, Vec::new(), |value| headers::names(&value, headers::any));
    let credentials = credentials(&mut table, origins.as_ref());
    let max_age = table.value(&CORS.max_age).as_secs();
    let is_sound = table.finish();
    let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
    let methods = if methods.is_empty() { METHODS.to_owned() } else { methods.join(", ") };
    let exposed = exposed.iter().fold(EXPOSED.to_owned(), |all, name| format!("{all}, {name}"));
    let (methods, exposed) = (listed(&methods), listed(&exposed));
    origins.filter(|_| is_sound).map(|origins| Cors {
        origins,
        methods,
        headers,
        exposed,
        credentials,
        max_age,
    })
}

/// Checked names, as the value of a header.
fn listed(names: &str) -> HeaderValue {
    HeaderValue::from_str(names).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn credentials(table: &mut ConfigTable<'_>, origins: Option<&Origins>) -> bool {
    table.or_default(&CORS.credentials, |value| {
        let credentials = value.boolean()?;
        if credentials && origins == Some(&Origins::Any) {
            let message = "`credentials` cannot be `true` for `origins = [\"*\"]`";
            value.fault(message, "name the origins: else every site could read what its visitors may see");
        }
        Some(credentials)
    })
}

fn origins(value: &ConfigValue<'_>) -> Option<Origins> {
    if is_any(value)? {
        return Some(Origins::Any);
    }
    distinct(value, origin).map(Origins::Listed)
}

fn allowed(value: &ConfigValue<'_>) -> Option<AllowedHeaders> {
    if is_any(value)? {
        return Some(AllowedHeaders::Asked);
    }
    let names = headers::names(value, headers::any)?;
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    Some(AllowedHeaders::Listed(listed(&names.join(", "))))
}

/// Whether the list is `["*"]`.
fn is_any(value: &ConfigValue<'_>) -> Option<bool> {
    let items = value.list()?;
    let stars =
        items.iter().filter(|item| item.is_text() && item.text().is_some_and(|text| text.as_str() == "*"));
    let star = stars.count() > 0;
    if star && items.len() > 1 {
        value.fault(format!("{} names `*` beside others", value.label()), "leave the others out, or `*`");
    }
    Some(star)
}

fn origin(value: &ConfigValue<'_>) -> Option<Origin> {
    value.text()?.parse("an origin", |text| {
        let help = "write a scheme, a name and, unless it is the usual one, a port, as browsers do: \
                    `https://app.example.com`, `http://localhost:3000`, `https://*.example.com`";
        parse(text).ok_or_else(|| SyntaxError::new(format!("{} is not an origin", quoted(text)), help))
    })
}

/// Forms that a browser never sends (capitals, a path, the scheme's usual port, `null`) would never match, or would
/// mean all origins.
fn parse(text: &str) -> Option<Origin> {
    let (scheme, authority) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.')
        });
    let usual_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => ":",
    };
    if !is_scheme
        || authority.ends_with(usual_port)
        || authority.bytes().any(|byte| byte.is_ascii_uppercase())
    {
        return None;
    }
    let name = authority.strip_prefix("*.").unwrap_or(authority);
    let server = super::endpoint::authority(name, 0).ok()?;
    let is_wild = name.len() < authority.len();
    match is_wild {
        true if server.host.contains(':') || server.host.parse::<std::net::Ipv4Addr>().is_ok() => None,
        true => {
            Some(Origin::Below { scheme: format!("{scheme}://").into(), suffix: format!(".{name}").into() })
        }
        false => Some(Origin::Exact(text.into())),
    }
}
