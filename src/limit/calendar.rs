//! Windows of a calendar: days, weeks, months and years as they begin in a time zone.
//!
//! The core knows no time zones: it is given all moments at which windows begin. So their lengths differ, and a look-up
//! costs no more than two comparisons while the window is the present one.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::units::Micros;
use super::wall_clock::WallTime;

/// A unit of the calendar that a window is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// Seven days from Monday.
    Week,
    /// Seven days from Sunday.
    WeekFromSunday,
    /// From this day of a month, 1 to 31, to that of the next one; of a shorter month, from its last day.
    Month(u8),
    /// From 1 January.
    Year,
}

impl CalendarUnit {
    /// The word in a rate: `10000/month`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week | Self::WeekFromSunday => "week",
            Self::Month(_) => "month",
            Self::Year => "year",
        }
    }

    /// The length of the longest one that has no change of the clock.
    pub fn longest(self) -> Micros {
        const DAY: u64 = 86_400_000_000;
        Micros(match self {
            Self::Day => DAY,
            Self::Week | Self::WeekFromSunday => 7 * DAY,
            Self::Month(_) => 31 * DAY,
            Self::Year => 366 * DAY,
        })
    }
}

/// The windows of one unit in one time zone. Two are equal if their names are.
#[derive(Clone, Copy)]
pub struct CalendarWindows(&'static CalendarTable);

/// The moments at which the windows of a [`CalendarWindows`] begin.
pub struct CalendarTable {
    name: Box<str>,
    unit: CalendarUnit,
    time_zone: Box<str>,
    /// Ascending; as spans since 1970, in which form Redis gets them.
    edges: Box<[Micros]>,
    /// The index of the window that was looked up last: nearly always the next one's, too.
    last: AtomicUsize,
}

/// The number of edges that Redis gets: those of the last, the present and the next window, since its clock is another.
const SENT: usize = 4;

impl CalendarTable {
    /// A table from the moments at which windows begin. `None` unless there are enough, ascending.
    pub fn new(unit: CalendarUnit, time_zone: &str, edges: Box<[Micros]>) -> Option<Self> {
        let is_sound = edges.len() >= SENT && edges.is_sorted_by(|one, next| one < next);
        let name = match unit {
            CalendarUnit::WeekFromSunday => format!("week-sunday@{time_zone}"),
            CalendarUnit::Month(day) => format!("month-{day}@{time_zone}"),
            _ => format!("{}@{time_zone}", unit.word()),
        };
        is_sound.then(|| Self {
            name: name.into(),
            unit,
            time_zone: time_zone.into(),
            edges,
            last: AtomicUsize::new(0),
        })
    }
}

impl CalendarWindows {
    /// The calendar of a table, which lives as long as the process.
    pub const fn of(table: &'static CalendarTable) -> Self {
        Self(table)
    }

    /// Names unit, start and time zone: `month-15@Europe/Berlin`.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The unit of its windows.
    pub fn unit(self) -> CalendarUnit {
        self.0.unit
    }

    /// The time zone that windows begin in.
    pub fn time_zone(self) -> &'static str {
        &self.0.time_zone
    }

    /// The window of `now`: its begin and its end. A time beyond the table belongs to the nearest window.
    #[inline]
    pub fn window(self, now: WallTime) -> (WallTime, WallTime) {
        let at = self.index(now);
        (self.edge(at), self.edge(at + 1))
    }

    /// The edges of the windows before, at and after `now`.
    pub fn near(self, now: WallTime) -> &'static [Micros] {
        let table = self.0;
        let first = self.index(now).saturating_sub(1).min(table.edges.len() - SENT);
        table.edges.get(first..first + SENT).unwrap_or_default()
    }

    #[inline]
    fn index(self, now: WallTime) -> usize {
        let last = self.0.last.load(Ordering::Relaxed);
        if self.edge(last) <= now && now < self.edge(last + 1) { last } else { self.search(now) }
    }

    #[cold]
    fn search(self, now: WallTime) -> usize {
        let begun = self.0.edges.partition_point(|edge| edge.0 <= now.0);
        let at = begun.saturating_sub(1).min(self.0.edges.len() - 2);
        self.0.last.store(at, Ordering::Relaxed);
        at
    }

    #[inline]
    fn edge(self, at: usize) -> WallTime {
        self.0.edges.get(at).map_or(WallTime(0), |edge| WallTime(edge.0))
    }
}

impl PartialEq for CalendarWindows {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for CalendarWindows {}

impl Hash for CalendarWindows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// Its name: [`ParamsId`](crate::store::ParamsId) is a hash of this text.
impl fmt::Debug for CalendarWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for CalendarTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CalendarTable({}, {} edges)", self.name, self.edges.len())
    }
}
