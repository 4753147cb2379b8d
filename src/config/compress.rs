//! `compress` of a route, or of all routes in `[server]`.

use super::conditions::distinct;
use super::keys::{SOME, Schema, keys, size};
use super::report::quoted;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::plan::HeaderEdits;
use crate::plan::compression::{Compression, Encoding, MediaTypePattern, MediaTypes};

keys! {
    /// Which responses of backends are compressed, and how. A route has those of [server] unless it says `compress`
    /// itself.
    pub(super) COMPRESS: CompressKeys = "compress" {
        /// The media types that are compressed: "text/html", "text/*" (all but event streams, which only
        /// "text/event-stream" stands for), "application/*+json". Default: text, JSON, XML, JavaScript, SVG, WebAssembly.
        types = Schema::Set(SOME, &Schema::Text);
        /// The least length of a body that its backend declares. A body without a declared length is compressed whatever
        /// its length.
        min: u64 = size(0, 1 << 30) => 1 << 10;
        /// The codings that clients are offered; of those that a client likes equally, the first. Default: zstd, br, gzip.
        encodings = Schema::Set(SOME, &Schema::Words(&["zstd", "br", "gzip"]));
    }
}

/// `compress` in the schema.
pub(super) const EITHER: Schema = Schema::Either(&[Schema::Flag, Schema::Table(&COMPRESS)]);

const ENCODINGS: [(&str, Encoding); 3] =
    [("zstd", Encoding::Zstd), ("br", Encoding::Brotli), ("gzip", Encoding::Gzip)];

/// Reads `compress`. `Some(None)`: nothing is compressed; `None`: it has faults.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<Option<Compression>> {
    if !value.is_table() {
        if value.written_boolean().is_none() && !value.is_text() {
            let help = "write `compress = true`, or `compress = { types = [\"text/html\"], min = \"1KiB\" }`";
            return value.mismatch("`true`, `false` or a table", help);
        }
        return Some(value.boolean()?.then(Compression::default));
    }
    let mut table = value.table("`compress`")?;
    let default = Compression::default();
    let types = table.or(&COMPRESS.types, Some(default.types), |value| Some(types(&value)));
    let min = table.value(&COMPRESS.min);
    let encodings = table.or(&COMPRESS.encodings, Some(default.encodings), |value| Some(encodings(&value)));
    table.finish().then_some(())?;
    Some(Some(Compression { types: types?, min, encodings: encodings? }))
}

fn types(value: &ConfigValue<'_>) -> Option<MediaTypes> {
    distinct(value, media_type).map(|types| MediaTypes(types.into()))
}

fn media_type(value: &ConfigValue<'_>) -> Option<MediaTypePattern> {
    value.text()?.parse("a media type", |text| {
        MediaTypePattern::parse(text).ok_or_else(|| {
            let help = "write `text/html`, `text/*` or `application/*+json`, without parameters";
            SyntaxError::new(format!("{} is not a media type", quoted(text)), help)
        })
    })
}

fn encodings(value: &ConfigValue<'_>) -> Option<Box<[Encoding]>> {
    distinct(value, |item| item.choice(&ENCODINGS)).map(Into::into)
}

/// Reports edits of the field that says how a body is compressed.
pub(super) fn check_edits(value: &ConfigValue<'_>, edits: &HeaderEdits) {
    if edits.touches(b"content-encoding") {
        let message =
            "`content-encoding` is edited beside `compress`: clients could not read compressed bodies";
        value.fault(message, "leave one of the two out");
    }
}
