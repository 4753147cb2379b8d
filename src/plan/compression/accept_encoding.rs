//! `accept-encoding` (RFC 9110, 12.5.3): which codings a client prefers.

use super::Encoding;
use crate::http1::syntax::{items, trim_blanks};

/// How much a client wants something, in thousandths: 0 is not at all.
type Weight = u16;

/// The most that a client can want something.
const MAX_WEIGHT: Weight = 1_000;

/// The weights of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preferences {
    zstd: Option<Weight>,
    brotli: Option<Weight>,
    gzip: Option<Weight>,
    identity: Option<Weight>,
    /// `*`: each coding that is not named.
    others: Option<Weight>,
}

impl Preferences {
    /// Reads all values of the field. Of a coding that is named twice, the last weight counts; an item with a malformed
    /// weight is left out.
    pub(super) fn read<'v>(values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut preferences = Self::default();
        for item in values.flat_map(items) {
            let mut parts = item.split(|&byte| byte == b';').map(trim_blanks);
            let name = parts.next().unwrap_or_default();
            let Some(weight) = parts.next().map_or(Some(MAX_WEIGHT), weight) else { continue };
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let place = match name {
                _ if is("zstd") => &mut preferences.zstd,
                _ if is("br") => &mut preferences.brotli,
                _ if is("gzip") || is("x-gzip") => &mut preferences.gzip,
                _ if is("identity") => &mut preferences.identity,
                _ if is("*") => &mut preferences.others,
                _ => continue,
            };
            *place = Some(weight);
        }
        preferences
    }

    /// The coding of these with the largest weight, of several the first. `None`: the client wants none of them, or the body
    /// as it is rather than these.
    pub(super) fn choose(self, offered: &[Encoding]) -> Option<Encoding> {
        let mut best = None;
        for &encoding in offered {
            let weight = self.weight(encoding);
            if weight > best.map_or(0, |(weight, _)| weight) {
                best = Some((weight, encoding));
            }
        }
        let (weight, encoding) = best?;
        // A body that is not named is acceptable, but no more than that.
        (weight >= self.identity.unwrap_or(0)).then_some(encoding)
    }

    fn weight(self, encoding: Encoding) -> Weight {
        let named = match encoding {
            Encoding::Zstd => self.zstd,
            Encoding::Brotli => self.brotli,
            Encoding::Gzip => self.gzip,
        };
        named.or(self.others).unwrap_or(0)
    }
}

/// `q=0.5`: 500. `None` if it is not a weight (RFC 9110, 12.4.2).
fn weight(parameter: &[u8]) -> Option<Weight> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else { return None };
    let (whole, decimals) = match value {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| Weight::from(decimals.get(at).map_or(0, |digit| digit - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(MAX_WEIGHT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(values: &[&str]) -> Option<&'static str> {
        let values = values.iter().map(|value| value.as_bytes());
        Preferences::read(values).choose(&Encoding::ALL).map(Encoding::name)
    }

    #[test]
    fn the_largest_weight_is_chosen_and_of_equal_ones_the_first_offered() {
        for (values, expected) in [
            (&["gzip"][..], Some("gzip")),
            (&["x-gzip"], Some("gzip")),
            (&["GZIP, Deflate, BR, zstd"], Some("zstd")),
            (&["gzip, deflate, br"], Some("br")),
            (&["gzip;q=1.0, br;q=0.9, zstd;q=0.899"], Some("gzip")),
            (&["gzip; q=0.001 ,br ;q=0"], Some("gzip")),
            (&["gzip", "br"], Some("br")),
            (&["*"], Some("zstd")),
            (&["*;q=0.5, gzip"], Some("gzip")),
            (&["*, zstd;q=0"], Some("br")),
            (&["gzip;q=0.5, identity"], None),
            (&["gzip, identity"], Some("gzip")),
            (&["gzip, identity;q=0"], Some("gzip")),
            (&["identity;q=0"], None),
            (&["*;q=0"], None),
            (&["gzip;q=0"], None),
            (&["deflate, compress"], None),
            (&[""], None),
            (&[","], None),
            (&[], None),
        ] {
            assert_eq!(chosen(values), expected, "{values:?}");
        }
    }

    #[test]
    fn an_item_with_a_malformed_weight_is_left_out() {
        for malformed in
            ["q", "q=", "q=2", "q=1.001", "q=0.0001", "q=-1", "q=.5", "q=0,5", "q =1", "level=1", "q=1e0"]
        {
            assert_eq!(chosen(&[&format!("zstd;{malformed}, gzip;q=0.1")]), Some("gzip"), "{malformed}");
        }
        for sound in ["q=1", "q=1.", "q=1.000", "Q=0.2", "q=0.200"] {
            assert_eq!(chosen(&[&format!("zstd;{sound}, gzip;q=0.1")]), Some("zstd"), "{sound}");
        }
    }
}
