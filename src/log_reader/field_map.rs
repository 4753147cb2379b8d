//! Which fields of JSON lines are which (`--map time=$.ts,client=$.remote_addr,…`).

use std::ops::ControlFlow::{Break, Continue};

use http::HeaderName;

use super::fields::{LineFields, number, status};
use super::json::{JsonValue, first_text, members};
use super::problems::{LogFault, ProblemKind};
use super::text::LoggedText;
use super::time::{any_time, client, span};

const NAMES: &str = "time, start, client, method, path, request, host, status, duration, bytes_in, bytes_out, \
                     user_agent, referer, consumer, header:NAME";
/// The fields of a map.
const MAX_FIELDS: usize = 100;

/// The fields of the JSON lines of any server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMap {
    fields: Vec<(MappedField, JsonPath)>,
}

/// The keys from the object of the line to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JsonPath {
    first: Box<[u8]>,
    others: Vec<Box<[u8]>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum MappedField {
    /// The end of the request if there is a duration.
    Time,
    /// The arrival of the request.
    Start,
    Client,
    Method,
    Path,
    Request,
    Host,
    Status,
    /// In units of this power of ten of a microsecond.
    Duration(i32),
    BytesIn,
    BytesOut,
    UserAgent,
    Referer,
    Consumer,
    Header(HeaderName),
}

impl FieldMap {
    /// Reads `time=$.ts,client=$.remote_addr,request=$.request,duration=$.request_time:s,header:x-tenant=$.tenant`.
    ///
    /// # Errors
    ///
    /// The item that is wrong, and how it should be.
    pub fn parse(text: &str) -> Result<Self, LogFault> {
        let fields = items(text).map(field).collect::<Result<Vec<_>, _>>()?;
        if fields.len() > MAX_FIELDS {
            return Err(LogFault::new("`--map` has more than 100 fields", "leave some out"));
        }
        let has = |wanted: &[MappedField]| fields.iter().any(|(field, _)| wanted.contains(field));
        if !has(&[MappedField::Time, MappedField::Start]) {
            return Err(LogFault::new(
                "`--map` has no time",
                "add `time=$.KEY` (the end of the request) or `start=$.KEY`",
            ));
        }
        if !has(&[MappedField::Path, MappedField::Request]) {
            return Err(LogFault::new(
                "`--map` has no path",
                "add `path=$.KEY` or `request=$.KEY` (`GET /x HTTP/1.1`)",
            ));
        }
        Ok(Self { fields })
    }

    /// Reads a line.
    pub(super) fn read<'l>(&'l self, line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
        let mut is_start = false;
        members(line, |key, value| {
            for (field, path) in self.fields.iter().filter(|(_, path)| *path.first == *key) {
                if let Some(value) = inner(value, &path.others) {
                    is_start |= *field == MappedField::Start;
                    set(field, value, fields);
                }
            }
            Continue(())
        })
        .ok_or(ProblemKind::NotReadable)?;
        fields.is_end = !is_start;
        Ok(())
    }
}

fn set<'l>(field: &'l MappedField, value: JsonValue<'l>, fields: &mut LineFields<'l>) {
    let text = match value {
        JsonValue::Array(values) => first_text(values),
        value => value.text(),
    };
    let known = text.and_then(LoggedText::known);
    match field {
        MappedField::Time | MappedField::Start => {
            if fields.time.is_none() || *field == MappedField::Start {
                fields.time = text.and_then(|text| any_time(text.raw()));
            }
        }
        MappedField::Client => fields.client = text.and_then(|text| client(text.raw())),
        MappedField::Method => fields.method = known,
        MappedField::Path => fields.target = known,
        MappedField::Request => {
            if let Some(line) = known {
                fields.set_request_line(line);
            }
        }
        MappedField::Host => fields.host = known,
        MappedField::Status => fields.status = text.and_then(status),
        MappedField::Duration(exponent) => {
            fields.duration = text.and_then(|text| span(text.raw(), *exponent))
        }
        MappedField::BytesIn => fields.bytes_in = text.and_then(number),
        MappedField::BytesOut => fields.bytes_out = text.and_then(number),
        MappedField::UserAgent => fields.user_agent = Some(known.unwrap_or_default()),
        MappedField::Referer => fields.referer = Some(known.unwrap_or_default()),
        MappedField::Consumer => fields.consumer = Some(known.unwrap_or_default()),
        MappedField::Header(name) => {
            fields.headers.push((LoggedText::plain(name.as_str().as_bytes()), text));
        }
    }
}

/// The value that the keys lead to.
fn inner<'l>(value: JsonValue<'l>, keys: &[Box<[u8]>]) -> Option<JsonValue<'l>> {
    keys.iter().try_fold(value, |value, wanted| {
        let JsonValue::Object(object) = value else { return None };
        let mut found = None;
        members(object, |key, value| {
            if key != &**wanted {
                return Continue(());
            }
            found = Some(value);
            Break(())
        })?;
        found
    })
}

/// The items between commas that are not in quotes.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}

fn field(item: &str) -> Result<(MappedField, JsonPath), LogFault> {
    let fault = |what: &str, remedy: &str| LogFault::new(format!("`--map`: `{item}` {what}"), remedy);
    let (name, value) = item
        .split_once('=')
        .ok_or_else(|| fault("has no `=`", "write each field as `NAME=$.KEY`, for example `time=$.ts`"))?;
    let (value, unit) = match value.rsplit_once(':') {
        Some((path, unit)) if !unit.contains(['"', ']', '.']) => (path, Some(unit)),
        _ => (value, None),
    };
    let name = name.trim();
    let mapped = match name {
        "time" => MappedField::Time,
        "start" => MappedField::Start,
        "client" => MappedField::Client,
        "method" => MappedField::Method,
        "path" => MappedField::Path,
        "request" => MappedField::Request,
        "host" => MappedField::Host,
        "status" => MappedField::Status,
        "duration" => MappedField::Duration(match unit {
            None | Some("s") => 6,
            Some("ms") => 3,
            Some("us") => 0,
            Some("ns") => -3,
            Some(_) => return Err(fault("has an unknown unit", "use `:s`, `:ms`, `:us` or `:ns`")),
        }),
        "bytes_in" => MappedField::BytesIn,
        "bytes_out" => MappedField::BytesOut,
        "user_agent" => MappedField::UserAgent,
        "referer" => MappedField::Referer,
        "consumer" => MappedField::Consumer,
        _ => {
            let header = name.strip_prefix("header:").map(str::parse::<HeaderName>);
            let Some(Ok(header)) = header else {
                return Err(fault("names no field", &format!("use one of {NAMES}")));
            };
            MappedField::Header(header)
        }
    };
    if unit.is_some() && !matches!(mapped, MappedField::Duration(_)) {
        return Err(fault("has a unit", "only `duration` has one; write a key with a colon as `$[\"a:b\"]`"));
    }
    let path = path(value.trim()).ok_or_else(|| {
        fault("has no path", "write paths as `$.key`, `$.outer.key` or `$.outer[\"some-key\"]`")
    })?;
    Ok((mapped, path))
}

/// `$.a.b`, `$.a["x-y"]`.
fn path(text: &str) -> Option<JsonPath> {
    let mut rest = text.strip_prefix('$')?;
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (key, after) = match rest.strip_prefix("[\"") {
            Some(quoted) => quoted.split_once("\"]")?,
            None => {
                let key = rest.strip_prefix('.')?;
                key.split_at(key.find(['.', '[']).unwrap_or(key.len()))
            }
        };
        if key.is_empty() {
            return None;
        }
        keys.push(key.as_bytes().into());
        rest = after;
    }
    let mut keys = keys.into_iter();
    Some(JsonPath { first: keys.next()?, others: keys.collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::{Micros, Timestamp};

    const MAP: &str = r#"time=$.ts,client=$.remote_addr,request=$.request,duration=$.request_time,header:x-tenant=$.http["x-tenant"],bytes_out=$.sent"#;

    #[test]
    fn a_line_of_nginx_is_read() {
        let line = r#"{"ts":"1700000000.250","remote_addr":"192.0.2.1","request":"GET /a HTTP/1.1","request_time":"0.250","http":{"x-tenant":"t1"},"sent":"12"}"#;
        let map = FieldMap::parse(MAP).unwrap();
        let mut fields = LineFields::default();
        map.read(line.as_bytes(), &mut fields).unwrap();
        assert_eq!(fields.arrival(), Ok(Timestamp(1_700_000_000_000_000)));
        assert_eq!(fields.duration, Some(Micros(250_000)));
        assert_eq!(fields.target.map(LoggedText::raw), Some(b"/a".as_slice()));
        assert_eq!(fields.bytes_out, Some(12));
        assert_eq!(fields.headers.len(), 1);
    }

    #[test]
    fn a_start_is_the_arrival() {
        let map = FieldMap::parse("start=$.t,path=$.p,duration=$.d:ms").unwrap();
        let mut fields = LineFields::default();
        map.read(br#"{"t":1700000000,"p":"/","d":5}"#, &mut fields).unwrap();
        assert_eq!(fields.arrival(), Ok(Timestamp(1_700_000_000_000_000)));
    }

    #[test]
    fn faults_say_what_to_do() {
        for (text, what) in [
            ("", "has no time"),
            ("time=$.t", "has no path"),
            ("time", "has no `=`"),
            ("when=$.t", "names no field"),
            ("time=ts", "has no path"),
            ("time=$.a..b", "has no path"),
            ("duration=$.d:min", "unknown unit"),
            ("time=$.d:ms", "has a unit"),
        ] {
            let fault = FieldMap::parse(text).unwrap_err();
            assert!(fault.what.contains(what), "{text}: {fault}");
            assert!(!fault.remedy.is_empty());
        }
    }

    proptest! {
        #[test]
        fn random_maps_are_read_without_panic(text in r#"[a-z=$.,:\[\]"-]{0,40}"#) {
            let _ = FieldMap::parse(&text);
        }
    }
}
