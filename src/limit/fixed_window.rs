//! The fixed window: `rate`'s count per window of `rate`'s period.
//!
//! Bound: at most the count is admitted in one window, so up to twice the count in a period across an edge. A debt ends
//! with its window. Windows of a calendar have different lengths.

use std::fmt::{self, Display as _, Formatter};

use super::calendar::{CalendarUnit, CalendarWindows};
use super::limiter::{Limiter, Names, Packed, Stored, Viewed};
use super::rate_params::{PerUnit, WrittenRate};
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Align, Decision, Verdict, Wait, changed};

/// The parameters of a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    rate: Rate,
    align: Align,
}

/// The window of the last charge, and the units charged in it: at most 2^32 - 1. The default is unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) start: Timestamp,
    pub(super) count: u32,
}

impl Stored for State {
    fn pack(&self) -> Option<Packed> {
        Some(Packed { at: self.start, used: self.count.into() })
    }

    fn unpack(packed: Packed) -> Option<Self> {
        Some(Self { start: packed.at, count: packed.low() })
    }
}

impl Algorithm {
    /// `rate`'s count per window of `rate`'s period.
    pub fn fixed_window(rate: Rate, align: Align) -> Self {
        Self::FixedWindow(FixedWindow::new(rate, align))
    }
}

impl FixedWindow {
    /// Windows of `rate`'s period that begin by `align`. Those of a calendar have its lengths, whatever the period.
    pub fn new(rate: Rate, align: Align) -> Self {
        Self { rate, align }
    }

    /// The calendar that windows follow, if they do.
    pub fn calendar(&self) -> Option<CalendarWindows> {
        if let Align::Calendar(calendar) = self.align { Some(calendar) } else { None }
    }

    #[inline]
    fn end(&self, window: State) -> Timestamp {
        if let Align::Calendar(calendar) = self.align {
            return calendar_window(calendar, window.start).1;
        }
        window.start.plus(self.rate.period())
    }
}

/// Out of line, so that the windows of equal length cost what they did before calendars: 10 % less for a refusal.
#[cold]
#[inline(never)]
fn calendar_window(calendar: CalendarWindows, now: Timestamp) -> (Timestamp, Timestamp) {
    calendar.window(now)
}

impl Limiter for FixedWindow {
    type State = State;

    const NAMES: Names = Names {
        name: "fixed-window",
        letter: 'f',
        quota: "rate",
        module: ("fixed_window", include_str!("fixed_window.lua")),
    };

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    #[inline(always)]
    fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        self.decide_by_view(state, now, cost)
    }

    fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Decision {
        self.peek_by_view(*state, now, cost)
    }

    /// Corrects the count of the window that is current at `now`. A refund of another window is void.
    fn settle(&self, state: State, admitted_at: Timestamp, difference: i64, now: Timestamp) -> State {
        let window = self.view(state, now);
        let has_passed = !(window.start..self.end(window)).contains(&admitted_at);
        if has_passed && difference < 0 {
            return state;
        }
        match changed(window.count, difference) {
            0 => State::default(),
            count => State { count, ..window },
        }
    }

    fn counted_at(&self, state: &State, now: Timestamp) -> Timestamp {
        now.max(state.start)
    }

    /// Any time of the window will do; the clock may have run backwards.
    fn grant(&self, state: State, units: Cost, now: Timestamp) -> State {
        self.settle(state, now.max(state.start), -i64::from(units.units()), now)
    }

    /// The window is the one that ends `reset_after` from `now`, even if windows are aligned to a clock: the store's
    /// clock may be another. Of a calendar it is the window of that moment.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        match self.rate.count().saturating_sub(remaining) {
            0 => State::default(),
            count => {
                let end = now.plus(reset_after.max(Micros(1)));
                let start = match self.align {
                    Align::Clock | Align::FirstRequest => {
                        Timestamp(end.0.saturating_sub(self.rate.period().0))
                    }
                    Align::Calendar(calendar) => calendar.window(Timestamp(end.0 - 1)).0,
                };
                State { start, count }
            }
        }
    }

    /// The end of the window, if it has charges.
    fn forget_at(&self, state: &State) -> Timestamp {
        if state.count == 0 { Timestamp(0) } else { self.end(*state) }
    }

    /// Units charged in the window that is current at `now`.
    fn in_use(&self, state: &State, now: Timestamp) -> u64 {
        self.view(*state, now).count.into()
    }

    /// Windows of a calendar are kept only if the calendar is the same.
    fn convert(&self, from: &Self, state: State, _now: Timestamp) -> State {
        let is_same = self.rate.period() == from.rate.period() && self.calendar() == from.calendar();
        if is_same { state } else { State::default() }
    }

    fn numbers(&self) -> [u64; 5] {
        let align = match self.align {
            Align::Clock => 0,
            Align::FirstRequest => 1,
            Align::Calendar(_) => 2,
        };
        [self.rate.period().0, self.rate.count().into(), align, 0, 0]
    }

    /// The edges of a calendar.
    fn spans(&self, now: Timestamp) -> &[Micros] {
        self.calendar().map_or(&[], |calendar| calendar.near(now))
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.calendar() {
            Some(calendar) => {
                write!(f, "{}/{}", self.rate.count(), calendar.unit().word())?;
                explain_start(f, calendar)?;
                match calendar.time_zone() {
                    "UTC" => Ok(()),
                    time_zone => write!(f, " ({time_zone})"),
                }
            }
            None => WrittenRate(self.rate).fmt(f),
        }
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let align = match self.align {
            Align::Clock => "clock-aligned",
            Align::FirstRequest => "from the first request",
            Align::Calendar(calendar) => return explain_calendar(f, self.rate.count(), calendar),
        };
        write!(f, "{} in each {} ({align})", self.rate.count(), PerUnit(self.rate.period()))
    }
}

/// `10000 in each month from the 15th (Europe/Berlin)`.
fn explain_calendar(f: &mut Formatter<'_>, count: u32, calendar: CalendarWindows) -> fmt::Result {
    write!(f, "{count} in each calendar {}", calendar.unit().word())?;
    explain_start(f, calendar)?;
    write!(f, " ({})", calendar.time_zone())
}

/// ` from day 15`, unless the windows begin on the usual day.
fn explain_start(f: &mut Formatter<'_>, calendar: CalendarWindows) -> fmt::Result {
    match calendar.unit() {
        CalendarUnit::WeekFromSunday => f.write_str(" from Sunday"),
        CalendarUnit::Month(day) if day > 1 => write!(f, " from day {day}"),
        _ => Ok(()),
    }
}

impl Viewed for FixedWindow {
    type View = State;

    /// The window of `now`. A time before the state's window counts as within it.
    #[inline]
    fn view(&self, state: State, now: Timestamp) -> State {
        if state.count > 0 && now < self.end(state) {
            return state;
        }
        let start = match self.align {
            Align::Clock => Timestamp(now.0 - now.0 % self.rate.period().0),
            Align::FirstRequest => now,
            Align::Calendar(calendar) => calendar_window(calendar, now).0,
        };
        State { start, count: 0 }
    }

    #[inline(always)]
    fn verdict(&self, window: State, now: Timestamp, cost: Cost) -> Verdict {
        if cost.units() > self.rate.count() {
            Verdict::Deny(Wait::Never)
        } else if window.count <= self.rate.count() - cost.units() {
            Verdict::Allow
        } else {
            Verdict::Deny(Wait::After(self.end(window).since(now)))
        }
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, window: State, now: Timestamp) -> Decision {
        let remaining = self.rate.count().saturating_sub(window.count).into();
        let reset_after = if window.count == 0 { Micros(0) } else { self.end(window).since(now) };
        Decision { verdict, remaining, reset_after }
    }

    #[inline(always)]
    fn charged(&self, window: State, cost: Cost) -> State {
        State { count: window.count.saturating_add(cost.units()), ..window }
    }
}
