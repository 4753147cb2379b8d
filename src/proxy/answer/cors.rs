//! The headers by which a browser lets a script read a response (the Fetch standard, "CORS protocol").

use bytes::BytesMut;
use http::header;

use crate::http1::fields::Fields;
use crate::http1::head_writer::{put_field, put_number};
use crate::plan::cors::{AllowedHeaders, Cors, Origins};

/// The prefix of all CORS headers.
const PREFIX: &[u8] = b"access-control-";

/// Whether this is a CORS header.
pub(crate) fn is_cors(name: &[u8]) -> bool {
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// The CORS headers of a response on a route with `cors`.
pub(crate) fn put_actual(cors: &Cors, fields: Fields<'_>, out: &mut BytesMut) {
    if put_origin(cors, fields, out) {
        put_field(out, b"access-control-expose-headers", cors.exposed.as_bytes());
    }
}

/// The CORS headers of the response to a preflight.
pub(crate) fn put_preflight(cors: &Cors, fields: Fields<'_>, out: &mut BytesMut) {
    if !put_origin(cors, fields, out) {
        return;
    }
    put_field(out, b"access-control-allow-methods", cors.methods.as_bytes());
    let allowed = match &cors.headers {
        // Listed one by one: `*` would not cover `authorization`, nor requests with credentials.
        AllowedHeaders::Asked => fields.first(&header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default(),
        AllowedHeaders::Listed(listed) => listed.as_bytes(),
    };
    if !allowed.is_empty() {
        put_field(out, b"access-control-allow-headers", allowed);
    }
    put_number(out, b"access-control-max-age", cors.max_age);
}

/// Writes the site that may read the response. False if the requesting site may not.
fn put_origin(cors: &Cors, fields: Fields<'_>, out: &mut BytesMut) -> bool {
    let any = cors.origins == Origins::Any && !cors.credentials;
    if !any {
        // A cache must not give one site the response made for another, even one without these headers.
        put_field(out, b"vary", b"origin");
    }
    let Some(origin) = fields.first(&header::ORIGIN).filter(|origin| cors.origins.include(origin)) else {
        return false;
    };
    put_field(out, b"access-control-allow-origin", if any { b"*" } else { origin });
    if cors.credentials {
        put_field(out, b"access-control-allow-credentials", b"true");
    }
    true
}
