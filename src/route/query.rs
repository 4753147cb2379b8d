//! Parameters of a query, as forms write them: `a=1&b=2` (application/x-www-form-urlencoded, URL Standard §5).

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// The decoded values of all parameters of this name: `+` is a blank, escapes are decoded once, and an invalid one
/// stays unchanged. Names are decoded too and case-sensitive; a name without `=` has the empty value. Allocates only to
/// decode.
pub(super) fn all<'r>(
    query: &'r str,
    name: &'r str,
) -> impl Iterator<Item = Cow<'r, [u8]>> + Clone + use<'r> {
    query.split('&').filter_map(move |pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*decoded(found.as_bytes()) == *name.as_bytes()).then(|| decoded(value.as_bytes()))
    })
}

/// The query without the parameters whose decoded name is `hidden`; `None` if there are none.
pub(super) fn without(query: &str, hidden: impl Fn(&[u8]) -> bool) -> Option<String> {
    let keeps = |pair: &&str| !hidden(&decoded(pair.split('=').next().unwrap_or_default().as_bytes()));
    if query.split('&').all(|pair| keeps(&pair)) {
        return None;
    }
    let kept: Vec<&str> = query.split('&').filter(keeps).collect();
    Some(kept.join("&"))
}

/// A name or a value, decoded: `+` is a blank, and an invalid escape stays unchanged.
pub(super) fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    let blanks: Vec<u8> = bytes.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&blanks).collect())
}
