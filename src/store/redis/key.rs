//! Which states may share a key.

use std::fmt::{self, Display, Formatter};

use crate::limit::Algorithm;

/// A part of every key: the format of the state, the algorithm, and for windows and logs the period in µs. `1t`, `1f60000000`.
///
/// States under different versions are never mistaken for one another, so gateways with different configurations or of different
/// builds may use one server. A build that writes another format takes another number.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a>(pub &'a Algorithm);

impl Display for Version<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let period = self.0.window().0;
        match self.0 {
            Algorithm::TokenBucket(_) => f.write_str("1t"),
            Algorithm::Gcra(_) => f.write_str("1g"),
            Algorithm::LeakyBucket(_) => f.write_str("1l"),
            Algorithm::FixedWindow(_) => write!(f, "1f{period}"),
            Algorithm::SlidingWindow(_) => write!(f, "1w{period}"),
            Algorithm::SlidingLog(_) => write!(f, "1s{period}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Align;
    use crate::limit::units::{Cost, Micros, Rate};

    #[test]
    fn versions_tell_algorithms_and_periods_apart_but_not_other_numbers() {
        let of = |algorithm: Algorithm| Version(&algorithm).to_string();
        let minute = Rate::new(5, Micros(60_000_000)).unwrap();
        let (second, more) = (Rate::new(5, Micros::SECOND).unwrap(), Rate::new(6, Micros::SECOND).unwrap());
        assert_eq!(of(Algorithm::token_bucket(minute, Cost::ONE)), "1t");
        assert_eq!(of(Algorithm::gcra(second, Cost::ONE)), "1g");
        assert_eq!(of(Algorithm::leaky_bucket(minute, Cost::ONE, Micros::SECOND)), "1l");
        assert_eq!(of(Algorithm::fixed_window(minute, Align::Clock)), "1f60000000");
        assert_eq!(of(Algorithm::fixed_window(more, Align::FirstRequest)), "1f1000000");
        assert_eq!(of(Algorithm::sliding_window(second)), of(Algorithm::sliding_window(more)));
        assert_eq!(of(Algorithm::sliding_log(more, Some(Micros(7)), true)), "1s1000000");
    }
}
