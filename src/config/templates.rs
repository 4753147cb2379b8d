//! Texts with values of the request: bodies, and the headers that the file sets.

use http::HeaderValue;

use super::headers::field_value;
use super::remedies::movers_word;
use super::report::{listed, quoted};
use super::text::Cursor;
use super::value::ConfigValue;
use crate::plan::template::{BodyTemplate, Escaping, HeaderTemplate, Template, TemplateWord, UnknownWord};

/// Maximum bytes of a body with values of the request, which each response holds until it is sent.
const MAX_TEMPLATE: usize = 64 << 10;

/// Reads the value of a header.
pub(super) fn header(value: &ConfigValue<'_>) -> Option<HeaderTemplate> {
    let text = field_value(value)?;
    variables(value);
    // It was read from a string.
    let text = std::str::from_utf8(text.as_bytes()).unwrap_or_default();
    match parse(text, value)? {
        Ok(template) => without_members(value, &template).then_some(HeaderTemplate::Values(template)),
        Err(text) => HeaderValue::from_bytes(text.as_bytes()).ok().map(HeaderTemplate::Fixed),
    }
}

/// Whether a text has no value of the request's body, which is known only where a limit refuses.
fn without_members(value: &ConfigValue<'_>, template: &Template) -> bool {
    let member = template.json_pointers().next();
    if let Some(pointer) = member {
        let message = format!("{} has a value of the request's body", value.label());
        value.fault(message, format!("write `{{json:{pointer}}}` in the `body` of `reject` only"));
    }
    member.is_none()
}

/// Reads a body of at most this many bytes, with values escaped for its media type, but none of the request's body.
pub(super) fn body(value: &ConfigValue<'_>, content_type: &[u8], max_bytes: usize) -> Option<BodyTemplate> {
    let body = body_of_refusal(value, content_type, max_bytes)?;
    match &body {
        BodyTemplate::Values(template, _) if !without_members(value, template) => None,
        _ => Some(body),
    }
}

/// The same, also with values of the request's body.
pub(super) fn body_of_refusal(
    value: &ConfigValue<'_>,
    content_type: &[u8],
    max_bytes: usize,
) -> Option<BodyTemplate> {
    let text = value.text()?;
    if text.as_str().len() > max_bytes {
        let message = format!("{} is longer than {} KiB", value.label(), max_bytes >> 10);
        value.fault(message, "shorten it: an answer of the gateway has to be cheap");
        return None;
    }
    let parsed = parse(text.as_str(), value)?;
    if parsed.is_ok() && text.as_str().len() > MAX_TEMPLATE {
        let message = format!(
            "{} has values of the request and is longer than {} KiB",
            value.label(),
            MAX_TEMPLATE >> 10
        );
        value.fault(message, "shorten it, or write it without values: each response needs a copy of its own");
        return None;
    }
    Some(match parsed {
        Ok(template) => BodyTemplate::Values(template, Escaping::of(content_type)),
        Err(text) => BodyTemplate::Fixed(text.into()),
    })
}

fn parse(text: &str, value: &ConfigValue<'_>) -> Option<Result<Template, String>> {
    match Template::parse(text) {
        Ok(parsed) => {
            if parsed.as_ref().is_ok_and(|template| template.has(TemplateWord::Country)) {
                value.diagnostics().note_country(value.span());
            }
            Some(parsed)
        }
        Err(UnknownWord(word)) => {
            let known: Vec<String> =
                TemplateWord::ALL.iter().map(|word| format!("{{{}}}", word.as_str())).collect();
            let message = format!("{} is not a value of a request", quoted(&format!("{{{word}}}")));
            let known = listed(known.iter().map(String::as_str));
            if word.starts_with("json:") {
                let help = "write `{json:/id}`, with the JSON pointer of a value (RFC 6901)";
                value.fault(format!("{} has no JSON pointer", quoted(&format!("{{{word}}}"))), help);
                return None;
            }
            value.fault(message, format!("known: {known}; write `{{{{{word}}}}}` for the text itself"));
            None
        }
    }
}

/// Warns of a variable of another proxy in a text that is sent as it is written.
pub(super) fn variables(value: &ConfigValue<'_>) {
    let Some(written) = value.written() else { return };
    if let Some((variable, remedy)) = variable(written) {
        let message =
            format!("{} is sent as it is written: it is not a variable of tollgate", quoted(variable));
        value.diagnostics().warn(value.span(), message, remedy);
    }
}

/// The first variable of nginx, HAProxy, Envoy or Caddy in a text, with what stands for it here.
fn variable(text: &str) -> Option<(&str, String)> {
    let at = |start: usize| {
        let rest = text.get(start..)?;
        let end = match rest.as_bytes().first()? {
            b'$' => {
                let is_of_name =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                1 + rest.bytes().skip(1).position(|byte| !is_of_name(byte)).unwrap_or(rest.len() - 1)
            }
            b'%' if rest.starts_with("%[") => rest.find(']')? + 1,
            b'%' => rest.get(1..)?.find('%')? + 2,
            b'{' if rest.starts_with("{http.") => rest.find('}')? + 1,
            _ => return None,
        };
        let found = rest.get(..end)?;
        Some((found, remedy_of(found)?))
    };
    text.char_indices()
        .filter(|(_, letter)| matches!(letter, '$' | '%' | '{'))
        .find_map(|(start, _)| at(start))
}

/// What stands for a variable of another proxy: `$remote_addr`, `%[src]`, `{http.request.host}`.
fn remedy_of(variable: &str) -> Option<String> {
    const OF_REQUEST: [&str; 5] = ["$http_", "$arg_", "$cookie_", "%[req.hdr(", "%REQ("];
    let known = movers_word("=variable", variable).map(str::to_owned);
    let is_of_request = || OF_REQUEST.iter().any(|begin| variable.starts_with(begin));
    let otherwise = || "leave it out: a header of the file cannot repeat one of the request".to_owned();
    known.or_else(|| is_of_request().then(otherwise))
}

/// Warns of a reference to a group of a regular expression, such as `$1`, where groups are written `{1}`.
pub(super) fn groups(text: &Cursor<'_>) {
    let digit = |at: usize| text.written().as_bytes().get(at + 1).filter(|byte| byte.is_ascii_digit());
    let found = text.written().match_indices('$').find_map(|(at, _)| digit(at));
    if let Some(digit) = found.map(|digit| char::from(*digit)) {
        let message = format!("`${digit}` in {} is a text, not a group", text.quoted());
        text.diagnostics().warn(text.span(), message, format!("write `{{{digit}}}`"));
    }
}
