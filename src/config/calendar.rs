//! `align`, `starts` and `time_zone` of a fixed window.

use super::diagnostics::Diagnostics;
use super::keys::{Schema, choice, keys};
use super::report::{SourceSpan, quoted};
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::limit::Align;
use crate::limit::calendar::CalendarUnit;
use crate::limit::units::Rate;
use crate::time_zones;

keys! {
    /// When the windows of a limit begin.
    pub(super) CALENDAR: CalendarKeys = "windows of a limit" {
        /// fixed-window: windows begin at multiples of their length since 1970 UTC, with a key's first request, or
        /// as days, weeks, months and years of the calendar do. Default "clock"; of `/month` and `/year`
        /// "calendar".
        align: WrittenAlign = choice(&ALIGN);
        /// fixed-window by the calendar: the first day of its weeks, or of its months from 1 to 31 (of a shorter
        /// month its last day). Default "monday" and 1.
        starts = Schema::Either(&[Schema::Words(&["monday", "sunday"]), Schema::Whole(1, 31)]);
        /// fixed-window by the calendar: the time zone whose midnight counts, such as "Europe/Berlin". Default
        /// "UTC".
        time_zone = Schema::Text;
    }
}

/// `align` as written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WrittenAlign {
    Clock,
    FirstRequest,
    Calendar,
}

pub(super) const ALIGN: [(&str, WrittenAlign); 3] = [
    ("clock", WrittenAlign::Clock),
    ("first-request", WrittenAlign::FirstRequest),
    ("calendar", WrittenAlign::Calendar),
];

/// When windows of a calendar begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Starts {
    Monday,
    Sunday,
    DayOfMonth(u8),
}

const WEEKDAYS: [(&str, Starts); 2] = [("monday", Starts::Monday), ("sunday", Starts::Sunday)];

/// The settings of a fixed window beside its rate, as far as they are written.
#[derive(Clone, Copy, Default)]
pub(super) struct CalendarSettings {
    align: Option<WrittenAlign>,
    starts: Option<(Starts, SourceSpan)>,
    /// Of a zone that exists.
    time_zone: Option<(&'static str, SourceSpan)>,
    /// `align` is a variable whose value is not known.
    is_uncertain: bool,
}

/// A rate of a fixed window.
pub(super) struct CalendarRate<'a> {
    pub(super) text: &'a str,
    pub(super) rate: Rate,
    /// Of `/month` and `/year`.
    pub(super) unit: Option<CalendarUnit>,
    pub(super) span: SourceSpan,
}

impl CalendarSettings {
    pub(super) fn read(table: &mut ConfigTable<'_>) -> Self {
        Self {
            align: table.get(&CALENDAR.align),
            starts: table.optional(&CALENDAR.starts, |value| Some((starts(&value)?, value.span()))),
            time_zone: table.optional(&CALENDAR.time_zone, |value| Some((time_zone(&value)?, value.span()))),
            is_uncertain: table.is_uncertain("align"),
        }
    }

    /// These, or where they are not written the other ones.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            align: self.align.or(other.align),
            starts: self.starts.or(other.starts),
            time_zone: self.time_zone.or(other.time_zone),
            is_uncertain: self.is_uncertain || other.is_uncertain,
        }
    }

    /// Where the windows of a rate begin. `None` if there are faults.
    pub(super) fn align(&self, written: &CalendarRate<'_>, diagnostics: &Diagnostics<'_>) -> Option<Align> {
        let unit = match (self.align, written.unit) {
            (None | Some(WrittenAlign::Clock), None) => return Some(Align::Clock),
            (Some(WrittenAlign::FirstRequest), None) => return Some(Align::FirstRequest),
            (None | Some(WrittenAlign::Calendar), Some(unit)) => unit,
            (Some(WrittenAlign::Calendar), None) => whole_unit(written, diagnostics)?,
            (Some(WrittenAlign::Clock | WrittenAlign::FirstRequest), Some(unit)) => {
                let message =
                    format!("{} counts by the calendar, and `align` does not", quoted(written.text));
                let help = format!("leave `align` out, or write days instead of a {}", unit.word());
                diagnostics.fault(written.span, message, help);
                return None;
            }
        };
        let unit = match (unit, self.starts) {
            (CalendarUnit::Week, Some((Starts::Sunday, _))) => CalendarUnit::WeekFromSunday,
            (CalendarUnit::Month(_), Some((Starts::DayOfMonth(day), _))) => CalendarUnit::Month(day),
            (unit, _) => unit,
        };
        // Zones are checked where they are read.
        let zone = self.time_zone.map_or(UTC, |(name, _)| name);
        time_zones::calendar(unit, zone).map(Align::Calendar)
    }

    /// Settings that have no effect on any of the rates are faults.
    pub(super) fn check<'r>(
        &self,
        rates: impl Iterator<Item = CalendarRate<'r>> + Clone,
        diagnostics: &Diagnostics<'_>,
    ) {
        if self.is_uncertain {
            return;
        }
        let days = |rate: &CalendarRate<'_>| rate.rate.period().0 / DAY;
        let by_calendar = self.align == Some(WrittenAlign::Calendar);
        let has_week = by_calendar && rates.clone().any(|rate| rate.unit.is_none() && days(&rate) == 7);
        let has_month = rates.clone().any(|rate| matches!(rate.unit, Some(CalendarUnit::Month(_))));
        let is_unused = match self.starts {
            None => false,
            Some((Starts::Monday | Starts::Sunday, _)) => !has_week,
            Some((Starts::DayOfMonth(_), _)) => !has_month,
        };
        if let Some((starts, span)) = self.starts.filter(|_| is_unused) {
            let (noun, rate) = match starts {
                Starts::DayOfMonth(_) => ("month", "\"10000/month\""),
                _ => ("calendar week", "\"1000/week\"` and `align = \"calendar\""),
            };
            let message = format!("`starts` has no effect: no rate of this limit is of a {noun}");
            diagnostics.fault(span, message, format!("leave it out, or write `rate = {rate}`"));
        }
        let has_calendar = by_calendar || rates.clone().any(|rate| rate.unit.is_some());
        if let Some((_, span)) = self.time_zone.filter(|_| !has_calendar) {
            let message = "`time_zone` has no effect: the windows of this limit do not follow the calendar";
            diagnostics.fault(span, message, "leave it out, or write `align = \"calendar\"`");
        }
        let is_of_clock = |rate: &CalendarRate<'_>| {
            self.align.is_none() && rate.unit.is_none() && rate.rate.period().0.is_multiple_of(DAY)
        };
        if let Some((zone, span)) = self.time_zone.filter(|(zone, _)| has_calendar && *zone != UTC)
            && let Some(rate) = rates.clone().find(is_of_clock)
        {
            let message = format!(
                "`time_zone` has no effect on {}, whose windows begin at midnight UTC",
                quoted(rate.text)
            );
            diagnostics.warn(
                span,
                message,
                format!("write `align = \"calendar\"` for days and weeks of {zone}"),
            );
        }
    }
}

const UTC: &str = "UTC";
const DAY: u64 = 86_400_000_000;

/// A whole day or week.
fn whole_unit(written: &CalendarRate<'_>, diagnostics: &Diagnostics<'_>) -> Option<CalendarUnit> {
    match written.rate.period() {
        period if period == CalendarUnit::Day.longest() => Some(CalendarUnit::Day),
        period if period == CalendarUnit::Week.longest() => Some(CalendarUnit::Week),
        _ => {
            let message = format!("the period of {} is not a unit of the calendar", quoted(written.text));
            diagnostics.fault(
                written.span,
                message,
                "write `/day`, `/week`, `/month` or `/year`, or another `align`",
            );
            None
        }
    }
}

fn starts(value: &ConfigValue<'_>) -> Option<Starts> {
    if value.is_text() {
        return value.choice(&WEEKDAYS);
    }
    let day = value.whole(1..=31)?;
    u8::try_from(day).ok().map(Starts::DayOfMonth)
}

/// The name of a zone that exists.
fn time_zone(value: &ConfigValue<'_>) -> Option<&'static str> {
    let text = value.text()?;
    let found = time_zones::name(text.as_str());
    if found.is_none() {
        value.fault(
            format!("{} is not a time zone", text.quoted()),
            "write a name of the time zone database, such as `Europe/Berlin` or `UTC`",
        );
    }
    found
}
