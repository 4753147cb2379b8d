//! The places of a number in a request (`from`) and in a response (`settle`).

use http::HeaderName;

use super::report::{cut_for_help, quoted};
use super::suggest::nearest;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::measure::{BodySource, JsonPointer};
use crate::plan::cost::{RequestSource, SettleSource};

/// The maximum number of values that are added.
const MAX_SOURCES: usize = 4;
const FROM: &str = "write `header:NAME`, `query:NAME` or `body-bytes`";
const SETTLE: &str =
    "write `json:POINTER`, `sse:POINTER`, `header:NAME`, `trailer:NAME`, `bytes`, `duration` or `status`";
/// Words of `settle`, for typing errors.
const SETTLE_WORDS: [&str; 7] = ["json", "sse", "header", "trailer", "bytes", "duration", "status"];

/// The value of `settle`.
pub(super) enum SettleDraft {
    /// The status.
    Status,
    /// Values that are added.
    Values(Vec<SettleSource>),
}

/// Reads `from`.
pub(super) fn request_source(value: &ConfigValue<'_>) -> Option<RequestSource> {
    if value.is_list() {
        return value.mismatch("a string", "name one place: numbers of a request are not added");
    }
    value.text()?.parse("a place of a number in a request", parse_request_source)
}

/// Reads `settle`: one place or a list.
pub(super) fn settle(value: &ConfigValue<'_>) -> Option<SettleDraft> {
    let is_list = value.is_list();
    let items = if is_list { value.list()? } else { vec![value.clone()] };
    let read = |item: &ConfigValue<'_>| {
        item.text()?.parse("a place of a value in a response", |text| {
            if text == "status" { Ok(None) } else { parse_settle_source(text).map(Some) }
        })
    };
    // All of them, so that each faulty one is reported.
    let sources: Vec<_> = items.iter().map(read).collect();
    let sources = sources.into_iter().collect::<Option<Vec<_>>>()?;
    if let [None] = &*sources {
        return Some(SettleDraft::Status);
    }
    if let Some((status, _)) = items.iter().zip(&sources).find(|(_, source)| source.is_none()) {
        let help = "write `settle = \"status\"` alone: the numbers of `status` are units, and can not be added to measured values";
        status.fault("`status` can not be one of several values", help);
        return None;
    }
    let sources: Vec<_> = sources.into_iter().flatten().collect();
    if !(1..=MAX_SOURCES).contains(&sources.len()) {
        let message = match sources.len() {
            0 => "`settle` is an empty list".to_owned(),
            count => format!("`settle` has {count} values"),
        };
        value.fault(message, format!("name 1 to {MAX_SOURCES} values: they are added"));
        return None;
    }
    Some(SettleDraft::Values(sources))
}

fn parse_request_source(text: &str) -> Result<RequestSource, SyntaxError> {
    let no_place = |help: String| {
        SyntaxError::new(format!("{} is no place of a number in a request", quoted(text)), help)
    };
    without_controls(text)?;
    match text.split_once(':') {
        Some(("header", name)) => header(name).map(RequestSource::Header),
        Some(("query", "")) => Err(no_place("name the parameter, such as `query:limit`".to_owned())),
        Some(("query", name)) => Ok(RequestSource::Query(name.into())),
        None if text == "body-bytes" => Ok(RequestSource::BodyBytes),
        Some(("json" | "sse" | "trailer", _)) => {
            let help = "a number in a body is known only after the request: write `reserve` and `settle`";
            Err(no_place(help.to_owned()))
        }
        None if matches!(text, "bytes" | "body" | "body_bytes" | "content-length" | "body-byte") => {
            Err(no_place("write `body-bytes`".to_owned()))
        }
        _ => Err(no_place(FROM.to_owned())),
    }
}

fn parse_settle_source(text: &str) -> Result<SettleSource, SyntaxError> {
    without_controls(text)?;
    let source = match (text, text.split_once(':')) {
        ("bytes", _) => SettleSource::Bytes,
        ("duration", _) => SettleSource::Duration,
        (_, Some(("header", name))) => SettleSource::Header(header(name)?),
        (_, Some(("trailer", name))) => SettleSource::Trailer(header(name)?),
        (_, Some(("json", text))) => SettleSource::Body(BodySource::Json(pointer("json", text)?)),
        (_, Some(("sse", text))) => SettleSource::Body(BodySource::Sse(pointer("sse", text)?)),
        _ => {
            let message = format!("{} is no place of a value in a response", quoted(text));
            return Err(SyntaxError::new(message, other_settle(text)));
        }
    };
    Ok(source)
}

/// The remedy for a text that is no place in a response.
fn other_settle(text: &str) -> String {
    match text.split_once(':') {
        Some(("query", _)) => {
            return "`query` is a place in a request: write `from`, without `reserve`".to_owned();
        }
        None if text.contains(['$', '.', '/']) => {
            if let Some(pointer) = as_pointer(text) {
                return format!("write `json:{}`", cut_for_help(&pointer));
            }
        }
        None if text == "body-bytes" => {
            return "write `bytes` for the response, or `from = \"body-bytes\"` for the request".to_owned();
        }
        _ => {}
    }
    let (word, name) = text.split_once(':').map_or((text, ""), |(word, name)| (word, name));
    match nearest(word, SETTLE_WORDS).filter(|near| *near != word) {
        Some(near @ ("bytes" | "duration" | "status")) => format!("did you mean `{near}`? {SETTLE}"),
        Some(near) if !name.is_empty() => {
            format!("did you mean `{near}:{}`? {SETTLE}", cut_for_help(name))
        }
        _ => SETTLE.to_owned(),
    }
}

/// Places are told to terminals: by `check`, `explain`, and the program log.
fn without_controls(text: &str) -> Result<(), SyntaxError> {
    if !text.contains(char::is_control) {
        return Ok(());
    }
    Err(SyntaxError::new(format!("{} has a control character", quoted(text)), "leave it out"))
}

fn header(name: &str) -> Result<HeaderName, SyntaxError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        let message = match name {
            "" => "a header has no name here".to_owned(),
            name => format!("{} can not be the name of a header", quoted(name)),
        };
        SyntaxError::new(message, "a name has letters, digits, `-` and `_`, such as `x-cost`")
    })
}

fn pointer(word: &str, text: &str) -> Result<JsonPointer, SyntaxError> {
    JsonPointer::parse(text).map_err(|fault| {
        let help = match as_pointer(text).filter(|_| !text.starts_with('/')) {
            Some(pointer) => format!("write `{word}:{}`", cut_for_help(&pointer)),
            None => format!("write the path to the value, such as `{word}:/usage/total_tokens` (RFC 6901)"),
        };
        SyntaxError::new(format!("{} is no JSON pointer: {fault}", quoted(text)), help)
    })
}

/// The pointer for a path in another notation: `$.usage.total_tokens`, `usage.total_tokens`, `choices[0].tokens`.
fn as_pointer(text: &str) -> Option<String> {
    let path = text.strip_prefix('$').unwrap_or(text);
    let names = path.split(['.', '[', ']', '/']).map(|name| name.trim_matches(['\'', '"']));
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let are_plain = names.iter().all(|name| name.bytes().all(is_plain));
    (!names.is_empty() && are_plain).then(|| format!("/{}", names.join("/")))
}
