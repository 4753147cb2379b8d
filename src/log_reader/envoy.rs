//! JSON lines of Envoy with the keys that Istio and the documentation of Envoy use
//! (<https://istio.io/latest/docs/tasks/observability/logs/access-log/>), and lines of text (`envoy_text.rs`). They have the
//! start of a request.

use std::ops::ControlFlow::Continue;

use super::envoy_text;
use super::fields::{LineFields, number, status};
use super::json::members;
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{any_time, client, span};

/// Reads a line of JSON, or one of text.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    if line.starts_with(b"[") {
        return envoy_text::read(line, fields);
    }
    let (mut time, mut peer) = (None, None);
    members(line, |key, value| {
        let text = value.text();
        let known = text.and_then(LoggedText::known);
        match key {
            b"start_time" => time = text,
            b"method" | b":method" => fields.method = known,
            b"path" | b":path" => fields.target = known,
            b"authority" | b":authority" => fields.host = known,
            b"response_code" => fields.status = text.and_then(status),
            b"duration" => fields.duration = text.and_then(|text| span(text.raw(), 3)),
            b"bytes_received" => fields.bytes_in = text.and_then(number),
            b"bytes_sent" => fields.bytes_out = text.and_then(number),
            b"downstream_remote_address" => peer = text.and_then(|text| client(text.raw())),
            b"x_forwarded_for" => known.into_iter().for_each(|addresses| fields.set_client(addresses.raw())),
            b"user_agent" => fields.user_agent = Some(known.unwrap_or_default()),
            b"request_id" => fields.headers.push((LoggedText::plain(b"x-request-id"), known)),
            _ => (),
        }
        Continue(())
    })
    .ok_or(ProblemKind::NotReadable)?;
    let time = time.ok_or(ProblemKind::NotReadable)?;
    fields.time = any_time(time.raw());
    fields.client = fields.client.or(peer);
    Ok(())
}
