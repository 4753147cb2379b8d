//! Numbers as a person would write them.

/// The roundest number near `value` that is at least `min`, at most a tenth away from `value` (below 10: less than 1
/// above it). `min` is at most `value`.
pub(super) fn round(value: f64, min: u32) -> u32 {
    if value < 10.0 {
        return whole(value).max(min);
    }
    let step = step(value);
    let nearest = (value / step).round() * step;
    let rounded = if nearest < f64::from(min) { (value / step).ceil() * step } else { nearest };
    whole(rounded)
}

/// The distance of round numbers near `value`: 1 below 20, 5 below 50, 10 below 200, 50 below 500, …
fn step(value: f64) -> f64 {
    let mut scale = 1.0;
    while value / scale >= 100.0 {
        scale *= 10.0;
    }
    match value / scale {
        low if low < 20.0 => scale,
        middle if middle < 50.0 => 5.0 * scale,
        _ => 10.0 * scale,
    }
}

/// A count that a limit may have: 1 to 10^9.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped to the range")]
fn whole(value: f64) -> u32 {
    value.ceil().clamp(1.0, f64::from(crate::limit::units::Cost::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_round_and_never_below_the_minimum() {
        for (value, min, rounded) in [
            (1.5, 1, 2),
            (7.2, 7, 8),
            (13.4, 12, 13),
            (33.0, 22, 35),
            (31.0, 31, 35),
            (151.0, 100, 150),
            (163.0, 163, 170),
            (1_512.0, 1_008, 1_500),
            (8_640.0, 5_760, 9_000),
            (0.0, 0, 1),
            (1e30, 1, 1_000_000_000),
        ] {
            assert_eq!(round(value, min), rounded, "{value}");
        }
    }
}
