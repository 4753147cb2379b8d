//! The form in which a client is answered, and the fields that every answer needs.

use bytes::BytesMut;
use http::StatusCode;

use super::headers::{put_field, put_number, put_status};

/// What the form of an answer depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The client speaks HTTP/1.1 (else HTTP/1.0).
    pub(crate) http_11: bool,
    /// It sent HEAD: the answer has no body.
    pub(crate) to_head: bool,
    /// The connection stays open after the answer.
    pub(crate) keep: bool,
}

/// An answer of our own.
#[derive(Debug)]
pub(crate) struct Own<'a> {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'a [u8],
    pub(crate) body: &'a [u8],
    /// Whether a cache may keep it.
    pub(crate) no_store: bool,
}

impl Own<'_> {
    /// Writes the answer, with the `fields` that belong to this one.
    pub(crate) fn write(
        &self,
        form: Form,
        date: &[u8],
        out: &mut BytesMut,
        fields: impl FnOnce(&mut BytesMut),
    ) {
        put_status(out, form.http_11, self.status, None);
        put_field(out, b"content-type", self.content_type);
        if self.no_store {
            out.extend_from_slice(b"cache-control: no-store\r\n");
        }
        fields(out);
        put_number(out, b"content-length", self.body.len() as u64);
        put_field(out, b"date", date);
        put_connection(form, out);
        out.extend_from_slice(b"\r\n");
        if !form.to_head {
            out.extend_from_slice(self.body);
        }
    }
}

/// Says whether the connection stays open, where the client would not expect it (RFC 9112 §9.3).
pub(crate) fn put_connection(form: Form, out: &mut BytesMut) {
    match form {
        Form { keep: false, .. } => out.extend_from_slice(b"connection: close\r\n"),
        Form { http_11: false, .. } => out.extend_from_slice(b"connection: keep-alive\r\n"),
        Form { .. } => {}
    }
}
