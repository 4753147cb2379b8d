//! The fixed window: `rate`'s count per window of `rate`'s period.
//!
//! Bound: at most the count is admitted in one window, so up to twice the count in a period across an edge. A debt ends
//! with its window. Windows of a calendar have different lengths.

use std::fmt::{self, Display as _, Formatter};

use super::calendar::{CalendarUnit, CalendarWindows};
use super::limiter::{Limiter, Names, Packed, Stored, Viewed};
use super::rate_params::{PerUnit, WrittenRate};
use super::units::{Cost, Micros, Rate, Timestamp};
use super::wall_clock::{self, WallTime};
use super::{Algorithm, Align, Decision, Verdict, Wait, changed};

/// The parameters of a fixed window, and the windows: of equal length, or those of a calendar. They are two algorithms, so
/// that windows of equal length cost a decision nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow<W = EqualWindows> {
    pub(crate) rate: Rate,
    pub(crate) windows: W,
}

/// A fixed window of a calendar.
pub type CalendarWindow = FixedWindow<CalendarWindows>;

/// Windows of the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EqualWindows {
    /// At multiples of the period since 1970 UTC.
    Clock,
    /// At the first request.
    FirstRequest,
}

/// Where windows begin and end.
pub trait Windows: Copy {
    /// The begin of the window of a charge at `now`, without an earlier one.
    fn start(self, period: Micros, now: Timestamp) -> Timestamp;

    /// The end of the window that began at `start`; `Timestamp(0)` if a step of the wall clock has ended it.
    fn end(self, period: Micros, start: Timestamp) -> Timestamp;

    /// The begin of the window that ends at `end`.
    fn start_of(self, period: Micros, end: Timestamp) -> Timestamp;

    /// The calendar that they follow, if they do.
    fn calendar(self) -> Option<CalendarWindows>;

    /// Which windows they are: a parameter of the Lua implementation.
    fn number(self) -> u64;

    /// See `Limiter::abridge`.
    fn abridge(self, rate: Rate, f: &mut Formatter<'_>) -> fmt::Result;

    /// See `Limiter::explain`.
    fn explain(self, rate: Rate, f: &mut Formatter<'_>) -> fmt::Result;
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
        match align {
            Align::Clock => Self::FixedWindow(FixedWindow { rate, windows: EqualWindows::Clock }),
            Align::FirstRequest => {
                Self::FixedWindow(FixedWindow { rate, windows: EqualWindows::FirstRequest })
            }
            Align::Calendar(windows) => Self::CalendarWindow(FixedWindow { rate, windows }),
        }
    }
}

impl<W: Windows> FixedWindow<W> {
    /// The same windows, with another rate.
    pub(super) fn with_rate(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// The calendar that windows follow, if they do.
    pub fn calendar(&self) -> Option<CalendarWindows> {
        self.windows.calendar()
    }

    #[inline(always)]
    fn end(&self, window: State) -> Timestamp {
        self.windows.end(self.rate.period(), window.start)
    }
}

impl Windows for EqualWindows {
    #[inline(always)]
    fn start(self, period: Micros, now: Timestamp) -> Timestamp {
        match self {
            Self::Clock => wall_clock::system()
                .stepped(|clock| clock.window(now, |wall| of_clock(period, wall)).start)
                .unwrap_or(Timestamp(now.0 - now.0 % period.0)),
            Self::FirstRequest => now,
        }
    }

    #[inline(always)]
    fn end(self, period: Micros, start: Timestamp) -> Timestamp {
        match self {
            Self::Clock => wall_clock::system()
                .stepped(|clock| clock.end(start, |wall| of_clock(period, wall)))
                .flatten()
                .unwrap_or(start.plus(period)),
            Self::FirstRequest => start.plus(period),
        }
    }

    fn start_of(self, period: Micros, end: Timestamp) -> Timestamp {
        Timestamp(end.0.saturating_sub(period.0))
    }

    fn calendar(self) -> Option<CalendarWindows> {
        None
    }

    fn number(self) -> u64 {
        u64::from(self == Self::FirstRequest)
    }

    fn abridge(self, rate: Rate, f: &mut Formatter<'_>) -> fmt::Result {
        WrittenRate(rate).fmt(f)
    }

    fn explain(self, rate: Rate, f: &mut Formatter<'_>) -> fmt::Result {
        let align = match self {
            Self::Clock => "clock-aligned",
            Self::FirstRequest => "from the first request",
        };
        write!(f, "{} in each {} ({align})", rate.count(), PerUnit(rate.period()))
    }
}

/// The window of `period` at multiples of it since 1970.
fn of_clock(period: Micros, wall: WallTime) -> (WallTime, WallTime) {
    let start = WallTime(wall.0 - wall.0 % period.0);
    (start, start.plus(period))
}

impl Windows for CalendarWindows {
    #[inline]
    fn start(self, _period: Micros, now: Timestamp) -> Timestamp {
        wall_clock::system()
            .stepped(|clock| clock.window(now, |wall| self.window(wall)).start)
            .unwrap_or_else(|| Timestamp(self.window(WallTime(now.0)).0.0))
    }

    #[inline]
    fn end(self, _period: Micros, start: Timestamp) -> Timestamp {
        wall_clock::system()
            .stepped(|clock| {
                let own = || clock.window(start, |wall| self.window(wall)).end;
                clock.end(start, |wall| self.window(wall)).unwrap_or_else(own)
            })
            .unwrap_or_else(|| Timestamp(self.window(WallTime(start.0)).1.0))
    }

    /// The edge that is nearest to `end`, which another clock has told, counts: a reply that took a while would otherwise
    /// name the window after.
    fn start_of(self, period: Micros, end: Timestamp) -> Timestamp {
        let start = self.start(period, Timestamp(end.0.saturating_sub(1)));
        match end.since(start) < self.end(period, start).since(end) {
            true => self.start(period, Timestamp(start.0.saturating_sub(1))),
            false => start,
        }
    }

    fn calendar(self) -> Option<CalendarWindows> {
        Some(self)
    }

    fn number(self) -> u64 {
        2
    }

    fn abridge(self, rate: Rate, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", rate.count(), self.unit().word())?;
        explain_start(f, self)?;
        match self.time_zone() {
            "UTC" => Ok(()),
            time_zone => write!(f, " ({time_zone})"),
        }
    }

    fn explain(self, rate: Rate, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} in each calendar {}", rate.count(), self.unit().word())?;
        explain_start(f, self)?;
        write!(f, " ({})", self.time_zone())
    }
}

impl<W: Windows> Limiter for FixedWindow<W> {
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
    /// clock may be another. Of a calendar it is the window whose end is nearest to that moment.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        match self.rate.count().saturating_sub(remaining) {
            0 => State::default(),
            count => {
                let end = now.plus(reset_after.max(Micros(1)));
                let start = self.windows.start_of(self.rate.period(), end);
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

    fn params(&self) -> [u64; 5] {
        [self.rate.period().0, self.rate.count().into(), self.windows.number(), 0, 0]
    }

    /// The edges of a calendar.
    fn spans(&self, now: WallTime) -> &[Micros] {
        self.calendar().map_or(&[], |calendar| calendar.near(now))
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.windows.abridge(self.rate, f)
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.windows.explain(self.rate, f)
    }
}

/// ` from day 15`, unless the windows begin on the usual day.
fn explain_start(f: &mut Formatter<'_>, calendar: CalendarWindows) -> fmt::Result {
    match calendar.unit() {
        CalendarUnit::WeekFromSunday => f.write_str(" from Sunday"),
        CalendarUnit::Month(day) if day > 1 => write!(f, " from day {day}"),
        _ => Ok(()),
    }
}

impl<W: Windows> Viewed for FixedWindow<W> {
    type View = State;

    /// The window of `now`. A time before the state's window counts as within it.
    #[inline]
    fn view(&self, state: State, now: Timestamp) -> State {
        if state.count > 0 && now < self.end(state) {
            return state;
        }
        let start = self.windows.start(self.rate.period(), now);
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
