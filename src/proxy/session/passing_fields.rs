//! The fields of a message that pass the gateway: those of the hop stay behind, and the route's edits are applied.

use bytes::BytesMut;
use http::header::ETAG;

use crate::http1::fields::{Field, Fields};
use crate::http1::mentioned::MentionedNames;
use crate::http1::name::Name;
use crate::http2::head_sink::HeadSink;
use crate::plan::HeaderEdits;
use crate::plan::template::TemplateValues;

/// Writes the response fields for the client: not those of the backend's hop, those that the route edits, or those that
/// `replaced` names. `weakens_tag`: an entity tag that the route sets becomes a weak one.
pub(crate) fn put_answer_fields<'v>(
    fields: Fields<'_>,
    edits: &HeaderEdits,
    replaced: impl Fn(&[u8]) -> bool,
    values: impl FnOnce() -> TemplateValues<'v>,
    weakens_tag: bool,
    sink: &mut impl HeadSink,
) {
    put_passing_fields(fields, edits, replaced, sink);
    // Most routes set nothing.
    if !edits.set.is_empty() {
        match weakens_tag {
            true => sink.written(|out| put_edits_weakly(out, edits, &values())),
            false => sink.written(|out| put_edits(out, edits, values)),
        }
    }
}

/// The same as [`put_edits`], with a weak entity tag.
#[cold]
fn put_edits_weakly(out: &mut BytesMut, edits: &HeaderEdits, values: &TemplateValues<'_>) {
    let mut scratch = BytesMut::new();
    for (name, value) in &edits.set {
        if *name == ETAG && value.value(values, &mut scratch).starts_with(b"\"") {
            out.extend_from_slice(b"etag: W/");
            out.extend_from_slice(value.value(values, &mut scratch));
            out.extend_from_slice(b"\r\n");
        } else {
            value.put(name.as_str().as_bytes(), values, out);
        }
    }
}

/// Writes the backend's share of those.
pub(crate) fn put_passing_fields(
    fields: Fields<'_>,
    edits: &HeaderEdits,
    replaced: impl Fn(&[u8]) -> bool,
    sink: &mut impl HeadSink,
) {
    let nominations = ConnectionOptions::of(fields);
    let passes = |field: &Field<'_>| {
        let framing = field.known == Name::ContentLength || field.known.is_hop_by_hop();
        !framing && !nominations.name(field.name) && !edits.touches(field.name) && !replaced(field.name)
    };
    sink.passing(fields, passes);
}

/// The fields that `connection` names: they apply to one connection only (RFC 9110 §7.6.1).
#[derive(Debug)]
pub(crate) struct ConnectionOptions<'h> {
    /// `None`: there are none, which is the usual case.
    named: Option<MentionedNames<'h>>,
}

impl<'h> ConnectionOptions<'h> {
    pub(crate) fn of(fields: Fields<'h>) -> Self {
        // `keep-alive`, `close` and `upgrade` name no other field, and nearly always are the only value.
        let names_none = |value: &[u8]| match value.len() {
            5 => value.eq_ignore_ascii_case(b"close"),
            7 => value.eq_ignore_ascii_case(b"upgrade"),
            10 => value.eq_ignore_ascii_case(b"keep-alive"),
            _ => false,
        };
        let usual = fields.all_known(Name::Connection).all(names_none);
        Self { named: (!usual).then(|| Self::look(fields)) }
    }

    #[cold]
    fn look(fields: Fields<'h>) -> MentionedNames<'h> {
        let mut named = MentionedNames::of(fields.iter().map(|field| field.name));
        fields.all_known(Name::Connection).for_each(|list| named.mark(list));
        named
    }

    pub(crate) fn name(&self, name: &[u8]) -> bool {
        self.named.as_ref().is_some_and(|named| named.has(name))
    }
}

#[inline]
pub(crate) fn put_edits<'v>(
    out: &mut BytesMut,
    edits: &HeaderEdits,
    values: impl FnOnce() -> TemplateValues<'v>,
) {
    // Most routes set nothing.
    if edits.set.is_empty() {
        return;
    }
    let values = values();
    for (name, value) in &edits.set {
        value.put(name.as_str().as_bytes(), &values, out);
    }
}
