//! Calendars in time zones: at which moments days, weeks, months and years begin.
//!
//! The rules are those of the system's time zone database, or where it has none those that the binary contains.

use std::sync::LazyLock;

use dashmap::{DashMap, Entry};
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp, civil};

use crate::limit::calendar::{CalendarTable, CalendarUnit, CalendarWindows};
use crate::limit::units::{EXACT, Micros};

/// The first year with windows, and the last: of all moments that a decision may have.
const YEARS: (i16, i16) = (1969, 2256);

/// All calendars so far. They are never freed: a plan has few, and a reload mostly has the same ones.
static KNOWN: LazyLock<DashMap<(CalendarUnit, String), CalendarWindows>> = LazyLock::new(DashMap::new);

/// The name of the time zone that `name` stands for. `None`: there is no such zone.
pub fn name(name: &str) -> Option<&'static str> {
    calendar(CalendarUnit::Year, name).map(CalendarWindows::time_zone)
}

/// The windows of a unit in the time zone of this name, such as `Europe/Berlin` or `UTC`. `None`: there is no such zone.
/// The table of a calendar is computed once: its entry is locked meanwhile.
pub fn calendar(unit: CalendarUnit, time_zone: &str) -> Option<CalendarWindows> {
    let zone = TimeZone::get(time_zone).ok()?;
    let name = zone.iana_name().unwrap_or(time_zone).to_owned();
    match KNOWN.entry((unit, name)) {
        Entry::Occupied(known) => Some(*known.get()),
        Entry::Vacant(entry) => {
            let table = CalendarTable::new(unit, &entry.key().1, edges(unit, &zone))?;
            Some(*entry.insert(CalendarWindows::of(Box::leak(Box::new(table)))))
        }
    }
}

/// The windows with this [`CalendarWindows::name`], such as `month-15@Europe/Berlin`. `None`: there are no such windows.
pub fn named(name: &str) -> Option<CalendarWindows> {
    let (unit, time_zone) = name.split_once('@')?;
    let unit = match (unit, unit.strip_prefix("month-")) {
        ("day", _) => CalendarUnit::Day,
        ("week", _) => CalendarUnit::Week,
        ("week-sunday", _) => CalendarUnit::WeekFromSunday,
        ("year", _) => CalendarUnit::Year,
        (_, Some(day)) => CalendarUnit::Month(day.parse().ok().filter(|day| (1..=31).contains(day))?),
        _ => return None,
    };
    calendar(unit, time_zone)
}

/// When the windows begin. A day whose midnight a change of the clock skips begins with the first moment after it; of a
/// midnight that comes twice the first counts. A day that a zone skips has no window.
fn edges(unit: CalendarUnit, zone: &TimeZone) -> Box<[Micros]> {
    let mut edges: Vec<Micros> = Vec::new();
    // A moment before 1970 is that of the first window.
    let since_1970 = |moment: Timestamp| u64::try_from(moment.as_microsecond()).unwrap_or(0);
    let moments = dates(unit).filter_map(|date| Some(Micros(since_1970(midnight(date, zone)?).min(EXACT))));
    for moment in moments {
        if edges.last().is_none_or(|last| *last < moment) {
            edges.push(moment);
        }
    }
    edges.into()
}

/// The first moment of a day.
fn midnight(date: Date, zone: &TimeZone) -> Option<Timestamp> {
    let found = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
    let is_skipped = matches!(found.offset(), AmbiguousOffset::Gap { .. });
    let moment = found.compatible().ok()?;
    if !is_skipped {
        return Some(moment);
    }
    let after = moment.checked_add(SignedDuration::from_nanos(1)).ok()?;
    Some(zone.preceding(after).next().map_or(moment, |change| change.timestamp()))
}

/// The dates on which windows begin, ascending.
fn dates(unit: CalendarUnit) -> Box<dyn Iterator<Item = Date>> {
    let first = civil::date(YEARS.0, 1, 1);
    let days = |from: Date, days: i64| from.series(Span::new().days(days));
    let months =
        || (YEARS.0..YEARS.1).flat_map(|year| (1..=12).map(move |month| civil::date(year, month, 1)));
    let end = civil::date(YEARS.1, 1, 1);
    match unit {
        CalendarUnit::Day => Box::new(days(first, 1).take_while(move |date| *date < end)),
        // 30 December 1968 was a Monday.
        CalendarUnit::Week => {
            Box::new(days(civil::date(1968, 12, 30), 7).take_while(move |date| *date < end))
        }
        CalendarUnit::WeekFromSunday => {
            Box::new(days(civil::date(1968, 12, 29), 7).take_while(move |date| *date < end))
        }
        CalendarUnit::Month(day) => Box::new(months().map(move |first| {
            let day = i8::try_from(day).unwrap_or(1).clamp(1, first.days_in_month());
            civil::date(first.year(), first.month(), day)
        })),
        CalendarUnit::Year => Box::new((YEARS.0..YEARS.1).map(|year| civil::date(year, 1, 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::units::{Cost, Rate, Timestamp as Moment};
    use crate::limit::wall_clock::WallTime;
    use crate::limit::{Algorithm, Align, State, Verdict, Wait};

    /// A moment as in `2026-03-29T02:30:00Z`.
    fn at(text: &str) -> Moment {
        let moment: Timestamp = text.parse().expect(text);
        Moment(u64::try_from(moment.as_microsecond()).expect("after 1970"))
    }

    /// The window of a moment: its begin, and its length in hours.
    fn window(unit: CalendarUnit, zone: &str, moment: &str) -> (String, u64) {
        let (start, end) = calendar(unit, zone).expect(zone).window(WallTime(at(moment).0));
        let begin = Timestamp::from_microsecond(i64::try_from(start.0).expect("in range")).expect("in range");
        assert!(start.0 <= at(moment).0 && at(moment).0 < end.0, "{moment} in {start:?}..{end:?}");
        (begin.to_string(), end.since(start).0 / 3_600_000_000)
    }

    #[test]
    fn days_of_daylight_saving_are_an_hour_shorter_or_longer() {
        for (zone, moment, begin, hours) in [
            ("Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-27T23:00:00Z", 24),
            ("Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", 23),
            ("Europe/Berlin", "2026-03-29T21:59:59Z", "2026-03-28T23:00:00Z", 23),
            ("Europe/Berlin", "2026-03-29T22:00:00Z", "2026-03-29T22:00:00Z", 24),
            ("Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", 25),
            // Half an hour of daylight saving, beside half an hour of the zone.
            ("Australia/Lord_Howe", "2026-04-04T20:00:00Z", "2026-04-04T13:00:00Z", 24),
            ("Asia/Kolkata", "2026-06-01T00:00:00Z", "2026-05-31T18:30:00Z", 24),
            ("Pacific/Kiritimati", "2026-06-01T11:00:00Z", "2026-06-01T10:00:00Z", 24),
            ("Etc/GMT+12", "2026-06-01T11:00:00Z", "2026-05-31T12:00:00Z", 24),
            // Midnight is skipped: the day begins at one o'clock.
            ("Africa/Cairo", "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", 23),
            // The zone skipped 30 December 2011.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", 24),
            ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", 24),
            ("UTC", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", 24),
        ] {
            assert_eq!(window(CalendarUnit::Day, zone, moment), (begin.to_owned(), hours), "{zone} {moment}");
        }
    }

    #[test]
    fn months_begin_on_their_day_or_on_the_last_one() {
        for (day, moment, begin, days) in [
            (1, "2026-02-14T00:00:00Z", "2026-02-01T00:00:00Z", 28),
            (1, "2028-02-14T00:00:00Z", "2028-02-01T00:00:00Z", 29),
            (1, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", 31),
            (15, "2026-02-14T23:59:59Z", "2026-01-15T00:00:00Z", 31),
            (15, "2026-02-15T00:00:00Z", "2026-02-15T00:00:00Z", 28),
            (31, "2026-02-27T23:59:59Z", "2026-01-31T00:00:00Z", 28),
            (31, "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", 31),
            (31, "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", 31),
            (31, "2026-04-30T12:00:00Z", "2026-04-30T00:00:00Z", 31),
            (30, "2026-03-01T00:00:00Z", "2026-02-28T00:00:00Z", 30),
        ] {
            let found = window(CalendarUnit::Month(day), "UTC", moment);
            assert_eq!(found, (begin.to_owned(), 24 * days), "{day} {moment}");
        }
        let berlin = window(CalendarUnit::Month(15), "Europe/Berlin", "2026-03-20T00:00:00Z");
        assert_eq!(berlin, ("2026-03-14T23:00:00Z".to_owned(), 31 * 24 - 1));
    }

    #[test]
    fn weeks_and_years_begin_where_the_calendar_says() {
        let week = |unit| window(unit, "UTC", "2026-11-25T12:00:00Z");
        assert_eq!(week(CalendarUnit::Week), ("2026-11-23T00:00:00Z".to_owned(), 7 * 24));
        assert_eq!(week(CalendarUnit::WeekFromSunday), ("2026-11-22T00:00:00Z".to_owned(), 7 * 24));
        let year = |moment| window(CalendarUnit::Year, "America/New_York", moment);
        assert_eq!(year("2028-01-01T04:59:59Z"), ("2027-01-01T05:00:00Z".to_owned(), 365 * 24));
        assert_eq!(year("2028-01-01T05:00:00Z"), ("2028-01-01T05:00:00Z".to_owned(), 366 * 24));
    }

    #[test]
    fn zones_are_known_by_name_alone() {
        assert_eq!(name("europe/berlin"), Some("Europe/Berlin"));
        for unknown in ["", "Europe/Berlinn", "../etc/passwd", "/etc/passwd", "+01:00", "Europe/Berlin\0"] {
            assert_eq!(name(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn windows_are_found_by_the_name_that_they_give() {
        let units = [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::WeekFromSunday, CalendarUnit::Year];
        for unit in units.into_iter().chain([1, 15, 31].map(CalendarUnit::Month)) {
            let windows = calendar(unit, "Europe/Berlin").expect("a zone");
            assert_eq!(named(windows.name()), Some(windows));
        }
        for unknown in ["", "day", "day@Nowhere", "hour@UTC", "month@UTC", "month-0@UTC", "month-32@UTC"] {
            assert_eq!(named(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn the_edges_near_a_moment_are_those_around_its_window() {
        let days = calendar(CalendarUnit::Day, "UTC").expect("UTC");
        let near = days.near(WallTime(at("2026-11-25T12:00:00Z").0));
        let first = at("2026-11-24T00:00:00Z").0;
        assert_eq!(
            near.iter().map(|edge| (edge.0 - first) / 86_400_000_000).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        for end in [0, EXACT - 1, EXACT, u64::MAX].map(WallTime) {
            assert_eq!(days.near(end).len(), 4);
            assert!(days.window(end).0 < days.window(end).1);
        }
    }

    #[test]
    fn limits_in_words() {
        for (unit, zone, words) in [
            (CalendarUnit::Day, "UTC", "5 in each calendar day (UTC)"),
            (CalendarUnit::WeekFromSunday, "UTC", "5 in each calendar week from Sunday (UTC)"),
            (
                CalendarUnit::Month(15),
                "Europe/Berlin",
                "5 in each calendar month from day 15 (Europe/Berlin)",
            ),
        ] {
            let calendar = calendar(unit, zone).expect("a zone");
            let rate = Rate::new(5, unit.longest()).expect("a rate");
            assert_eq!(Algorithm::fixed_window(rate, Align::Calendar(calendar)).to_string(), words);
        }
    }

    /// The same zone by two versions of the data: the newer one knows that summer time has been abolished.
    fn versions(unit: CalendarUnit, count: u32) -> [Algorithm; 2] {
        ["CET-1CEST,M3.5.0,M10.5.0/3", "CET-1"].map(|rules| {
            let zone = TimeZone::posix(rules).expect(rules);
            let table = CalendarTable::new(unit, "Europe/Berlin", edges(unit, &zone)).expect("a calendar");
            let calendar = CalendarWindows::of(Box::leak(Box::new(table)));
            let rate = Rate::new(count, unit.longest()).expect("a rate");
            Algorithm::fixed_window(rate, Align::Calendar(calendar))
        })
    }

    /// A gateway whose data is updated, or that shares counters with one that has other data, ends a window as its own
    /// data tell. A counter is never refused for longer than that.
    #[test]
    fn a_counter_goes_on_under_another_version_of_the_data() {
        // By the older data 2 June begins at 22:00, by the newer one at 23:00.
        let disputed = at("2026-06-01T22:30:00Z");
        let [older, newer] = versions(CalendarUnit::Day, 3);
        let used_up = |algorithm: &Algorithm| {
            (0..3).fold(State::Fresh, |state, _| algorithm.decide(state, disputed, Cost::ONE).0)
        };
        let ask = |algorithm: &Algorithm, state: &State, now: &str| {
            algorithm.decide(state.clone(), at(now), Cost::ONE).1.verdict
        };
        // 2 June has begun, and it ends when 2 June begins by the newer data.
        let state = used_up(&older);
        let half_an_hour = Verdict::Deny(Wait::After(Micros(30 * 60 * 1_000_000)));
        assert_eq!(ask(&newer, &state, "2026-06-01T22:30:00Z"), half_an_hour);
        assert_eq!(ask(&newer, &state, "2026-06-01T23:00:00Z"), Verdict::Allow);
        // It is still 1 June, which is over by the older data.
        let state = used_up(&newer);
        assert_eq!(ask(&newer, &state, "2026-06-01T22:30:00Z"), half_an_hour);
        assert_eq!(ask(&older, &state, "2026-06-01T22:30:00Z"), Verdict::Allow);
        // In winter they agree.
        for algorithm in [older, newer] {
            let state = algorithm.decide(State::Fresh, at("2026-12-01T22:30:00Z"), Cost::ONE).0;
            let windows = [older, newer].map(|one| one.window_at(at("2026-12-01T22:30:00Z")));
            assert_eq!(windows, [Micros(24 * 3_600_000_000); 2]);
            assert_eq!(older.in_use(&state, at("2026-12-01T22:59:59Z")), 1);
            assert_eq!(newer.in_use(&state, at("2026-12-01T23:00:00Z")), 0);
        }
    }
}
