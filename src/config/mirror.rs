//! `mirror` of a route: copies of its requests for another upstream.

use super::keys::{SOME, Schema, keys, share, size};
use super::name::Directory;
use super::report::SourceSpan;
use super::split;
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::plan::UpstreamIndex;
use crate::plan::mirror::Mirror;
use crate::route::key::{Key, Repeated};

keys! {
    /// Copies of requests for another upstream, whose answers are dropped.
    pub(super) MIRROR: MirrorKeys = "mirror" {
        /// The name of the upstream that gets the copies.
        upstream = Schema::Name, required "\"NAME\"";
        /// The share of the callers whose requests are copied, above 0 to 1: of the values of `key`.
        share: f64 = share() => 1.0;
        /// What tells callers apart, as `key` of a limit. Default: the consumer, or else the client's address.
        key = Schema::Either(&[Schema::Name, Schema::List(SOME, &Schema::Name)]);
        /// The longest body that is copied, 0 to 1MiB. A request with a longer one is not copied.
        max_body: usize = size(0, 1 << 20) => 64 << 10;
    }
}

/// A mirror of the file, and the position of its value.
pub(super) struct MirrorDraft {
    pub(super) mirror: Mirror,
    pub(super) span: SourceSpan,
}

/// Reads `mirror`. `forwards`: the route has an upstream.
pub(super) fn read(
    value: &ConfigValue<'_>,
    upstreams: &Directory<'_>,
    forwards: bool,
) -> Option<MirrorDraft> {
    if !forwards {
        let message = "`mirror` has no effect: the route has no `upstream`";
        value.fault(message, "leave it out: requests are copied when they are forwarded");
    }
    let mut table = value.table("`mirror`")?;
    let upstream = table.require(&MIRROR.upstream, |value| upstreams.find(&value.text()?).map(UpstreamIndex));
    let share = table.or_default(&MIRROR.share, |value| some_share(&value));
    let key = key(&mut table);
    let max_body = table.value(&MIRROR.max_body);
    let is_sound = table.finish();
    let mirror = Mirror::new(upstream?, share, key?, max_body);
    is_sound.then(|| MirrorDraft { mirror, span: value.span() })
}

fn some_share(value: &ConfigValue<'_>) -> Option<f64> {
    let share = MIRROR.share.value.read(value)?;
    if share <= 0.0 {
        value.fault(
            "`share` is 0: no request would be copied",
            "leave `mirror` out, or write a share above 0",
        );
        return None;
    }
    Some(share)
}

/// The client's address stands in for parts that a request lacks.
fn key(table: &mut ConfigTable<'_>) -> Option<Key> {
    match table.take(&MIRROR.key) {
        None => Some(Mirror::default_key()),
        Some(value) => {
            let parts = split::parts(&value, "the key of a `mirror`")?;
            Some(Key { repeated: Some(Repeated::Join), ..Key::new(parts) })
        }
    }
}
