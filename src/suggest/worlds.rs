//! Random worlds of people, crawlers, an office and abusers: the proposed limits refuse all abusers and no person.

use std::time::Duration;

use super::candidate::{CandidateRate, SuggestedAlgorithm};
use super::verification::admit;
use super::windows::{WINDOW_COUNT, WINDOWS};
use super::{Peaks, Proposal, SuggestOptions, Suggestion};
use crate::limit::State;
use crate::limit::units::{Cost, Timestamp};
use fastrand::Rng;

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
/// A midnight.
const START: u64 = 1_700_006_400 * SECOND;

/// The part of a key in the world.
#[derive(Clone, Copy, Debug, PartialEq)]
enum KeyRole {
    /// Also an office of people: never refused.
    Person,
    /// Asks evenly, in a day for up to 2.5 times as much as the most active person; may be refused.
    Crawler,
    /// Always refused.
    Abuser,
}

struct World {
    keys: Vec<(KeyRole, Vec<u64>)>,
    span: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let span = [24, 24, 24, 6, 48][rng.usize(..5)] * HOUR;
        let people = [20, 50, 150, 400][rng.usize(..4)];
        let mut keys: Vec<_> = (0..people).map(|_| (KeyRole::Person, person(&mut rng, span))).collect();
        let most = keys.iter().map(|(_, times)| exact(times, 24 * HOUR)).max().unwrap_or(1);
        if rng.bool() {
            let members = rng.usize(2..12);
            keys.push((KeyRole::Person, (0..members).flat_map(|_| person(&mut rng, span)).collect()));
        }
        keys.iter_mut().for_each(|(_, times)| times.sort_unstable());
        for _ in 0..rng.usize(..=people / 50) {
            let count = rng.u64(most / 4..=most * 5 / 2) * span / (24 * HOUR);
            keys.push((KeyRole::Crawler, even(&mut rng, START, span, count.max(1))));
        }
        Self { keys, span }
    }

    /// Adds abusers whose peak in some window is at least 3 times that of every person.
    fn with_abusers(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let max: [u64; WINDOW_COUNT] = std::array::from_fn(|window| {
            let people = self.keys.iter().filter(|(role, _)| *role == KeyRole::Person);
            people.map(|(_, times)| exact(times, WINDOWS[window].span().0)).max().unwrap_or(0)
        });
        let count = 1 + rng.usize(..(self.keys.len() / 20).clamp(1, 6));
        for _ in 0..count {
            let percent = [300, 320, 500, 1_000][rng.usize(..4)];
            let (window, times) = abuser(&mut rng, &max, percent, self.span);
            assert!(exact(&times, WINDOWS[window].span().0) >= 3 * max[window], "the world is sound");
            self.keys.push((KeyRole::Abuser, times));
        }
        self
    }

    fn in_whole_seconds(mut self) -> Self {
        let times = self.keys.iter_mut().flat_map(|(_, times)| times);
        times.for_each(|time| *time -= *time % SECOND);
        self
    }

    /// All requests with the index of their key, in the order of time.
    fn requests(&self) -> Vec<(u64, usize)> {
        let of = |(at, (_, times)): (usize, &(KeyRole, Vec<u64>))| {
            times.iter().map(|time| (*time, at)).collect::<Vec<_>>()
        };
        let mut requests: Vec<_> = self.keys.iter().enumerate().flat_map(of).collect();
        requests.sort_unstable();
        requests
    }
}

/// The largest number of requests in any window of `span`.
fn exact(times: &[u64], span: u64) -> u64 {
    let mut start = 0;
    let count = |(at, time): (usize, &u64)| {
        start += times[start..].iter().take_while(|first| **first + span <= *time).count();
        at + 1 - start
    };
    times.iter().enumerate().map(count).max().unwrap_or(0) as u64
}

fn exponential(rng: &mut Rng, mean: f64) -> u64 {
    let seconds = -mean * (1.0 - rng.f64()).ln();
    u64::try_from(Duration::from_secs_f64(seconds).as_micros()).expect("a short time")
}

/// Page views with assets, in sessions in the daytime.
fn person(rng: &mut Rng, span: u64) -> Vec<u64> {
    let mut times = Vec::new();
    let is_heavy = rng.u32(..12) == 0;
    for _ in 0..if is_heavy { rng.u32(3..10) } else { rng.u32(1..4) } {
        let daytime = 8 * HOUR + rng.u64(..12 * HOUR);
        let mut now = START + daytime % span + 24 * HOUR * rng.u64(..(span / (24 * HOUR)).max(1));
        for _ in 0..rng.u32(1..20) {
            times.extend((0..=rng.u32(..25)).map(|_| now + rng.u64(..=1_500_000)));
            now += 2 * SECOND + exponential(rng, 25.0);
        }
    }
    times.retain(|time| *time < START + span);
    times.push(START + rng.u64(..span));
    times.sort_unstable();
    times
}

/// `count` requests at nearly equal distances.
fn even(rng: &mut Rng, start: u64, span: u64, count: u64) -> Vec<u64> {
    let step = (span / count).max(1);
    let mut times: Vec<_> =
        (0..span / step).map(|at| start + at * step + rng.u64(..step.div_ceil(8))).collect();
    times.sort_unstable();
    times
}

/// An abuser of a random kind, with the index of the window in which it stands out.
fn abuser(rng: &mut Rng, max: &[u64; WINDOW_COUNT], percent: u64, span: u64) -> (usize, Vec<u64>) {
    let needed = |window: usize| (max[window] * percent).div_ceil(100) + 3;
    let begin = START + rng.u64(..span / 2);
    match rng.u32(..5) {
        // A flood.
        0 => {
            let seconds = rng.u64(1..60);
            (0, even(rng, begin, seconds * SECOND, seconds * (needed(0) + 1) * 8 / 7))
        }
        // Bursts every hour.
        1 => {
            let count = needed(1);
            (1, (0..span / HOUR).flat_map(|hour| even(rng, START + hour * HOUR, 9 * SECOND, count)).collect())
        }
        // A login attack.
        2 => {
            let minutes = rng.u64(1..60);
            (2, even(rng, begin, minutes * 60 * SECOND, minutes * needed(2) * 8 / 7))
        }
        // A steady scraper.
        3 => (4, even(rng, START, span, needed(4) * span.div_ceil(HOUR) * 8 / 7)),
        // A slow scraper over the day, or as long as the requests last.
        _ if span >= 24 * HOUR => (6, even(rng, START, span, needed(6) * span / (24 * HOUR) * 8 / 7)),
        _ => (5, even(rng, START, span, needed(5) * 8 / 7)),
    }
}

/// The proposal for a world, with a second pass or without.
fn propose(requests: &[(u64, usize)], algorithm: SuggestedAlgorithm, is_verified: bool) -> Proposal {
    let mut peaks = Peaks::new(1);
    for (time, key) in requests {
        peaks.add(0, *key as u64, Timestamp(*time), 1, || key.to_string());
    }
    let suggestion = Suggestion::new(peaks, SuggestOptions { algorithm, ..SuggestOptions::default() });
    let proposals = if is_verified {
        let mut verification = suggestion.verification();
        for (time, key) in requests {
            verification.add(0, *key as u64, Timestamp(*time), 1);
        }
        verification.finish()
    } else {
        suggestion.proposals()
    };
    proposals.into_iter().next().expect("one group")
}

/// The number of refused requests of each key under a proposal.
fn refused(
    proposal: &Proposal,
    algorithm: SuggestedAlgorithm,
    requests: &[(u64, usize)],
    keys: usize,
) -> Vec<u64> {
    let window = |period| WINDOWS.iter().position(|window| window.name == period).expect("a window");
    let rates =
        proposal.rates.iter().map(|rate| CandidateRate { window: window(rate.period), count: rate.count });
    let limits: Vec<_> = rates.map(|rate| rate.algorithm(algorithm).expect("in range")).collect();
    let mut states = vec![vec![State::default(); limits.len()]; keys];
    let mut refused = vec![0; keys];
    for (time, key) in requests {
        refused[*key] += u64::from(!admit(&limits, &mut states[*key], Timestamp(*time), Cost::ONE));
    }
    refused
}

/// What is wrong with a proposal, if anything.
fn fault(world: &World, algorithm: SuggestedAlgorithm, is_verified: bool) -> Option<String> {
    let requests = world.requests();
    let proposal = propose(&requests, algorithm, is_verified);
    let refused = refused(&proposal, algorithm, &requests, world.keys.len());
    let judged = world.keys.iter().zip(&refused).enumerate();
    let wrong: Vec<_> = judged
        .filter(|(_, ((role, _), refused))| match role {
            KeyRole::Person => **refused > 0,
            KeyRole::Crawler => false,
            KeyRole::Abuser => **refused == 0,
        })
        .map(|(at, ((role, times), refused))| {
            let peaks = WINDOWS.map(|window| exact(times, window.span().0));
            format!("{role:?} {at}: {refused} of {} refused; {peaks:?}", times.len())
        })
        .collect();
    (!wrong.is_empty()).then(|| format!("{}\n{}", wrong.join("\n"), proposal.toml("x", &["ip"])))
}

/// The worlds that are judged.
fn check_worlds(
    seeds: std::ops::Range<u64>,
    algorithm: SuggestedAlgorithm,
    is_verified: bool,
    whole_seconds: bool,
) {
    let mut faults = Vec::new();
    for seed in seeds.clone() {
        let world = World::new(seed).with_abusers(seed);
        let world = if whole_seconds { world.in_whole_seconds() } else { world };
        faults.extend(fault(&world, algorithm, is_verified).map(|fault| format!("world {seed}: {fault}")));
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), seeds.count(), faults.join("\n"));
}

#[test]
fn a_token_bucket_refuses_all_abusers_and_no_person() {
    check_worlds(0..worlds(10), SuggestedAlgorithm::TokenBucket, true, false);
}

#[test]
fn a_gcra_refuses_all_abusers_and_no_person() {
    check_worlds(1_000..1_000 + worlds(4), SuggestedAlgorithm::Gcra, true, false);
}

#[test]
fn a_leaky_bucket_refuses_all_abusers_and_no_person() {
    check_worlds(1_000..1_000 + worlds(4), SuggestedAlgorithm::LeakyBucket, true, false);
}

#[test]
fn a_fixed_window_refuses_all_abusers_and_no_person() {
    check_worlds(1_000..1_000 + worlds(4), SuggestedAlgorithm::FixedWindow, true, false);
}

#[test]
fn a_sliding_window_refuses_all_abusers_and_no_person() {
    check_worlds(1_000..1_000 + worlds(4), SuggestedAlgorithm::SlidingWindow, true, false);
}

#[test]
fn a_sliding_log_refuses_all_abusers_and_no_person() {
    check_worlds(1_000..1_000 + worlds(4), SuggestedAlgorithm::SlidingLog, true, false);
}

#[test]
fn bounds_alone_refuse_all_abusers_and_no_person() {
    check_worlds(2_000..2_000 + worlds(6), SuggestedAlgorithm::TokenBucket, false, false);
}

#[test]
fn whole_seconds_are_enough() {
    check_worlds(3_000..3_000 + worlds(6), SuggestedAlgorithm::TokenBucket, true, true);
}

/// The number of worlds of a test: the usual one, or as many as the environment variable `SUGGEST_WORLDS` says.
fn worlds(usual: u64) -> u64 {
    std::env::var("SUGGEST_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
fn without_abusers_there_is_no_gap_and_no_refusal() {
    for seed in 4_000..4_000 + worlds(6) {
        let mut world = World::new(seed);
        world.keys.retain(|(role, _)| *role == KeyRole::Person);
        let requests = world.requests();
        for is_verified in [true, false] {
            let proposal = propose(&requests, SuggestedAlgorithm::TokenBucket, is_verified);
            let refused = refused(&proposal, SuggestedAlgorithm::TokenBucket, &requests, world.keys.len());
            assert_eq!(refused.iter().sum::<u64>(), 0, "world {seed}");
            let says_so = proposal.notes.iter().any(|note| note.contains("no gap"));
            assert!(says_so && proposal.outliers.is_empty(), "world {seed}: {}", proposal.toml("x", &["ip"]));
        }
    }
}

#[test]
fn tiny_worlds_get_limits_above_all_that_was_seen() {
    let equal = |keys: u64, each: u64| World {
        keys: (0..keys)
            .map(|_| (KeyRole::Person, (0..each).map(|at| START + at * 40 * SECOND).collect()))
            .collect(),
        span: HOUR,
    };
    for world in [equal(1, 1), equal(1, 5_000), equal(2, 50), equal(5, 300), equal(500, 20), equal(300, 1)] {
        for algorithm in SuggestedAlgorithm::ALL {
            assert_eq!(fault(&world, algorithm, true), None);
            assert_eq!(fault(&world, algorithm, false), None);
        }
    }
    let empty = propose(&[], SuggestedAlgorithm::TokenBucket, true);
    assert_eq!((empty.rates.len(), empty.notes.len()), (0, 1));
    assert_eq!(empty.toml("x", &["ip"]).lines().filter(|line| !line.starts_with('#')).count(), 0);
}

#[test]
fn costs_count_as_units() {
    let mut peaks = Peaks::new(1);
    for (key, cost) in (0..50).map(|key| (key, 10)).chain([(50, 200), (51, 0)]) {
        peaks.add(0, key, Timestamp(START), cost, || key.to_string());
    }
    peaks.add(7, 0, Timestamp(START), 1, String::new);
    let mut verification = Suggestion::new(peaks, SuggestOptions::default()).verification();
    verification.add(0, 50, Timestamp(START), 200);
    verification.add(9, 50, Timestamp(START), 1);
    let proposal = verification.finish().remove(0);
    assert_eq!((proposal.keys, proposal.outliers[0].name.as_str()), (51, "50"));
    assert_eq!(proposal.verification.map(|counts| (counts.outlier_keys, counts.ordinary_keys)), Some((1, 0)));
}

#[test]
fn the_share_to_be_kept_bounds_the_ordinary_keys_that_are_refused() {
    // 2,000 keys with peaks of 100 to 119, of which 4 have 150; an outlier with 320, all at one time.
    let count = |key: usize| match key {
        0 => 320,
        1..=4 => 150,
        other => 100 + other % 20,
    };
    let requests: Vec<_> = (0..2_000).flat_map(|key| (0..count(key)).map(move |_| (START, key))).collect();
    let proposal = propose(&requests, SuggestedAlgorithm::TokenBucket, true);
    let counts = proposal.verification.expect("a second pass");
    assert_eq!((counts.outlier_keys, counts.ordinary_keys), (1, 0), "{}", proposal.toml("x", &["ip"]));
}
