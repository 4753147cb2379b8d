//! Texts with values of the request: bodies, and the headers that the file sets.

use http::HeaderValue;

use super::headers::field_value;
use super::report::{listed, quoted};
use super::value::ConfigValue;
use crate::plan::template::{BodyTemplate, Escaping, HeaderTemplate, Template, TemplateWord, UnknownWord};

/// Maximum bytes of a body with values of the request, which each response holds until it is sent.
const MAX_TEMPLATE: usize = 64 << 10;

/// Reads the value of a header.
pub(super) fn header(value: &ConfigValue<'_>) -> Option<HeaderTemplate> {
    let text = field_value(value)?;
    // It was read from a string.
    let text = std::str::from_utf8(text.as_bytes()).unwrap_or_default();
    match parse(text, value)? {
        Ok(template) => Some(HeaderTemplate::Values(template)),
        Err(text) => HeaderValue::from_bytes(text.as_bytes()).ok().map(HeaderTemplate::Fixed),
    }
}

/// Reads a body of at most this many bytes, with values escaped for its media type.
pub(super) fn body(value: &ConfigValue<'_>, content_type: &[u8], max_bytes: usize) -> Option<BodyTemplate> {
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
        Ok(parsed) => Some(parsed),
        Err(UnknownWord(word)) => {
            let known: Vec<String> =
                TemplateWord::ALL.iter().map(|word| format!("{{{}}}", word.as_str())).collect();
            let message = format!("{} is not a value of a request", quoted(&format!("{{{word}}}")));
            let known = listed(known.iter().map(String::as_str));
            value.fault(message, format!("known: {known}; write `{{{{{word}}}}}` for the text itself"));
            None
        }
    }
}
