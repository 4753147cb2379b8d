//! Cookies of a request (RFC 6265 §4.2).

use http::header::COOKIE;

use crate::http1::fields::Fields;

/// The value of the first cookie of this name, over all `Cookie` fields as sent. Names are case-sensitive. One pair
/// of quotes around the value is left away: backends that read `id="x"` as `id=x` would else see one session where we
/// see two clients.
pub(super) fn first<'r>(headers: Fields<'r>, name: &str) -> Option<&'r [u8]> {
    let fields = headers.all(&COOKIE).iter();
    let mut pairs = fields.flat_map(|field| field.split(|&byte| byte == b';'));
    pairs.find_map(|pair| {
        let (found, value) = pair.split_at_checked(memchr::memchr(b'=', pair)?)?;
        (found.trim_ascii() == name.as_bytes()).then(|| unquoted(value[1..].trim_ascii()))
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}
