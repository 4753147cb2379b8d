//! The JSON lines of Traefik (<https://doc.traefik.io/traefik/observability/access-logs/>). They have the start of a
//! request.

use std::ops::ControlFlow::Continue;

use super::fields::{LineFields, number, status};
use super::json::members;
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{client, rfc3339, span};

/// Reads a line.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    let (mut utc, mut local, mut peer) = (None, None, None);
    members(line, |key, value| {
        let text = value.text();
        let known = text.and_then(LoggedText::known);
        match key {
            b"StartUTC" => utc = text,
            b"StartLocal" => local = text,
            b"ClientHost" => fields.client = text.and_then(|text| client(text.raw())),
            b"ClientAddr" => peer = text.and_then(|text| client(text.raw())),
            b"ClientUsername" => fields.consumer = Some(known.unwrap_or_default()),
            b"RequestMethod" => fields.method = known,
            b"RequestPath" => fields.target = known,
            b"RequestHost" => fields.host = known,
            b"Duration" => fields.duration = text.and_then(|text| span(text.raw(), -3)),
            b"DownstreamStatus" => fields.status = text.and_then(status),
            b"DownstreamContentSize" => fields.bytes_out = text.and_then(number),
            b"RequestContentSize" => fields.bytes_in = text.and_then(number),
            _ => {
                if let (Some(name), Some(value)) = (key.strip_prefix(b"request_"), text)
                    && value.raw() != b"REDACTED"
                {
                    fields.headers.push((LoggedText::plain(name), Some(value)));
                }
            }
        }
        Continue(())
    })
    .ok_or(ProblemKind::NotReadable)?;
    let time = utc.or(local).ok_or(ProblemKind::NotReadable)?;
    fields.time = rfc3339(time.raw());
    fields.client = fields.client.or(peer);
    Ok(())
}
