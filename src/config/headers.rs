//! Headers in the file: names, values, and the names reserved for tollgate itself.

use http::{HeaderName, HeaderValue, header};

use super::keys::{ANY, NamedSchema, Schema};
use super::report::quoted;
use super::text::SyntaxError;
use super::value::ConfigValue;

/// Fields with their values, in the schema.
pub(super) static FIELDS: NamedSchema =
    NamedSchema { name: "fields", description: "", schema: Schema::Map(ANY, &FIELD_NAME, &Schema::Text) };
/// Names of fields, in the schema.
pub(super) static FIELD_NAMES: NamedSchema =
    NamedSchema { name: "field_names", description: "", schema: Schema::List(ANY, &Schema::Text) };
/// The name of a field, in the schema: a token (RFC 9110 §5.1).
pub(super) static FIELD_NAME: Schema = Schema::Matching(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$");

/// The remedy for a header that must not be named there.
pub(super) type HeaderRule = fn(&HeaderName) -> Option<&'static str>;

/// Fields that frame a message or belong to one connection (RFC 9110 §7.6.1, RFC 9112 §6): setting or removing them
/// would break the framing, or open it to smuggling.
const FRAMING: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// For headers of a response.
pub(super) fn framing(name: &HeaderName) -> Option<&'static str> {
    if name.as_str().starts_with('-') {
        return Some(
            "leave the `-` out: `remove_request_headers` and `remove_response_headers` remove a header",
        );
    }
    FRAMING.contains(name).then_some("leave it out: tollgate frames messages itself")
}

/// For headers of a request that is forwarded.
pub(super) fn framing_or_host(name: &HeaderName) -> Option<&'static str> {
    if name == header::HOST {
        return Some("use `host` of the upstream to choose the Host that it sees");
    }
    if name.as_str() == "cdn-loop" {
        return Some("leave it out: tollgate sets it, to notice requests that go round in a circle");
    }
    framing(name)
}

/// For headers of a refusal.
pub(super) fn framing_or_content_type(name: &HeaderName) -> Option<&'static str> {
    if name == header::CONTENT_TYPE {
        return Some("use `content_type` beside `body`");
    }
    framing(name)
}

/// Fields that the gateway writes into answers of its own, each once.
const OWN: [HeaderName; 11] = [
    header::ALLOW,
    header::CACHE_CONTROL,
    header::CONTENT_TYPE,
    header::DATE,
    header::LOCATION,
    header::RETRY_AFTER,
    header::SET_COOKIE,
    header::VARY,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-tollgate-status"),
];

/// For headers of every response, those of the gateway itself included.
pub(super) fn framing_or_own(name: &HeaderName) -> Option<&'static str> {
    let text = name.as_str();
    let is_limit =
        text.starts_with("ratelimit") || text.starts_with("x-ratelimit") || text.starts_with("grpc-");
    if OWN.contains(name) || is_limit || text.starts_with("access-control-") {
        return Some(
            "write it in `set_response_headers` of the routes: answers of the gateway have their own",
        );
    }
    framing(name)
}

/// For headers that are only compared.
pub(super) fn any(_name: &HeaderName) -> Option<&'static str> {
    None
}

/// `{ name = "value" }`: names are distinct, ignoring case. `read` reads a value.
pub(super) fn fields_with<T>(
    value: &ConfigValue<'_>,
    objection: HeaderRule,
    read: impl Fn(&ConfigValue<'_>) -> Option<T>,
) -> Option<Vec<(HeaderName, T)>> {
    let mut fields: Vec<(HeaderName, T)> = Vec::new();
    for entry in value.entries()? {
        let name = checked_name(entry.key, value.label(), objection).and_then(|name| {
            let is_new = fields.iter().all(|(other, _)| *other != name);
            is_new.then_some(name).ok_or_else(|| named_twice(entry.key, value.label()))
        });
        match name {
            Ok(name) => fields.extend(read(&entry.value).map(|value| (name, value))),
            Err(refusal) => value.diagnostics().fault(entry.key_span, refusal.message, refusal.help),
        }
    }
    Some(fields)
}

/// `["name"]`: names are distinct, ignoring case.
pub(super) fn names(value: &ConfigValue<'_>, objection: HeaderRule) -> Option<Vec<HeaderName>> {
    let mut names: Vec<HeaderName> = Vec::new();
    for item in value.list()? {
        let name = item.text().and_then(|text| {
            text.parse("the name of a header field", |text| checked_name(text, value.label(), objection))
        });
        match name {
            Some(name) if names.contains(&name) => {
                let refusal = named_twice(name.as_str(), value.label());
                item.fault(refusal.message, refusal.help);
            }
            name => names.extend(name),
        }
    }
    Some(names)
}

/// A string that may stand as a field's value.
pub(super) fn field_value(value: &ConfigValue<'_>) -> Option<HeaderValue> {
    value.text()?.parse("the value of a header field", |text| {
        let is_trimmed = text.trim() == text;
        HeaderValue::from_bytes(text.as_bytes()).ok().filter(|_| is_trimmed).ok_or_else(|| value_fault(text))
    })
}

/// The fault of a text that cannot stand as a field's value.
pub(super) fn value_fault(text: &str) -> SyntaxError {
    let message = format!("{} cannot be the value of a header field", quoted(text));
    SyntaxError::new(message, "a value has no control characters, and no blanks at its ends")
}

/// Parses a field's name.
pub(super) fn field_name(text: &str) -> Result<HeaderName, SyntaxError> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        let message = format!("{} is not the name of a header field", quoted(text));
        SyntaxError::new(message, "a name has letters, digits, `-` and `_`, such as `x-api-key`")
    })
}

fn checked_name(text: &str, label: &str, objection: HeaderRule) -> Result<HeaderName, SyntaxError> {
    let name = field_name(text)?;
    match objection(&name) {
        Some(help) => Err(SyntaxError::new(format!("{label} cannot name {}", quoted(name.as_str())), help)),
        None => Ok(name),
    }
}

fn named_twice(name: &str, label: &str) -> SyntaxError {
    let message = format!("{} is named twice in {label}", quoted(name));
    SyntaxError::new(message, "leave one of the two out; the names of header fields are the same in any case")
}
