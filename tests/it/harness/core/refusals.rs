//! Random bans, and random histories of refusals.

use proptest::prelude::*;
use tollgate::limit::Algorithm;
use tollgate::limit::units::{EXACT, Micros, Timestamp};

use super::cases::START;

/// The parameters of a ban.
#[derive(Clone, Debug)]
pub(crate) struct BanCase {
    pub(crate) after: u32,
    pub(crate) within: Micros,
    pub(crate) spans: Vec<Micros>,
}

/// A refusal, so long after the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    time: Move,
    pub(crate) units: u32,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Stay,
    Micros(u64),
    /// 1/100 of `within`.
    Within(u64),
    /// 1/100 of the span with this index, less this many µs.
    Span(usize, u64, u64),
    /// Backwards by 1/100 of `within`.
    Back(u64),
}

impl BanCase {
    pub(crate) fn algorithm(&self) -> Algorithm {
        Algorithm::ban(self.after, self.within, &self.spans).expect("the numbers of a ban")
    }
}

impl Refusal {
    pub(crate) fn moment(&self, case: &BanCase, now: Timestamp) -> Timestamp {
        let moved = match self.time {
            Move::Stay => now.0,
            Move::Micros(span) => now.0 + span,
            Move::Within(hundredths) => now.0 + case.within.0 * hundredths / 100,
            Move::Span(index, hundredths, less) => {
                now.0 + (case.spans[index % case.spans.len()].0 * hundredths / 100).saturating_sub(less)
            }
            Move::Back(hundredths) => now.0.saturating_sub(case.within.0 * hundredths / 100).max(START.0 / 2),
        };
        // Every end of a ban must be before the maximum timestamp.
        Timestamp(if moved > EXACT / 2 { now.0 } else { moved })
    }
}

pub(crate) fn ban() -> impl Strategy<Value = BanCase> {
    let after = prop_oneof![8 => 1..6_u32, 1 => 6..30_u32, 1 => Just(10_000)];
    let span = prop_oneof![Just(1_000_u64), 1_000..100_000_u64, Just(60_000_000), Just(31_622_400_000_000)];
    let spans = prop::collection::vec(span.clone().prop_map(Micros), 1..=8);
    (after, span, spans).prop_map(|(after, within, spans)| BanCase { after, within: Micros(within), spans })
}

fn onwards() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Stay),
        1 => (1..4_u64).prop_map(Move::Micros),
        6 => (1..60_u64).prop_map(Move::Within),
        1 => Just(Move::Within(100)),
        3 => (0..8_usize, prop_oneof![Just(100), Just(1_000), 1..1_200_u64], 0..2_u64)
            .prop_map(|(index, hundredths, less)| Move::Span(index, hundredths, less)),
    ]
}

fn units() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1..3_u32, 1 => 3..20_u32, 1 => Just(1_000_000_000)]
}

/// Refusals in the order of time.
pub(crate) fn history() -> impl Strategy<Value = Vec<Refusal>> {
    let refusal = (onwards(), units()).prop_map(|(time, units)| Refusal { time, units });
    prop::collection::vec(refusal, 1..60)
}

/// Time goes backwards now and then.
pub(crate) fn history_with_backward_steps() -> impl Strategy<Value = Vec<Refusal>> {
    let time = prop_oneof![9 => onwards(), 1 => (1..150_u64).prop_map(Move::Back)];
    prop::collection::vec((time, units()).prop_map(|(time, units)| Refusal { time, units }), 1..60)
}
