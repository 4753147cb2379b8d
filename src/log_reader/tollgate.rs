//! The JSON lines of tollgate's own access log, with any subset of the fields.

use std::ops::ControlFlow::{Break, Continue};

use super::fields::{LineFields, OwnFields, number, status};
use super::json::{JsonValue, members};
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{client, rfc3339, span};
use crate::limit::units::Timestamp;

/// The time of a line, which mostly is its first field.
pub(super) fn time(line: &[u8]) -> Result<Timestamp, ProblemKind> {
    let mut time = None;
    let read = members(line, |key, value| {
        if key != b"time" {
            return Continue(());
        }
        time = value.text();
        Break(())
    });
    read.and(time)
        .ok_or(ProblemKind::NotReadable)
        .and_then(|time| rfc3339(time.raw()).ok_or(ProblemKind::NoTime))
}

/// Reads a line but its time, which `time` returns: it is known when a line is read.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    let mut own = OwnFields::default();
    let mut has_time = false;
    let read = members(line, |key, value| {
        let text = value.text();
        match key {
            b"time" => has_time = true,
            b"method" => fields.method = text,
            b"host" => fields.host = text.filter(|host| !host.raw().is_empty()),
            b"path" => fields.target = text,
            b"status" => fields.status = text.and_then(status),
            b"bytes_in" => fields.bytes_in = text.and_then(number),
            b"bytes_out" => fields.bytes_out = text.and_then(number),
            b"duration_ms" => fields.duration = text.and_then(|text| span(text.raw(), 3)),
            b"client" => fields.client = text.and_then(|text| client(text.raw())),
            // `null` tells that the request has none.
            b"consumer" => fields.consumer = Some(text.unwrap_or_default()),
            b"user_agent" => fields.user_agent = Some(text.unwrap_or_default()),
            b"referer" => fields.referer = Some(text.unwrap_or_default()),
            _ => match key.strip_prefix(b"header:") {
                Some(name) => fields.headers.push((LoggedText::plain(name), text)),
                None => read_own(key, value, &mut own),
            },
        }
        Continue(())
    });
    fields.own = Some(own);
    read.filter(|()| has_time && fields.target.is_some()).ok_or(ProblemKind::NotReadable)
}

fn read_own<'l>(key: &[u8], value: JsonValue<'l>, own: &mut OwnFields<'l>) {
    let Some(text) = value.text() else { return };
    match key {
        b"route" => own.route = text,
        b"tier" => own.tier = text,
        b"limit" => own.limit = text,
        b"decision" => own.decision = text,
        b"error" => own.error = text,
        b"remaining" => own.remaining = number(text),
        b"cost" => own.cost = number(text).and_then(|cost| u32::try_from(cost).ok()),
        b"settled" => own.settled = number(text),
        _ => (),
    }
}
