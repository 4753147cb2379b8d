//! Times and spans as servers write them, exact to the microsecond.

use std::net::{IpAddr, Ipv6Addr};

use crate::limit::units::{EXACT, Micros, Timestamp};

/// A time that a person writes: RFC 3339, perhaps without decimals or offset.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    rfc3339(text.as_bytes())
}

/// A time in any of the forms: RFC 3339, seconds since 1970 (also milli-, micro- and nanoseconds), common log format, wall
/// time of Go (`2026/01/31 23:59:59.999`).
pub(super) fn any_time(text: &[u8]) -> Option<Timestamp> {
    match text.get(4) {
        Some(b'-') => rfc3339(text),
        Some(b'/') => year_first(text, b'/'),
        _ if text.contains(&b'/') => common_time(text),
        _ => epoch(text),
    }
}

/// `2026-01-31T23:59:59.999999Z`, also with an offset, other counts of decimals, or a blank for the `T`. Without an offset
/// it is a time in UTC.
pub(super) fn rfc3339(text: &[u8]) -> Option<Timestamp> {
    year_first(text, b'-')
}

fn year_first(text: &[u8], separator: u8) -> Option<Timestamp> {
    let (date, mut rest) = text.split_first_chunk::<19>()?;
    let &[y1, y2, y3, y4, p1, m1, m2, p2, d1, d2, b'T' | b't' | b' ', h1, h2, b':', n1, n2, b':', s1, s2] =
        date
    else {
        return None;
    };
    if p1 != separator || p2 != separator {
        return None;
    }
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let seconds = clock_seconds([h1, h2, n1, n2, s1, s2])?;
    let mut micros = 0;
    if let [b'.' | b',', decimals @ ..] = rest {
        let length = decimals.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(decimals.len());
        micros = fraction(decimals.get(..length)?)?;
        rest = decimals.get(length..)?;
    }
    let offset = match rest {
        [] | b"Z" | b"z" => 0,
        [sign, h1, h2, b':', n1, n2] | [sign, h1, h2, n1, n2] => offset([*sign, *h1, *h2, *n1, *n2])?,
        _ => return None,
    };
    moment(days(year, two(m1, m2)?, two(d1, d2)?)?, seconds - offset, micros)
}

/// `10/Oct/2000:13:55:36 -0700`.
pub(super) fn common_time(text: &[u8]) -> Option<Timestamp> {
    let (date, zone) = text.split_first_chunk::<20>()?;
    let &[b' ', sign, h1, h2, n1, n2] = zone else { return None };
    let (days, seconds) = common_date(date)?;
    moment(days, seconds - offset([sign, h1, h2, n1, n2])?, 0)
}

/// `06/Feb/2009:12:14:14.655`, which has no time zone: a time in UTC.
pub(super) fn common_time_without_zone(text: &[u8]) -> Option<Timestamp> {
    let (date, rest) = text.split_first_chunk::<20>()?;
    let micros = match rest {
        [] => 0,
        [b'.', decimals @ ..] if decimals.iter().all(u8::is_ascii_digit) => fraction(decimals)?,
        _ => return None,
    };
    let (days, seconds) = common_date(date)?;
    moment(days, seconds, micros)
}

/// The days since 1970 and the seconds of the day of `10/Oct/2000:13:55:36`.
fn common_date(text: &[u8; 20]) -> Option<(i64, i64)> {
    let &[d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':', h1, h2, b':', n1, n2, b':', s1, s2] = text
    else {
        return None;
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let seconds = clock_seconds([h1, h2, n1, n2, s1, s2])?;
    Some((days(year, month([m1, m2, m3])?, two(d1, d2)?)?, seconds))
}

/// The number of a month: `Jan` is 1.
pub(super) const fn month(name: [u8; 3]) -> Option<i64> {
    Some(match &name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

/// A number since 1970. Its size tells its unit: seconds until the year 5138, then milli-, micro- and nanoseconds.
pub(super) fn epoch(text: &[u8]) -> Option<Timestamp> {
    let whole = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let micros = match whole {
        0..=11 => decimal(text, 6)?,
        12..=14 => decimal(text, 3)?,
        15..=17 => decimal(text, 0)?,
        _ => decimal(text, -3)?,
    };
    (micros < EXACT).then_some(Timestamp(micros))
}

/// A span of this many units of 10^`exponent` µs.
pub(super) fn span(text: &[u8], exponent: i32) -> Option<Micros> {
    decimal(text, exponent).filter(|micros| *micros < EXACT).map(Micros)
}

/// A span as Go writes it: `1.5ms`, `1m2.5s`; a number without unit means seconds.
pub(super) fn go_span(text: &[u8]) -> Option<Micros> {
    if text.is_empty() {
        return None;
    }
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.iter().take_while(|byte| !byte.is_ascii_digit()).count();
        let (unit, after) = after.split_at_checked(letters)?;
        let (exponent, factor) = match unit {
            b"ns" => (-3, 1),
            b"us" | b"\xc2\xb5s" | b"\xce\xbcs" => (0, 1),
            b"ms" => (3, 1),
            b"" | b"s" => (6, 1),
            b"m" => (6, 60),
            b"h" => (6, 3_600),
            _ => return None,
        };
        sum = sum.checked_add(decimal(number, exponent)?.checked_mul(factor)?)?;
        rest = after;
    }
    (sum < EXACT).then_some(Micros(sum))
}

/// The number times 10^`exponent`, rounded to a whole one. Negative numbers have none.
pub(super) fn decimal(text: &[u8], exponent: i32) -> Option<u64> {
    if text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return with_exponent(text, exponent);
    }
    let (mut sum, mut has_digit, mut decimals, mut next) = (0_u64, false, None, 0);
    for &byte in text {
        match (byte, decimals) {
            (b'0'..=b'9', Some(place)) if place >= exponent => {
                if place == exponent {
                    next = byte - b'0';
                }
                decimals = Some(place + 1);
            }
            (b'0'..=b'9', _) => {
                sum = sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                decimals = decimals.map(|place| place + 1);
            }
            (b'.', None) => decimals = Some(0),
            _ => return None,
        }
        has_digit |= byte != b'.';
    }
    if !has_digit {
        return None;
    }
    let missing = exponent - decimals.unwrap_or(0).min(exponent.max(0));
    if missing >= 0 {
        let scaled = sum.checked_mul(10_u64.checked_pow(missing.unsigned_abs())?)?;
        return scaled.checked_add(u64::from(next >= 5));
    }
    let divisor = 10_u64.checked_pow(missing.unsigned_abs())?;
    Some(sum / divisor + u64::from(sum % divisor >= divisor / 2))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn with_exponent(text: &[u8], exponent: i32) -> Option<u64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let scaled = (number * 10_f64.powi(exponent)).round();
    (0.0..9e15).contains(&scaled).then_some(scaled as u64)
}

/// The address of a client: alone, or with a port; an address of IPv4 within IPv6 is that of IPv4.
pub(super) fn client(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let bracketed = || text.strip_prefix('[')?.split_once(']')?.0.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let with_port = || text.rsplit_once(':')?.0.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4);
    let without_zone = || text.split_once('%')?.0.parse::<IpAddr>().ok();
    let address = text.parse().ok().or_else(with_port).or_else(bracketed).or_else(without_zone);
    address.map(|address: IpAddr| address.to_canonical())
}

/// The address of `ADDRESS:PORT`. Addresses of IPv6 come with and without brackets, so the port is what follows the last
/// colon.
pub(super) fn client_with_port(text: &[u8]) -> Option<IpAddr> {
    let (address, port) = text.split_at_checked(memchr::memrchr(b':', text)?)?;
    let port = port.get(1..)?;
    let is_port = (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    if is_port { client(address) } else { None }
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
    is_number.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

fn clock_seconds([h1, h2, n1, n2, s1, s2]: [u8; 6]) -> Option<i64> {
    let (hours, minutes, seconds) = (two(h1, h2)?, two(n1, n2)?, two(s1, s2)?);
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(hours * 3_600 + minutes * 60 + seconds)
}

/// Seconds east of UTC.
fn offset([sign, h1, h2, n1, n2]: [u8; 5]) -> Option<i64> {
    let seconds = two(h1, h2)? * 3_600 + two(n1, n2)? * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// The first six decimals as microseconds.
fn fraction(decimals: &[u8]) -> Option<i64> {
    if decimals.is_empty() {
        return None;
    }
    let digits = decimals.iter().map(|digit| i64::from(digit - b'0')).chain(std::iter::repeat(0));
    Some(digits.take(6).fold(0, |sum, digit| sum * 10 + digit))
}

/// Days since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// Moments before 1970 become 1970.
fn moment(days: i64, seconds: i64, micros: i64) -> Option<Timestamp> {
    let micros = (days * 86_400 + seconds).checked_mul(1_000_000)?.checked_add(micros)?;
    let micros = u64::try_from(micros).unwrap_or(0);
    (micros < EXACT).then_some(Timestamp(micros))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn times_of_all_forms_are_read() {
        let expected = Some(Timestamp(971_211_336_000_000));
        for text in [
            "10/Oct/2000:13:55:36 -0700",
            "2000-10-10T20:55:36Z",
            "2000-10-10T13:55:36-07:00",
            "2000-10-10 20:55:36.000",
            "2000/10/10 20:55:36",
            "2000/10/10 20:55:36.000000000",
            "971211336",
            "971211336.000",
            "971211336000",
            "971211336000000",
            "971211336000000000",
            "9.71211336e8",
        ] {
            assert_eq!(any_time(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(rfc3339(b"2025-12-31T23:59:59.999999Z"), Some(Timestamp(1_767_225_599_999_999)));
        assert_eq!(epoch(b"1646861401.5241024"), Some(Timestamp(1_646_861_401_524_102)));
        for text in [
            "",
            "-",
            "2000-13-10T20:55:36Z",
            "2000-10-10T24:55:36Z",
            "2000-10-10T20:55:36X",
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "2000/10-10 20:55:36",
        ] {
            assert_eq!(any_time(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn times_without_a_zone_are_those_of_utc() {
        let expected = 971_211_336_000_000;
        let read = |text: &str| common_time_without_zone(text.as_bytes());
        assert_eq!(read("10/Oct/2000:20:55:36"), Some(Timestamp(expected)));
        assert_eq!(read("10/Oct/2000:20:55:36.655"), Some(Timestamp(expected + 655_000)));
        for text in ["10/Oct/2000:20:55:36.", "10/Oct/2000:20:55:36.6x", "10/Oct/2000:20:55:36 +0000", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_exact() {
        assert_eq!(span(b"1.234", 3), Some(Micros(1_234)));
        assert_eq!(span(b"0.0005", 3), Some(Micros(1)));
        assert_eq!(span(b"45420", -3), Some(Micros(45)));
        assert_eq!(span(b"45500", -3), Some(Micros(46)));
        assert_eq!(span(b"45500.9", -3), Some(Micros(46)));
        assert_eq!(span(b"0.000929675", 6), Some(Micros(930)));
        assert_eq!(span(b"-1", 3), None);
        assert_eq!(span(b".", 3), None);
        assert_eq!(go_span(b"1.5ms"), Some(Micros(1_500)));
        assert_eq!(go_span(b"1m2.5s"), Some(Micros(62_500_000)));
        assert_eq!(go_span("12.3µs".as_bytes()), Some(Micros(12)));
        assert_eq!(go_span(b"fast"), None);
    }

    #[test]
    fn clients_are_read_with_and_without_port() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1"),
        ] {
            assert_eq!(client(text.as_bytes()), address.parse().ok(), "{text}");
        }
        assert_eq!(client(b"unix:"), None);
    }

    #[test]
    fn of_an_address_with_a_port_the_last_colon_is_before_the_port() {
        for (text, address) in [
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("2001:db8::1:33317", Some("2001:db8::1")),
            ("::1:1234", Some("::1")),
            ("[::1]:1234", Some("::1")),
            ("::ffff:192.0.2.1:80", Some("192.0.2.1")),
            ("2a02:a33c:4538:1:bcf4:5264:e01c:f215:50718", Some("2a02:a33c:4538:1:bcf4:5264:e01c:f215")),
            ("unix:1", None),
            ("192.0.2.1", None),
            ("192.0.2.1:", None),
            ("::1:abcd", None),
        ] {
            let expected = address.and_then(|address| address.parse().ok());
            assert_eq!(client_with_port(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn dates_are_those_of_the_calendar(seconds in 0_i64..7_000_000_000) {
            let date = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            let found = days(date.year().into(), u8::from(date.month()).into(), date.day().into());
            prop_assert_eq!(found, Some(seconds / 86_400));
        }

        #[test]
        fn milliseconds_of_doubles_are_exact(micros in 0_u64..1 << 45) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let text = serde_json::to_string(&(micros as f64 / 1_000.0)).unwrap();
            prop_assert_eq!(span(text.as_bytes(), 3), Some(Micros(micros)));
        }

        #[test]
        fn random_text_is_read_without_panic(text in "[0-9:./eE+TZ a-z-]{0,40}") {
            let bytes = text.as_bytes();
            let _ = (any_time(bytes), common_time_without_zone(bytes), go_span(bytes));
            let _ = (client(bytes), client_with_port(bytes));
            for exponent in [-3, 0, 3, 6] {
                let _ = decimal(bytes, exponent);
            }
        }
    }
}
