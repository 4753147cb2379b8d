//! Cookies of a request (RFC 6265 §4.2).

use std::borrow::Cow;

use http::header::COOKIE;
use percent_encoding::percent_decode;

use crate::http1::fields::Fields;

/// The values of all cookies of this name, over all `Cookie` headers as sent. Names are case-sensitive. One pair of
/// quotes around a value is removed, and escapes are decoded once: many backends read `id="x"` and `id=%78` as `id=x`,
/// and would see one session where the gateway sees several clients. Allocates only to decode.
pub fn all<'r>(headers: Fields<'r>, name: &'r str) -> impl Iterator<Item = Cow<'r, [u8]>> + Clone + use<'r> {
    let fields = headers.all(&COOKIE).iter();
    let pairs = fields.flat_map(|field| field.split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        let (found, value) = pair.split_at_checked(memchr::memchr(b'=', pair)?)?;
        (found.trim_ascii() == name.as_bytes()).then(|| decoded(unquoted(value[1..].trim_ascii())))
    })
}

/// The value of a `Cookie` header without the cookies whose name is `hidden`; `None` if there are none.
pub(super) fn without(value: &[u8], hidden: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let is_hidden = |pair: &[u8]| {
        let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
        hidden(name.trim_ascii())
    };
    let pairs = value.split(|&byte| byte == b';');
    if !pairs.clone().any(is_hidden) {
        return None;
    }
    let kept: Vec<&[u8]> = pairs.filter(|pair| !is_hidden(pair)).collect();
    if kept.iter().all(|pair| pair.trim_ascii().is_empty()) {
        return Some(Vec::new());
    }
    Some(kept.join(&b";"[..]).trim_ascii().to_vec())
}

fn decoded(value: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr(b'%', value) {
        Some(_) => percent_decode(value).into(),
        None => Cow::Borrowed(value),
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}
