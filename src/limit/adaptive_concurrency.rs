//! Adaptive concurrency (`max = "auto"`): the maximum of a concurrency limit, found from latency.
//!
//! A backend that works on `c` requests at a time answers as fast as ever while it has up to `c` of them, and more slowly in
//! proportion beyond. So the latency at the maximum is compared with the latency far below it, route by route:
//!
//! - **Low load**: samples of requests that were admitted with at most half of the maximum in flight. Their mean over the last
//!   periods is the route's baseline.
//! - **Gradient**: the mean, over a window, of latency by baseline, of requests admitted near the maximum. At 1 nothing
//!   waits in the backend. Above [`TOLERANCE`] the maximum falls in proportion; below it grows, by less the nearer it is.
//!   Work that varies makes the gradient uncertain: the maximum falls only if the gradient less its standard error is above.
//! - **Probe**: if the load never is low by itself, the maximum is halved for some requests every few seconds.
//! - **A cut in vain**: if less in flight does not lower the gradient, the backend itself has become slower. The baselines are
//!   forgotten, and found anew.
//! - **Errors of overload** lower the maximum by up to a half, but not below half of what answered well in the last ten
//!   seconds. Other errors are neither sample nor signal.
//!
//! The gradient is that of Netflix' concurrency-limits and of Envoy's filter `adaptive_concurrency`, the probe that of BBR's
//! minimum of the round trip. docs/algorithms.md compares them.
//!
//! Pure: no clock, no I/O. Moments are of any clock that does not go back.

use std::num::NonZeroU32;

use super::units::{Micros, Timestamp};

/// The gradient at which the maximum stays: the backend has half as many again in flight as it works on.
const TOLERANCE: f64 = 1.5;
/// The maximum is divided by this for a probe, and for what counts as low load.
const DEPTH: f64 = 2.0;
/// From this part of the maximum on, load is high. If none is so high, from this part of the most that answered lately on.
const HIGH: f64 = 0.8;
/// The maximum at the start.
const INITIAL: f64 = 20.0;
/// The shortest and the usual longest window.
const WINDOW: (Micros, Micros) = (Micros(100_000), Micros::SECOND);
/// Fewer samples than this say nothing.
const FEW: u32 = 10;
/// Samples of a window: twice the maximum, within these bounds.
const WINDOW_SAMPLES: (u32, u32) = (16, 50);
/// Requests that a probe admits.
const PROBE_REQUESTS: u32 = 25;
/// The shortest time between probes, and the length of a period; each at least twenty latencies.
const PERIOD: Micros = Micros(2_000_000);
/// Periods whose samples make a baseline.
const PERIODS: usize = 4;
/// From this share of errors of overload on, they count.
const FEW_ERRORS: f64 = 0.02;
/// Seconds for which what answered well is remembered.
const REMEMBERED: usize = 10;
/// Routes with a baseline of their own; further ones share the last.
const MAX_ROUTES: usize = 64;

/// The bounds of what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityBounds {
    /// The least maximum.
    pub min: NonZeroU32,
    /// The greatest.
    pub ceiling: NonZeroU32,
}

/// The load at which a request was admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionLoad {
    in_flight: u32,
    is_low: bool,
    is_high: bool,
    /// The number of changes of the maximum before.
    level: u32,
}

/// How an admitted request went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOutcome {
    /// The backend answered.
    Answered,
    /// It told, or showed, that it is overloaded.
    Overloaded,
    /// The client left before an answer. It counts only if the backend was slow by then, as a latency that is not shorter.
    Abandoned,
}

/// What became known of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// Any number that stands for its route.
    pub route: u64,
    /// From the admission to the outcome.
    pub latency: Micros,
    /// As [`CapacityEstimate::admit`] returned it.
    pub load: AdmissionLoad,
    /// The outcome.
    pub outcome: SampleOutcome,
}

/// The maximum, as it is known.
#[derive(Clone, Debug)]
pub struct CapacityEstimate {
    max: f64,
    routes: Vec<(u64, Baseline)>,
    /// Changes of the maximum so far.
    level: u32,
    /// The level from which on samples of low load count.
    baselines_from: u32,
    level_since: Timestamp,
    window_since: Timestamp,
    period_since: Timestamp,
    window: SampleWindow,
    /// The mean latency of late, in µs.
    typical: f64,
    phase: Phase,
    /// The gradient below which the last cut was not in vain.
    cut: Option<f64>,
    /// The most in flight that answered well in a second: its number, and how many.
    answered: [(u64, u32); REMEMBERED],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubles the maximum until the backend becomes slower.
    Starting,
    Steady,
    /// Admits so many more requests at low load.
    Probing(NonZeroU32),
}

/// What a window has seen.
#[derive(Clone, Copy, Debug, Default)]
struct SampleWindow {
    /// Latency by baseline, at high load.
    gradient: Mean,
    /// The sum of what these say of their baselines.
    baseline_error: f64,
    /// Of these, samples of abandoned requests.
    abandoned: u32,
    answered: u32,
    overloaded: u32,
    /// The load was near the maximum.
    is_loaded: bool,
    /// The load was not always low.
    is_above_low: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    /// Of the squares.
    squares: f64,
    count: u32,
}

/// The latency of a request by the baseline of its route.
#[derive(Clone, Copy, Debug)]
struct LatencyRatio {
    ratio: f64,
    /// The square of the baseline's relative standard error.
    baseline_error: f64,
}

/// The latency of a route at low load, by period.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline([Mean; PERIODS]);

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
        self.count = self.count.saturating_add(1);
    }

    fn get(&self) -> Option<f64> {
        (self.count >= FEW).then(|| self.sum / f64::from(self.count))
    }

    /// The square of the standard error, relative to the mean.
    fn error(&self) -> f64 {
        let count = f64::from(self.count.max(1));
        let square = self.sum * self.sum;
        if square > 0.0 { (self.squares / square - 1.0 / count).max(0.0) } else { 0.0 }
    }

    fn with(self, other: &Self) -> Self {
        Self {
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            count: self.count.saturating_add(other.count),
        }
    }
}

impl SampleWindow {
    fn add(&mut self, latency: LatencyRatio) {
        self.gradient.add(latency.ratio);
        self.baseline_error += latency.baseline_error;
    }

    /// The gradient less its standard error.
    fn certain_gradient(&self) -> Option<f64> {
        let gradient = self.gradient.get()?;
        let error = self.gradient.error() + self.baseline_error / f64::from(self.gradient.count);
        Some(gradient * (1.0 - error.sqrt()))
    }
}

impl Baseline {
    /// The mean; without the present period, if only its fastest requests have ended.
    fn get(&self, is_young: bool) -> Option<Mean> {
        let all = self.0.iter().skip(is_young.into()).fold(Mean::default(), Mean::with);
        all.get().is_some_and(|latency| latency > 0.0).then_some(all)
    }

    fn begin_period(&mut self) {
        self.0.rotate_right(1);
        self.0[0] = Mean::default();
    }
}

impl CapacityBounds {
    fn clamp(&self, max: f64) -> f64 {
        let (min, ceiling) = (f64::from(self.min.get()), f64::from(self.ceiling.get()));
        max.min(ceiling).max(min)
    }
}

impl CapacityEstimate {
    /// Nothing is known yet.
    pub fn new(bounds: &CapacityBounds, now: Timestamp) -> Self {
        Self {
            max: bounds.clamp(INITIAL),
            routes: Vec::new(),
            level: 0,
            baselines_from: 0,
            level_since: now,
            window_since: now,
            period_since: now,
            window: SampleWindow::default(),
            typical: 0.0,
            phase: Phase::Starting,
            cut: None,
            answered: [(0, 0); REMEMBERED],
        }
    }

    /// What is found so far, probes left out.
    pub fn found(&self) -> u32 {
        whole(self.max)
    }

    /// The present maximum.
    pub fn max(&self, bounds: &CapacityBounds) -> u32 {
        let max = if matches!(self.phase, Phase::Probing(_)) { self.low(bounds) } else { self.max };
        whole(bounds.clamp(max))
    }

    /// A request is admitted; with it so many are in flight.
    pub fn admit(&mut self, bounds: &CapacityBounds, in_flight: u32, now: Timestamp) -> AdmissionLoad {
        let load = f64::from(in_flight);
        let is_low = load <= self.low(bounds) + 0.5;
        let is_at_max = load >= HIGH * self.max;
        self.window.is_loaded |= is_at_max;
        self.window.is_above_low |= !is_low;
        // Clients that never reach the maximum may still be too many for the backend.
        let is_high = is_at_max
            || !is_low && self.phase == Phase::Steady && {
                let most = f64::from(self.most_answered(now));
                most < HIGH * self.max && load >= HIGH * most
            };
        let admitted = AdmissionLoad { in_flight, is_low, is_high, level: self.level };
        if let Phase::Probing(left) = self.phase
            && is_low
        {
            match NonZeroU32::new(left.get() - 1) {
                Some(left) => self.phase = Phase::Probing(left),
                None => self.end_probe(now),
            }
        }
        admitted
    }

    /// Learns of an admitted request.
    pub fn learn(&mut self, bounds: &CapacityBounds, sample: &LatencySample, now: Timestamp) {
        let (load, latency) = (sample.load, sample.latency.0 as f64);
        match sample.outcome {
            SampleOutcome::Overloaded => self.window.overloaded += 1,
            SampleOutcome::Abandoned => {
                if let Some(latency) = self.by_baseline(sample.route, latency, now)
                    && latency.ratio > TOLERANCE
                {
                    self.window.add(latency);
                    self.window.abandoned += 1;
                }
            }
            SampleOutcome::Answered => {
                self.window.answered += 1;
                self.note_answered(load.in_flight, now);
                let weight = if self.typical > 0.0 { 50.0 } else { 1.0 };
                self.typical += (latency - self.typical) / weight;
                if load.is_low && load.level >= self.baselines_from {
                    self.baseline(sample.route).0[0].add(latency);
                }
                // The first that end after a change are the fastest ones.
                let is_typical = now.since(self.level_since).0 as f64 > 1.5 * self.typical;
                if load.is_high
                    && load.level == self.level
                    && is_typical
                    && let Some(latency) = self.by_baseline(sample.route, latency, now)
                {
                    self.window.add(latency);
                }
            }
        }
        match self.phase {
            Phase::Probing(_) if now.since(self.level_since) > self.at_least(WINDOW.1, 10.0) => {
                self.end_probe(now);
            }
            Phase::Probing(_) => {}
            Phase::Starting | Phase::Steady if self.is_window_over(now) => self.end_window(bounds, now),
            Phase::Starting | Phase::Steady => {}
        }
    }

    fn is_window_over(&self, now: Timestamp) -> bool {
        let age = now.since(self.window_since);
        let (least, wanted) = match self.phase {
            Phase::Starting => (Micros(0), whole(self.max).max(FEW)),
            _ => (WINDOW.0, whole(2.0 * self.max).clamp(WINDOW_SAMPLES.0, WINDOW_SAMPLES.1)),
        };
        let samples = self.window.gradient.count.saturating_add(self.window.overloaded);
        age >= least && samples >= wanted || age >= self.at_least(WINDOW.1, 4.0)
    }

    fn end_window(&mut self, bounds: &CapacityBounds, now: Timestamp) {
        let (before, window) = (self.max, self.window);
        let all = window.answered.saturating_add(window.overloaded);
        let errors = f64::from(window.overloaded) / f64::from(all.max(1));
        let has_errors = errors > FEW_ERRORS;
        if has_errors {
            self.phase = Phase::Steady;
            let floor = f64::from(self.most_answered(now)) / 2.0;
            self.max = (self.max * (1.0 - errors / 2.0)).max(floor.min(self.max));
        }
        let mut in_vain = false;
        match (window.certain_gradient(), window.gradient.get()) {
            (Some(gradient), _) if gradient > TOLERANCE => {
                let mostly_answered = window.abandoned < window.gradient.count / 2;
                in_vain = mostly_answered && self.cut.is_some_and(|good| gradient > good);
                self.cut = None;
                if in_vain {
                    self.phase = Phase::Starting;
                } else {
                    let by = (TOLERANCE / gradient).max(0.5);
                    self.max *= by;
                    self.cut = (by < 0.85).then_some(gradient * (1.0 + by) / 2.0);
                    self.phase = Phase::Steady;
                }
            }
            (_, Some(gradient)) => {
                self.cut = None;
                if window.is_loaded && !has_errors {
                    self.grow(gradient);
                }
            }
            // The clients do not reach the maximum: to double it once more tells nothing.
            (_, None) if window.is_above_low && !window.is_loaded => self.phase = Phase::Steady,
            (_, None) => {}
        }
        self.max = bounds.clamp(self.max);
        self.begin_period(in_vain, bounds, now);
        if (self.max - before).abs() > 0.15 * before {
            self.change_level(now);
        } else {
            self.begin_window(now);
        }
    }

    fn grow(&mut self, gradient: f64) {
        let room = ((TOLERANCE - gradient) / (TOLERANCE - 1.0)).clamp(0.0, 1.0);
        if self.phase == Phase::Starting && room >= 0.5 {
            self.max *= 2.0;
        } else {
            self.phase = Phase::Steady;
            self.max += self.max.sqrt().max(self.max / 4.0) * room;
        }
    }

    /// Begins a period if it is time; with a probe if the load is high.
    fn begin_period(&mut self, forget: bool, bounds: &CapacityBounds, now: Timestamp) {
        if forget {
            self.routes.clear();
            self.baselines_from = self.level + 1;
        }
        let is_due = now.since(self.period_since) > self.at_least(PERIOD, 20.0);
        let is_known = self.routes.iter().any(|(_, baseline)| baseline.get(false).is_some());
        let can_fall = self.max > 1.2 * f64::from(bounds.min.get());
        let probes = self.window.is_loaded && can_fall && (is_due || !is_known);
        let has_samples = self.routes.iter().any(|(_, baseline)| baseline.0[0].count >= FEW);
        if probes || is_due && has_samples {
            self.routes.iter_mut().for_each(|(_, baseline)| baseline.begin_period());
            self.period_since = now;
        }
        if probes || forget {
            // Only requests that are admitted from now on tell of the new baseline.
            self.change_level(now);
        }
        if probes {
            self.phase = NonZeroU32::new(PROBE_REQUESTS).map_or(self.phase, Phase::Probing);
        }
    }

    fn end_probe(&mut self, now: Timestamp) {
        self.phase = if self.level == self.baselines_from { Phase::Starting } else { Phase::Steady };
        self.period_since = now;
        self.change_level(now);
    }

    fn change_level(&mut self, now: Timestamp) {
        self.level = self.level.wrapping_add(1);
        self.level_since = now;
        self.begin_window(now);
    }

    fn begin_window(&mut self, now: Timestamp) {
        self.window = SampleWindow::default();
        self.window_since = now;
    }

    /// Up to this many in flight the load is low.
    fn low(&self, bounds: &CapacityBounds) -> f64 {
        (self.max / DEPTH).max(f64::from(bounds.min.get()))
    }

    fn by_baseline(&self, route: u64, latency: f64, now: Timestamp) -> Option<LatencyRatio> {
        let is_young = now.since(self.period_since) < self.at_least(Micros(0), 3.0);
        let known = self.routes.iter().find(|(known, _)| *known == route).or(self.routes.get(MAX_ROUTES - 1));
        let baseline = known?.1.get(is_young)?;
        Some(LatencyRatio { ratio: latency / baseline.get()?, baseline_error: baseline.error() })
    }

    fn baseline(&mut self, route: u64) -> &mut Baseline {
        let known = self.routes.iter().position(|(known, _)| *known == route);
        let index = known.unwrap_or_else(|| {
            if self.routes.len() < MAX_ROUTES {
                self.routes.push((route, Baseline::default()));
            }
            self.routes.len() - 1
        });
        &mut self.routes[index].1
    }

    /// This span, or so many latencies if these are longer.
    fn at_least(&self, span: Micros, latencies: f64) -> Micros {
        Micros(span.0.max(whole(self.typical * latencies).into()))
    }

    fn note_answered(&mut self, in_flight: u32, now: Timestamp) {
        let second = now.0 / Micros::SECOND.0;
        // Below `REMEMBERED`.
        let slot = &mut self.answered[second as usize % REMEMBERED];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 = slot.1.max(in_flight);
    }

    fn most_answered(&self, now: Timestamp) -> u32 {
        let since = (now.0 / Micros::SECOND.0).saturating_sub(REMEMBERED as u64);
        let lately = self.answered.iter().filter(|(second, _)| *second >= since);
        lately.map(|(_, in_flight)| *in_flight).max().unwrap_or_default()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(number: f64) -> u32 {
    number.round() as u32
}
