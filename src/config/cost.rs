//! `cost`: a number, or how it is measured: the places of a number in a request (`from`) and in a response (`settle`).

mod statuses;

use std::num::NonZeroU64;
use std::sync::Arc;

use http::HeaderName;

use super::keys::{NamedSchema, SOME, Schema, count, keys};
use super::remedies::nearest;
use super::report::{SourceSpan, cut_for_help, quoted};
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::limit::units::Cost;
use crate::measure::{BodySource, JsonPointer, TerminalEvents};
use crate::plan::cost::{
    CostRule, CostScale, MeasuredCost, MissingNumber, RequestSource, Reserve, Settle, SettleSource,
    SettledCost,
};
use statuses::statuses;

keys! {
    /// How a number becomes units.
    pub(super) SCALE: ScaleKeys = "per, min and max" {
        /// What one unit stands for: the number is divided by it, and rounded up.
        per: u64 = count(1, 1 << 53) => 1;
        /// The fewest units. Default 1; of a measured cost 0.
        min: u32 = count(0, Cost::MAX as u64);
        /// The most units.
        max: u32 = count(1, Cost::MAX as u64) => Cost::MAX;
    }
}

keys! {
    /// Units by a number that the request names.
    pub(super) REQUEST_COST: RequestCostKeys = "cost by a number in the request" {
        /// Where the number is: "header:NAME", "query:NAME", "json:POINTER" (in the body) or "body-bytes" (the
        /// length of the body); or up to 4 of these, of which the first that the request has counts.
        source as "from" = Schema::Either(&[REQUEST_SOURCE, Schema::List((1, 4), &REQUEST_SOURCE)]), required "\"query:limit\"";
        /// Units where the number is absent or unreadable, or another number that stands in for it. Default: `max`
        /// if it is given, else `min`.
        missing = Schema::Either(&[UNITS, Schema::Table(&ESTIMATE)]);
        + SCALE;
    }
}

keys! {
    /// Units by a number of the request that stands in for another.
    pub(super) ESTIMATE: EstimateKeys = "cost where a number is missing" {
        /// Where the number is: "body-bytes" estimates by the length of the body.
        source as "from" = Schema::Either(&[REQUEST_SOURCE, Schema::List((1, 4), &REQUEST_SOURCE)]), required "\"body-bytes\"";
        /// Units where this number is missing, too. Default: `max` if it is given, else `min`.
        missing = UNITS;
        + SCALE;
    }
}

keys! {
    /// Units that are reserved, and settled when the response has ended.
    pub(super) RESPONSE_COST: ResponseCostKeys = "cost by numbers in the response" {
        /// Units charged before the request is forwarded, or where they are in the request. With 0 a request is
        /// refused only while its key is in debt.
        reserve = RESERVED, required "1";
        /// Where the cost is once the response has ended: "json:/usage/total_tokens", "sse:POINTER", "header:NAME",
        /// "trailer:NAME", "bytes", "duration" (ms); or up to 4 of them, which are added.
        settle = Schema::Either(&[SOURCE, Schema::List((1, 4), &SOURCE)]), required "\"json:/usage/total_tokens\"";
        /// Units where no value was found: a number, or "reserve" (default).
        missing = MISSING;
        /// Names or data of further events that end the measurement of a stream, beside [DONE], message_stop and
        /// response.completed, response.failed, response.incomplete. With an "sse:" source only.
        sse_end = Schema::List((1, 16), &Schema::Name);
        + SCALE;
    }
}

keys! {
    /// Units that are reserved, and settled by the status of the response.
    pub(super) STATUS_COST: StatusCostKeys = "cost by the status" {
        /// Units charged before the request is forwarded, and the cost of a status that is not listed; or where
        /// they are in the request.
        reserve = RESERVED, required "1";
        /// "status": the cost stands in `status`.
        settle = Schema::Either(&[Schema::Words(&["status"]), Schema::List((1, 1), &Schema::Words(&["status"]))]), required "\"json:/usage/total_tokens\"";
        /// Units by status or class: { 401 = 5, "2xx" = 0 }.
        status = Schema::Map(SOME, &Schema::Matching(r"^([1-5][0-9]{2}|[1-5]xx)$"), &UNITS), required "{ 401 = 5, \"2xx\" = 0 }";
        /// Units where no value was found: a number, or "reserve" (default).
        missing = MISSING;
    }
}

/// `cost` in the schema.
pub(super) static COST: NamedSchema = NamedSchema {
    name: "cost",
    description: "",
    schema: Schema::Either(&[
        UNITS,
        Schema::Table(&REQUEST_COST),
        Schema::Table(&RESPONSE_COST),
        Schema::Table(&STATUS_COST),
    ]),
};
const UNITS: Schema = Schema::Whole(0, Cost::MAX as u64);
const REQUEST_SOURCE: Schema = Schema::Matching(r"^(header|query):.|^json:(/.*)?$|^body-bytes$|\$\{");
const SOURCE: Schema = Schema::Matching(r"^(json|sse):(/.*)?$|^(header|trailer):.|^(bytes|duration)$|\$\{");
const RESERVED: Schema = Schema::Either(&[UNITS, Schema::Table(&REQUEST_COST)]);
const MISSING: Schema = Schema::Either(&[Schema::Words(&["reserve"]), UNITS]);

/// The keys beside `from` and `settle`.
const OTHER_KEYS: [&str; 6] = ["per", "min", "max", "missing", "status", "sse_end"];

/// A cost with its place.
#[derive(Clone)]
pub(super) struct CostDraft {
    pub(super) rule: CostRule,
    /// `None`: it is the default.
    pub(super) span: Option<SourceSpan>,
}

impl CostDraft {
    /// The cost of a route that names none.
    pub(super) const DEFAULT: Self = Self { rule: CostRule::Fixed(Cost::ONE), span: None };
    /// That of a route that tells what is left.
    pub(super) const FREE: Self = Self { rule: CostRule::Free, span: None };
}

/// Reads a number or a table.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<CostDraft> {
    let rule = if value.is_table() {
        table(value)?
    } else if value.is_list() {
        return value.mismatch(
            "a whole number or a table",
            "write one number, or `{ reserve = …, settle = [\"…\", \"…\"] }` to add values of a response",
        );
    } else {
        Cost::new(value.count(0, Cost::MAX)?).map_or(CostRule::Free, CostRule::Fixed)
    };
    Some(CostDraft { rule, span: Some(value.span()) })
}

fn table(value: &ConfigValue<'_>) -> Option<CostRule> {
    let mut table = value.table("`cost`")?;
    let later = ["settle", "reserve"].into_iter().find_map(|key| Some((key, table.given(key)?)));
    let rule = match (table.given("from"), later) {
        (Some(_), None) => measured(&mut table, false).map(|cost| CostRule::Measured(Arc::new(cost))),
        (None, Some(_)) => settled(&mut table),
        (Some(_), Some((key, span))) => {
            let message = format!("`cost` cannot have both `from` and `{key}`");
            let help =
                "write `from` for a number in the request, or `reserve` and `settle` for one in the response";
            table.diagnostics().fault(span, message, help);
            table.skip(&["from", "settle", "reserve"]);
            table.skip(&OTHER_KEYS);
            None
        }
        (None, None) => {
            let message = "`cost` has neither `from` nor `settle`";
            let help = "write `from = \"query:limit\"` for a number in the request, or `reserve = 1` and `settle = \"json:/usage/total_tokens\"` for one in the response";
            table.diagnostics().fault(table.span(), message, help);
            table.skip(&["from", "reserve", "settle"]);
            table.skip(&OTHER_KEYS);
            None
        }
    };
    let is_sound = table.finish();
    rule.filter(|_| is_sound)
}

/// `from`, and its keys. `stands_in`: for another number that is missing.
fn measured(table: &mut ConfigTable<'_>, stands_in: bool) -> Option<MeasuredCost> {
    let from = table.require(&REQUEST_COST.source, |value| request_sources(&value));
    let has_max = table.given("max").is_some();
    // Unless the file says otherwise, no number makes a request free.
    let scale = scale(table, 1);
    let missing = table.take(&REQUEST_COST.missing).map(|value| missing_number(&value, stands_in));
    let (from, scale) = (from?, scale?);
    // A request that leaves the number out must not be cheaper than any that has it.
    let missing = missing.unwrap_or(Some(MissingNumber::Units(if has_max { scale.max } else { scale.min })));
    // The last one is asked last.
    let mut sources = from.into_iter().rev();
    let last = MeasuredCost { from: sources.next()?, scale, missing: missing? };
    let before = |next, from| MeasuredCost { from, scale, missing: MissingNumber::Measured(Box::new(next)) };
    Some(sources.fold(last, before))
}

/// `missing` of a number in the request: units, or a number that stands in.
fn missing_number(value: &ConfigValue<'_>, stands_in: bool) -> Option<MissingNumber> {
    if !value.is_table() {
        return value.count(0, Cost::MAX).map(MissingNumber::Units);
    }
    if stands_in {
        value.fault("`missing` is a table inside of another `missing`", "write units, such as `1000`");
        return None;
    }
    let mut table = value.table("`missing`")?;
    let measured = measured(&mut table, true);
    let is_sound = table.finish();
    measured.filter(|_| is_sound).map(|cost| MissingNumber::Measured(Box::new(cost)))
}

/// `reserve` and `settle`, and their keys.
fn settled(table: &mut ConfigTable<'_>) -> Option<CostRule> {
    let reserve = table.require(&RESPONSE_COST.reserve, |value| reserve(&value));
    let reserve_span = table.given("reserve");
    let settle = table.require(&RESPONSE_COST.settle, |value| settle(&value));
    let settle = match settle {
        Some(SettleDraft::Status) => {
            for key in ["per", "min", "max", "sse_end"] {
                let message = format!("`{key}` has no effect beside `settle = \"status\"`");
                table.misplaced(key, &message, "leave it out: the numbers of `status` are units");
            }
            table.require(&STATUS_COST.status, |value| statuses(&value)).map(Settle::Status)
        }
        Some(SettleDraft::Values(sources)) => {
            let help = "leave it out, or write `settle = \"status\"`";
            table.misplaced("status", "`status` has no effect without `settle = \"status\"`", help);
            let scale = scale(table, 0);
            let reserved = reserve.as_ref().and_then(largest);
            if let (Some(scale), Some((reserve, verb)), Some(span)) = (scale, reserved, reserve_span)
                && scale.max < reserve
            {
                let message =
                    format!("`reserve` {verb} {reserve}, but no request costs more than {}", scale.max);
                table.diagnostics().fault(span, message, "lower `reserve`, or raise `max`");
            }
            let ends = terminal_events(table, &sources);
            scale.map(|scale| Settle::values(sources, ends, scale))
        }
        None => {
            table.skip(&["per", "min", "max", "status", "sse_end"]);
            None
        }
    };
    let missing = table.optional(&RESPONSE_COST.missing, |value| missing(&value));
    let (reserve, missing) = (reserve?, missing.flatten());
    Some(CostRule::Settled(Arc::new(SettledCost { reserve, settle: settle?, missing })))
}

/// `reserve`: units, or a number in the request.
fn reserve(value: &ConfigValue<'_>) -> Option<Reserve> {
    if !value.is_table() {
        return value.count(0, Cost::MAX).map(Reserve::Fixed);
    }
    let mut table = value.table("`reserve`")?;
    let measured = measured(&mut table, false);
    let is_sound = table.finish();
    measured.filter(|_| is_sound).map(Reserve::Measured)
}

/// The most units that are reserved, if the file says how many.
fn largest(reserve: &Reserve) -> Option<(u32, &'static str)> {
    match reserve {
        Reserve::Fixed(units) => Some((*units, "is")),
        Reserve::Measured(measured) => {
            Some((measured.scale.max, "may be")).filter(|(most, _)| *most < Cost::MAX)
        }
    }
}

/// `sse_end`: events beside the known ones.
fn terminal_events(table: &mut ConfigTable<'_>, sources: &[SettleSource]) -> TerminalEvents {
    if !sources.iter().any(|source| matches!(source, SettleSource::Body(BodySource::Sse(_)))) {
        if let Some(value) = table.take(&RESPONSE_COST.sse_end) {
            let help = "leave it out, or add `sse:POINTER` to `settle`";
            value.fault("`sse_end` has no effect without an `sse:` value", help);
        }
        return TerminalEvents::default();
    }
    let more = table.or(&RESPONSE_COST.sse_end, Vec::new(), |value| {
        let events = value.some_of(|item| item.text()?.parse("a terminal event", terminal_event))?;
        if events.len() > TerminalEvents::MAX_MORE {
            let message = format!("`sse_end` names {} events", events.len());
            value.fault(message, format!("name at most {}", TerminalEvents::MAX_MORE));
        }
        Some(events)
    });
    TerminalEvents::with(more)
}

/// The maximum length of a terminal event, bytes.
const MAX_EVENT: usize = 64;

fn terminal_event(text: &str) -> Result<String, SyntaxError> {
    without_controls(text)?;
    if (1..=MAX_EVENT).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    let message = format!("a terminal event has 1 to {MAX_EVENT} bytes, not {}", text.len());
    Err(SyntaxError::new(message, "write the event's name, or its whole data, such as `[DONE]`"))
}

/// `missing`: units, or `"reserve"`.
fn missing(value: &ConfigValue<'_>) -> Option<Option<u32>> {
    if !value.is_text() {
        return value.count(0, Cost::MAX).map(Some);
    }
    let text = value.text()?;
    if text.as_str() == "reserve" {
        return Some(None);
    }
    if text.as_str() != text.written() {
        return value.count(0, Cost::MAX).map(Some);
    }
    value.fault(
        format!("`missing` cannot be {}", text.quoted()),
        "write units, such as `5`, or `\"reserve\"`",
    );
    None
}

/// `per`, `min` (with this default) and `max`.
fn scale(table: &mut ConfigTable<'_>, default_min: u32) -> Option<CostScale> {
    let per = NonZeroU64::new(table.value(&SCALE.per)).unwrap_or(NonZeroU64::MIN);
    let min = table.get(&SCALE.min).unwrap_or(default_min);
    let max = table.value(&SCALE.max);
    if min > max {
        let span = table.given("min").unwrap_or(table.span());
        table.diagnostics().fault(
            span,
            format!("`min` is {min}, but `max` is {max}"),
            "raise `max`, or lower `min`",
        );
        return None;
    }
    Some(CostScale { per, min, max })
}

/// The maximum number of values that are added.
const MAX_SOURCES: usize = 4;
const FROM: &str = "write `header:NAME`, `query:NAME`, `json:POINTER` or `body-bytes`";
const SETTLE: &str =
    "write `json:POINTER`, `sse:POINTER`, `header:NAME`, `trailer:NAME`, `bytes`, `duration` or `status`";
/// Words of `settle`, for typing errors.
const SETTLE_WORDS: [&str; 7] = ["json", "sse", "header", "trailer", "bytes", "duration", "status"];

/// The value of `settle`.
enum SettleDraft {
    /// The status.
    Status,
    /// Values that are added.
    Values(Vec<SettleSource>),
}

/// Reads `from`: one place, or several of which the first that a request has counts.
fn request_sources(value: &ConfigValue<'_>) -> Option<Vec<RequestSource>> {
    let read =
        |item: &ConfigValue<'_>| item.text()?.parse("a place of a number in a request", parse_request_source);
    if !value.is_list() {
        return read(value).map(|source| vec![source]);
    }
    let sources = value.some_of(|item| read(&item))?;
    if sources.len() > MAX_SOURCES {
        let message = format!("`from` has {} places", sources.len());
        value.fault(message, format!("name 1 to {MAX_SOURCES}: the first that a request has counts"));
        return None;
    }
    Some(sources)
}

/// Reads `settle`: one place or a list.
fn settle(value: &ConfigValue<'_>) -> Option<SettleDraft> {
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
        let help = "write `settle = \"status\"` alone: the numbers of `status` are units, and cannot be added to measured values";
        status.fault("`status` cannot be one of several values", help);
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
        SyntaxError::new(format!("{} is not a place of a number in a request", quoted(text)), help)
    };
    without_controls(text)?;
    match text.split_once(':') {
        Some(("header", name)) => header(name).map(RequestSource::Header),
        Some(("query", "")) => Err(no_place("name the parameter, such as `query:limit`".to_owned())),
        Some(("query", name)) => Ok(RequestSource::Query(name.into())),
        None if text == "body-bytes" => Ok(RequestSource::BodyBytes),
        Some(("json", text)) => pointer("json", text).map(RequestSource::Json),
        Some(("sse" | "trailer", _)) => {
            let help = "a number in a response is known only after the request: write `reserve` and `settle`";
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
            let message = format!("{} is not a place of a value in a response", quoted(text));
            return Err(SyntaxError::new(message, other_settle(text)));
        }
    };
    Ok(source)
}

/// The remedy for a text that is not a place in a response.
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
            name => format!("{} cannot be the name of a header", quoted(name)),
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
