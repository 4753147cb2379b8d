//! The core. A limit is a pure function of *(state, now, cost)* → *(state', decision)*.
//!
//! Only `std` below here: no clock, no I/O, no async, no logging. Each algorithm file exports its parameters, its
//! `State` and the same few functions; [`Algorithm`] and [`State`] are the closed choice between them.

pub mod units;

use units::{Cost, Micros, Rate, Timestamp};

/// What an algorithm says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Pass, wait, or refuse.
    pub verdict: Verdict,
    /// How many more units would be admitted at this same moment, after this decision; never above the quota.
    pub remaining: u64,
    /// The least span after which `remaining` is larger than now (if nothing else happens); zero if it is at the quota.
    pub reset_after: Micros,
}

/// Pass, wait, or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward now.
    Allow,
    /// Forward after this span: the request holds its place in the queue.
    Delay(Micros),
    /// Refuse.
    Deny(Wait),
}

/// How long a refused request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// A client alone on its key is admitted, for the same cost, exactly this span later; not one microsecond before.
    After(Micros),
    /// Waiting cannot help: the cost exceeds what the limit ever holds.
    Never,
}

/// An algorithm with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// To be replaced.
    Placeholder,
}

/// Where fixed windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At multiples of the window since 1970 UTC.
    #[default]
    Clock,
    /// At the first request.
    FirstRequest,
}

/// What is stored for one key under one algorithm. The default state is a fresh key: missing, expired and default are one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing used.
    #[default]
    Fresh,
}

impl Algorithm {
    /// Up to `burst` at once, refilled evenly at `rate`.
    pub fn token_bucket(_rate: Rate, _burst: Cost) -> Self {
        Self::Placeholder
    }

    /// Evenly spaced at `rate`, `burst` tolerated.
    pub fn gcra(_rate: Rate, _burst: Cost) -> Self {
        Self::Placeholder
    }

    /// The first passes at once, the next wait their turn and leave at `rate`.
    pub fn leaky_bucket(_rate: Rate, _queue: Cost, _max_wait: Micros) -> Self {
        Self::Placeholder
    }

    /// `rate`'s count per window of `rate`'s period.
    pub fn fixed_window(_rate: Rate, _align: Align) -> Self {
        Self::Placeholder
    }

    /// Current count + previous count x overlap, windows aligned to the clock.
    pub fn sliding_window(_rate: Rate) -> Self {
        Self::Placeholder
    }

    /// Exact; `spacing` is the least distance between admitted requests; with `count_denied` refused attempts count too.
    pub fn sliding_log(_rate: Rate, _spacing: Option<Micros>, _count_denied: bool) -> Self {
        Self::Placeholder
    }

    /// Decides one request. A refusal returns the state unchanged (but for a sliding log with `count_denied`).
    pub fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let decision = self.peek(&state, now, cost);
        (state, decision)
    }

    /// The decision that [`Self::decide`] would give, without charging: its `remaining` and `reset_after` are those of the uncharged state.
    pub fn peek(&self, _state: &State, _now: Timestamp, _cost: Cost) -> Decision {
        todo!()
    }

    /// Corrects a cost admitted at `admitted_at` by `difference` units (into debt if need be, or as a refund when negative).
    pub fn settle(&self, _state: State, _admitted_at: Timestamp, _difference: i64, _now: Timestamp) -> State {
        todo!()
    }

    /// Converts a state written under `from`, the same algorithm with other numbers, rounding against the client by
    /// less than one unit. A new window length starts afresh.
    pub fn convert(&self, _from: &Self, _state: State, _now: Timestamp) -> State {
        todo!()
    }

    /// From when on `state` equals the default state.
    pub fn forget_at(&self, _state: &State) -> Timestamp {
        todo!()
    }

    /// Used ÷ quota at `now` as a fraction of 2^16 (65,536 = all used; more = in debt), for choosing whom to evict.
    pub fn used(&self, _state: &State, _now: Timestamp) -> u32 {
        todo!()
    }

    /// `q` of the RateLimit fields: burst, window count, or queue.
    pub fn quota(&self) -> u64 {
        todo!()
    }

    /// `w` of the RateLimit fields: the window, or burst ÷ rate.
    pub fn window(&self) -> Micros {
        todo!()
    }

    /// The largest cost that can ever be admitted.
    pub fn max_cost(&self) -> u64 {
        todo!()
    }

    /// The algorithm's name as configured: `token-bucket`, …
    pub fn name(&self) -> &'static str {
        todo!()
    }
}

impl State {
    /// How many of the store's `max_keys` this state takes: one, or one per event that a sliding log keeps.
    pub fn weight(&self) -> usize {
        1
    }
}
