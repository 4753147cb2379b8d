//! `sticky` of an upstream.

use std::sync::OnceLock;
use std::time::Duration;

use http::header::{self, COOKIE, HeaderName};
use rustix::rand::{GetRandomFlags, getrandom};

use super::headers::framing_or_own;
use super::keys::{Schema, choice, duration, flag, keys};
use super::report::{SourceSpan, quoted};
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::http1::name::{Name, claims_certificate, claims_consumer};
use crate::http1::syntax::is_token;
use crate::plan::StoreSettings;
use crate::plan::split_cookie::SPLIT_COOKIE;
use crate::plan::sticky::{CookieAttributes, SameSite, StickyBy, StickyKey};

keys! {
    /// A cookie, or a header that carries a session, keeps a client at the server of its first response, as long as that
    /// is available: one of `cookie` and `header`. Not with balance = "hash". Default: none.
    pub(super) STICKY: StickyKeys = "sticky" {
        /// The name of the cookie, 1 to 64 bytes.
        cookie = Schema::Name;
        /// The header in which servers name sessions, and clients repeat them: "mcp-session-id". Clients see it with
        /// the server's signed name at its end. Needs secret_env, or the secret of the store.
        header = Schema::Name;
        /// Which requests that another site begins carry the cookie. none, which is all of them, needs secure = true.
        same_site: SameSite = choice(&SameSite::WORDS) => SameSite::Lax;
        /// The begin of the paths whose requests carry the cookie, up to 1024 bytes. Default "/".
        path = Schema::Name;
        /// How long clients keep the cookie, from the response that sets it, at least "1s". Default: until their session
        /// ends.
        max_age: Duration = duration();
        /// true: requests without TLS do not carry the cookie. false: they do. Default: true if the client that it is
        /// set for uses TLS.
        secure: bool = flag();
        /// The environment variable with the secret of at least 16 bytes that signs the values, so that they
        /// outlive a restart and all gateways of a fleet agree. Default: the secret of the store, else one of the
        /// process.
        secret_env = Schema::Name;
    }
}

/// Bytes of a cookie's name, and the least of a secret.
const MAX_NAME: usize = 64;
const MIN_SECRET: usize = 16;
/// Bytes of a cookie's path.
const MAX_PATH: usize = 1_024;

/// `sticky` as written in the file.
#[derive(Clone, Debug)]
pub(super) struct StickyDraft {
    pub(super) by: StickyBy,
    pub(super) span: SourceSpan,
    /// Its own key; `None`: the fleet's, or one of this process.
    pub(super) key: Option<StickyKey>,
}

/// Reads `{ cookie = "route", secret_env = "NAME" }`.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<StickyDraft> {
    let mut table = value.table("`sticky`")?;
    let span = table.span();
    let header = table.optional(&STICKY.header, |value| value.text()?.parse("a header name", header));
    let is_by_header = table.given(STICKY.header.name).is_some();
    let cookie = table.optional(&STICKY.cookie, |value| {
        let name = value.text()?.into_string();
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_token) {
            let help = format!("write 1 to {MAX_NAME} letters, digits, `-` or `_`: `route`");
            value.fault("this is not the name of a cookie", help);
            return None;
        }
        if name == SPLIT_COOKIE {
            let message = format!("{} is the name of the cookie of splits", quoted(&name));
            value.fault(message, "write another name: `route`");
            return None;
        }
        Some(name)
    });
    let is_by_cookie = table.given(STICKY.cookie.name).is_some();
    if is_by_header == is_by_cookie {
        let (what, help) = match is_by_header {
            true => ("both `cookie` and `header`", "leave one of the two out"),
            false => ("neither `cookie` nor `header`", "add, for example, `cookie = \"route\"`"),
        };
        table.diagnostics().fault(span, format!("`sticky` has {what}"), help);
    }
    let attributes = match is_by_header && !is_by_cookie {
        true => without_attributes(&mut table),
        false => attributes(&mut table, cookie.as_deref()),
    };
    let key = table.optional(&STICKY.secret_env, |value| {
        let secret = value.variable()?;
        if secret.len() < MIN_SECRET {
            let help = format!("use at least {MIN_SECRET} bytes: `openssl rand -hex 32` makes a good one");
            value.fault("the secret is too short", help);
            return None;
        }
        Some(StickyKey::new(secret.as_bytes()))
    });
    if process_key().is_none() {
        table.diagnostics().fault(table.span(), "the system has no random numbers", "look at `/dev/urandom`");
    }
    table.finish().then_some(())?;
    let by = match (cookie, header) {
        (Some(name), None) => StickyBy::Cookie { name: name.into(), attributes },
        (None, Some(header)) => StickyBy::Header(header),
        _ => return None,
    };
    Some(StickyDraft { by, span, key })
}

/// A header of the application, which the gateway itself neither reads nor writes.
fn header(text: &str) -> Result<HeaderName, SyntaxError> {
    const EXAMPLE: &str = "name the header of a session, such as `mcp-session-id`";
    let name = HeaderName::try_from(text)
        .map_err(|_| SyntaxError::new(format!("{} is not a header name", quoted(text)), EXAMPLE))?;
    let bytes = name.as_str().as_bytes();
    let is_own = claims_consumer(bytes)
        || claims_certificate(bytes)
        || Name::of(bytes) != Name::Other
        || framing_or_own(&name).is_some()
        || [COOKIE, header::CONTENT_ENCODING].contains(&name);
    if is_own {
        return Err(SyntaxError::new(format!("the header {} carries no session", quoted(text)), EXAMPLE));
    }
    Ok(name)
}

/// The attributes belong to a cookie alone.
fn without_attributes(table: &mut ConfigTable<'_>) -> CookieAttributes {
    let given = [
        table.take(&STICKY.same_site),
        table.take(&STICKY.path),
        table.take(&STICKY.max_age),
        table.take(&STICKY.secure),
    ];
    for value in given.into_iter().flatten() {
        value.fault("this is an attribute of a cookie: it has no effect with `header`", "leave it out");
    }
    CookieAttributes::default()
}

/// The attributes of the cookie with this name.
fn attributes(table: &mut ConfigTable<'_>, name: Option<&str>) -> CookieAttributes {
    let same_site = table.value(&STICKY.same_site);
    let path = table.or(&STICKY.path, "/".into(), |value| value.text()?.parse("a path", path));
    let max_age = table.optional(&STICKY.max_age, |value| {
        let seconds = value.duration()?.as_secs();
        if seconds == 0 {
            value.fault("a cookie lives for a second at least", "write `max_age = \"1h\"`, or leave it out");
        }
        (seconds > 0).then_some(seconds)
    });
    let secure = table.get(&STICKY.secure);
    let place = |key: &'static str| table.given_value(key).unwrap_or(table.span());
    let is_uncertain = ["same_site", "path", "secure"].iter().any(|key| table.is_uncertain(key));
    if same_site == SameSite::None && secure != Some(true) && !is_uncertain {
        let message = "browsers refuse a cookie with `same_site = \"none\"` that is not secure";
        table.diagnostics().fault(place("same_site"), message, "add `secure = true`");
    }
    // RFC 6265bis §4.1.3.
    let (is_host, is_secure) =
        name.map_or((false, false), |name| (name.starts_with("__Host-"), name.starts_with("__Secure-")));
    if (is_host || is_secure) && secure == Some(false) && !is_uncertain {
        let help = "leave `secure` out, or give the cookie another name";
        table.diagnostics().fault(
            place("secure"),
            "browsers refuse a cookie of this name that is not secure",
            help,
        );
    }
    if is_host && *path != *"/" && !is_uncertain {
        let help = "leave `path` out, or give the cookie another name";
        table.diagnostics().fault(place("path"), "browsers refuse a `__Host-` cookie with a path", help);
    }
    CookieAttributes { path, same_site, max_age, secure }
}

/// A path (RFC 6265 §4.1.1) without spaces.
fn path(text: &str) -> Result<Box<str>, SyntaxError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
    if text.starts_with('/') && is_plain && text.len() <= MAX_PATH {
        return Ok(text.into());
    }
    let message = format!("{} is not the path of a cookie", quoted(text));
    let help = format!("write up to {MAX_PATH} bytes that begin with `/`, without `;` and spaces: `/shop`");
    Err(SyntaxError::new(message, help))
}

/// The key where `sticky` has no secret: that of `[store]`, so that all gateways of a fleet agree, or one of this process.
pub(super) fn shared_key(store: &StoreSettings) -> Option<StickyKey> {
    store.secret.map(|secret| StickyKey::new(&secret.0)).or_else(process_key)
}

/// Drawn once, so that cookies outlive a reload. `None`: the system has no random numbers.
fn process_key() -> Option<StickyKey> {
    static KEY: OnceLock<Option<StickyKey>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut secret = [0; 32];
        let drawn = getrandom(&mut secret, GetRandomFlags::empty()).ok()?;
        (drawn == secret.len()).then(|| StickyKey::new(&secret))
    })
}
