//! `compress`: which responses of backends are compressed, and by which content coding (RFC 9110, 8.4.1).

mod accept_encoding;
mod media_types;

use bytes::BytesMut;
use http::StatusCode;

use super::HeaderEdits;
use super::template::TemplateValues;
use crate::http1::fields::{Field, Fields};
use crate::http1::name::Name;
use crate::http1::response::ResponseHead;
use crate::http1::syntax::{has_item, is_named, items};
use accept_encoding::Preferences;
pub use media_types::{MediaTypePattern, MediaTypes};

/// `compress` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The media types that are compressed.
    pub types: MediaTypes,
    /// The least length of a body in bytes, where the backend declares one.
    pub min: u64,
    /// The codings that are offered, the best first; no coding twice.
    pub encodings: Box<[Encoding]>,
}

impl Default for Compression {
    /// `compress = true`.
    fn default() -> Self {
        Self { types: MediaTypes::default(), min: 1 << 10, encodings: Encoding::ALL.into() }
    }
}

/// A content coding that responses are compressed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `zstd` (RFC 8878).
    Zstd,
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl Encoding {
    /// All codings, in the order of preference if the file names none.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// Its name in `content-encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// What a response of a route with `compress` is for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    /// The coding of its body; `None`: it goes on as it is, but another client might get it compressed.
    pub encoding: Option<Encoding>,
    /// Whether its entity tag becomes a weak one.
    pub weakens_tag: bool,
}

/// Fields about the very bytes of a body (RFC 9530, RFC 3230, RFC 1864): compressed, these would be others.
const DIGESTS: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// What the media types of gRPC begin with.
const GRPC: &[u8] = b"application/grpc";

impl Compression {
    /// The coding that a client prefers of those offered, by the values of its `accept-encoding`. `None`: it accepts none
    /// of these, or prefers the body as it is.
    pub fn choose<'v>(&self, accepted: impl Iterator<Item = &'v [u8]>) -> Option<Encoding> {
        Preferences::read(accepted).choose(&self.encodings)
    }

    /// How the response goes to a client that accepts `accepted` and asks whether its copy with a weak tag is current if
    /// `has_weak_tag`. `None`: as it is for all clients. `edits`: those of the route, which decide as the backend's fields
    /// do; `values` has the values of their templates.
    pub fn represent<'v>(
        &self,
        head: &ResponseHead,
        fields: Fields<'_>,
        (accepted, has_weak_tag): (Option<Encoding>, bool),
        edits: &HeaderEdits,
        values: impl FnOnce() -> TemplateValues<'v>,
    ) -> Option<Representation> {
        if head.status == StatusCode::NOT_MODIFIED {
            // It confirms the client's copy, which has the tag that the client got it with.
            return Some(Representation { encoding: None, weakens_tag: has_weak_tag });
        }
        let is_long_enough = head.content_length.is_none_or(|length| length >= self.min.max(1));
        if !is_long_enough || is_bodiless(head.status) || !self.may_change(fields, edits, values) {
            return None;
        }
        Some(Representation { encoding: accepted, weakens_tag: accepted.is_some() })
    }

    /// Whether the body may be compressed, by the fields about it as the client gets them.
    fn may_change<'v>(
        &self,
        fields: Fields<'_>,
        edits: &HeaderEdits,
        values: impl FnOnce() -> TemplateValues<'v>,
    ) -> bool {
        // The client is told of another coding than that of the gateway, or of none.
        if edits.touches(b"content-encoding") {
            return false;
        }
        let mut has_type = None;
        let passing = |field: &Field<'_>| !edits.touches(field.name);
        if fields.iter().filter(passing).any(|field| self.objects(field, &mut has_type)) {
            return false;
        }
        // Most routes set nothing.
        if !edits.set.is_empty() {
            let (values, mut scratch) = (values(), BytesMut::new());
            for (name, template) in &edits.set {
                let name = name.as_str().as_bytes();
                let value = template.value(&values, &mut scratch);
                if self.objects(Field { known: Name::of(name), name, value }, &mut has_type) {
                    return false;
                }
            }
        }
        has_type == Some(true)
    }

    /// Whether a field forbids to compress the body. `has_type`: whether its media type is one that is compressed, once that
    /// is known.
    fn objects(&self, field: Field<'_>, has_type: &mut Option<bool>) -> bool {
        match field.name.len() {
            12 if is_named(field.name, b"content-type") => {
                // Two of them have no meaning.
                has_type.replace(!is_grpc(field.value) && self.types.has(field.value)).is_some()
            }
            13 if is_named(field.name, b"cache-control") => forbids_transforms(field.value),
            13 if is_named(field.name, b"content-range") => true,
            16 if is_named(field.name, b"content-encoding") => !is_identity(field.value),
            _ if field.known == Name::Trailer => DIGESTS.iter().any(|digest| has_item(field.value, digest)),
            _ => DIGESTS.iter().any(|digest| is_named(field.name, digest)),
        }
    }
}

/// Whether a response with this status has no body, or a part of one.
fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT)
}

/// The messages of gRPC have a coding of their own, and their lengths are those of the backend.
fn is_grpc(media_type: &[u8]) -> bool {
    media_type.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

/// `no-transform` (RFC 9111, 5.2.2.6).
fn forbids_transforms(cache_control: &[u8]) -> bool {
    has_item(cache_control, b"no-transform")
}

fn is_identity(codings: &[u8]) -> bool {
    items(codings).all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

impl Representation {
    /// As the backend has it.
    pub const UNCHANGED: Self = Self { encoding: None, weakens_tag: false };

    /// Whether the gateway writes this field of the response itself.
    #[must_use]
    pub fn replaces(&self, name: &[u8]) -> bool {
        match name.len() {
            4 => self.weakens_tag && is_named(name, b"etag"),
            // Ranges would be those of the body that the backend has.
            13 => self.encoding.is_some() && is_named(name, b"accept-ranges"),
            // At most "identity", which is no coding (RFC 9110, 8.4).
            16 => self.encoding.is_some() && is_named(name, b"content-encoding"),
            _ => false,
        }
    }
}

/// Whether the value of `vary` tells that the response depends on `accept-encoding`.
#[must_use]
pub fn varies_by_encoding(vary: &[u8]) -> bool {
    has_item(vary, b"accept-encoding") || has_item(vary, b"*")
}

/// Whether a value of `if-none-match` names a weak tag.
#[must_use]
pub fn names_weak_tag(if_none_match: &[u8]) -> bool {
    let begins_at = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| if_none_match.get(before));
        before.is_none_or(|byte| b", \t".contains(byte))
    };
    if_none_match.windows(3).enumerate().any(|(at, part)| part == b"W/\"" && begins_at(at))
}

#[cfg(test)]
mod tests;
