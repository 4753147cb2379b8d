//! The identities of policies, across reloads and processes, and their names in responses.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::Policy;
use crate::http1::head_writer::HeaderPair;
use crate::limit::Algorithm;
use crate::limit::calendar::{CalendarUnit, CalendarWindows};
use crate::limit::units::Micros;
use crate::route::key::Key;
use crate::store::redis::key;
use crate::store::{OnError, ParamsId, SharedKeyInfo};

/// The largest integer of a structured field (RFC 9651 §3.3.1).
const MAX_FIELD_INTEGER: u64 = 999_999_999_999_999;

/// The index of the counter that a limit has whatever its periods are. No [`CounterWindow`] of a rate has it.
const OF_LIMIT: u64 = 0;

impl Policy {
    /// A policy with this name in responses, and with counters of its own or of another policy: see [`policies`].
    pub fn new(
        name: Arc<str>,
        algorithm: Algorithm,
        (shared_key, params): (SharedKeyInfo, ParamsId),
    ) -> Self {
        Self {
            standard: standard(&name, &algorithm),
            legacy: legacy(&algorithm),
            name,
            shared_key,
            params,
            algorithm,
        }
    }
}

/// One policy for every rate of the limit `name` or of one of its tiers, each with its text in the file.
///
/// A counter belongs to the period of its rate, and not to the place in the list: `100/h` has the same counter alone,
/// in `["100/h", "10/s"]` and in `["10/s", "100/h"]`, so that a reload may reorder a list, add rates and remove some.
/// Other rates with the same period, of a tier for example, share that counter, whose state is converted. Of two rates
/// with one period in one list each has a counter: that of the first and that of the second rate with this period.
///
/// The state of a bucket is also converted to another period. So the counter of a bucket with the `longest` period of
/// its limit, see [`longest_period`], stays when this period changes.
pub fn policies(
    (name, key, on_error): (&str, &Key, OnError),
    rates: Vec<(String, Algorithm)>,
    longest: Option<Micros>,
) -> Vec<Policy> {
    let is_alone = rates.len() == 1;
    let windows: Vec<_> = rates.iter().map(|(_, algorithm)| CounterWindow::of(algorithm)).collect();
    let policy = |(at, (rate, algorithm)): (usize, (String, Algorithm))| {
        let policy_name = if is_alone { name.to_owned() } else { format!("{name}:{rate}") };
        let same_before = windows.iter().take(at).filter(|window| Some(*window) == windows.get(at)).count();
        let is_longest = longest.is_some() && bucket_period(&algorithm) == longest;
        let counters = if is_longest && same_before == 0 {
            counters(name, &algorithm, key, OF_LIMIT, on_error)
        } else {
            counters_of_rate(name, &algorithm, key, same_before as u64, on_error)
        };
        Policy::new(policy_name.into(), algorithm, counters)
    };
    rates.into_iter().enumerate().map(policy).collect()
}

/// The longest period of a limit's buckets. `None`: the limit has none.
pub fn longest_period(rates: &[(String, Algorithm)]) -> Option<Micros> {
    rates.iter().filter_map(|(_, algorithm)| bucket_period(algorithm)).max()
}

fn bucket_period(algorithm: &Algorithm) -> Option<Micros> {
    let rate = algorithm.rate().filter(|_| algorithm.state_period().is_none())?;
    Some(rate.period())
}

/// The data for the stores of a rate of the limit `name`, before which this many rates with the same period stand in
/// its list. They are those of a bucket whose period is not the longest of its limit.
pub fn counters_of_rate(
    name: &str,
    algorithm: &Algorithm,
    key: &Key,
    same_before: u64,
    on_error: OnError,
) -> (SharedKeyInfo, ParamsId) {
    let index = CounterWindow::of(algorithm).index(same_before);
    let (mut shared_key, params) = counters(name, algorithm, key, index, on_error);
    if algorithm.state_period().is_some() {
        // The name of a window or a log in Redis has the period anyway. So gateways of builds that numbered the rates
        // of a list share the counters of the first rate.
        shared_key.name = key::policy(name, algorithm, identity(name, algorithm, key, same_before)).into();
    }
    (shared_key, params)
}

/// The identity of the limit `name` for its bans, overrides and share of the store, whatever the rates of its policies
/// are.
pub fn limit_identity(name: &str, policies: &[Policy], key: &Key) -> u128 {
    policies.first().map_or(0, |policy| identity(name, &policy.algorithm, key, OF_LIMIT))
}

/// What rates have in common that count in one counter.
#[derive(Clone, Copy, PartialEq)]
struct CounterWindow {
    period: Micros,
    unit: Option<CalendarUnit>,
}

impl CounterWindow {
    fn of(algorithm: &Algorithm) -> Self {
        let period = algorithm.rate().map_or(Micros(0), |rate| rate.period());
        Self { period, unit: algorithm.calendar().map(CalendarWindows::unit) }
    }

    /// The index of the counter of a rate with this window, before which this many others stand in its list. The
    /// period, which is at least a millisecond and at most 366 days, has 45 bits.
    fn index(self, same_before: u64) -> u64 {
        let unit: u64 = match self.unit {
            None => 0,
            Some(CalendarUnit::Day) => 1,
            Some(CalendarUnit::Week) => 2,
            Some(CalendarUnit::WeekFromSunday) => 3,
            Some(CalendarUnit::Month(_)) => 4,
            Some(CalendarUnit::Year) => 5,
        };
        unit << 56 | same_before << 48 | self.period.0
    }
}

/// The data of an algorithm of the limit `name` for the stores. `index` tells its counters apart.
pub fn counters(
    name: &str,
    algorithm: &Algorithm,
    key: &Key,
    index: u64,
    on_error: OnError,
) -> (SharedKeyInfo, ParamsId) {
    let identity = identity(name, algorithm, key, index);
    let shared_key = SharedKeyInfo {
        name: key::policy(name, algorithm, identity).into(),
        identity,
        on_error,
        settles: false,
        stays_in_process: false,
        lease: None,
    };
    (shared_key, ParamsId::of_policy(algorithm, identity))
}

/// A hash of the settings that a reload must not change for the counters to stay: everything but the parameters. The
/// hash's key is fixed, so that every process computes the same.
fn identity(limit: &str, algorithm: &Algorithm, key: &Key, index: u64) -> u128 {
    let mut hasher = SipHasher24::new_with_keys(0, 0);
    let mut add = |text: &str| {
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(text.as_bytes());
    };
    add(limit);
    add(algorithm.name());
    for part in &key.parts {
        add(&part.to_string());
    }
    hasher.write(&index.to_le_bytes());
    hasher.finish128().as_u128()
}

/// The members of the standard headers. A concurrency limit has no window. Names have only characters that need no escape: others are errors, so that the result
/// is never used.
fn standard(name: &str, algorithm: &Algorithm) -> HeaderPair {
    let window = match algorithm.window().seconds_rounded_up().min(MAX_FIELD_INTEGER) {
        // The length of a calendar's window is known when it is told.
        _ if algorithm.calendar().is_some() => String::new(),
        0 => String::new(),
        window => format!(";w={window}"),
    };
    let quota = algorithm.quota();
    let values = [format!("\"{name}\";q={quota}{window}"), format!("\"{name}\";r=")];
    HeaderPair::new(["ratelimit-policy", "ratelimit"], values.each_ref().map(String::as_str))
}

/// The same in the older form that most clients know.
fn legacy(algorithm: &Algorithm) -> HeaderPair {
    let quota = algorithm.quota().to_string();
    HeaderPair::new(["x-ratelimit-limit", "x-ratelimit-remaining"], [&quota, ""])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::limit::Align;
    use crate::limit::units::{Cost, Rate};
    use crate::route::key::Part;

    const MINUTE: Micros = Micros(60_000_000);
    const HOUR: Micros = Micros(3_600_000_000);

    fn rate(count: u32, period: Micros) -> Rate {
        Rate::new(count, period).unwrap()
    }

    fn of(algorithms: &[Algorithm]) -> Vec<Policy> {
        let rates: Vec<_> = algorithms.iter().map(|algorithm| (algorithm.to_string(), *algorithm)).collect();
        let longest = longest_period(&rates);
        policies(("api", &Key::new(vec![Part::Global]), OnError::Local), rates, longest)
    }

    fn counter(policy: &Policy) -> (u128, String) {
        (policy.shared_key.identity, policy.shared_key.name.to_string())
    }

    #[test]
    fn a_counter_belongs_to_the_period_and_not_to_the_place() {
        let kinds: [fn(Rate) -> Algorithm; 3] = [
            |rate| Algorithm::fixed_window(rate, Align::FirstRequest),
            Algorithm::sliding_window,
            |rate| Algorithm::sliding_log(rate, None, false),
        ];
        for new in kinds {
            let (short, more, long) = (new(rate(5, MINUTE)), new(rate(9, MINUTE)), new(rate(50, HOUR)));
            let [alone] = &of(&[short])[..] else { panic!("one") };
            for list in [&[short, long][..], &[long, short], &[long, more], &[more], &[short, more]] {
                let all = of(list);
                let same = |policy: &&Policy| policy.shared_key == alone.shared_key;
                assert_eq!(all.iter().filter(same).count(), 1, "{list:?}");
                let counters: HashSet<_> = all.iter().map(counter).collect();
                assert_eq!(counters.len(), list.len(), "{list:?}");
            }
        }
    }

    #[test]
    fn the_bucket_with_the_longest_period_keeps_its_counter_when_this_period_changes() {
        let new = |count, period| Algorithm::token_bucket(rate(count, period), Cost::ONE);
        let (short, long, second) = (new(5, MINUTE), new(50, HOUR), new(9, HOUR));
        let [alone] = &of(&[short])[..] else { panic!("one") };
        let [of_limit] = &of(&[long])[..] else { panic!("one") };
        assert_eq!(counter(alone), counter(of_limit));
        assert_eq!(
            alone.shared_key.identity,
            limit_identity("api", &of(&[short]), &Key::new(vec![Part::Global]))
        );
        for list in [&[short, long][..], &[long, short], &[long, second, short], &[second, short]] {
            let all = of(list);
            assert_eq!(all.iter().filter(|one| counter(one) == counter(of_limit)).count(), 1, "{list:?}");
            assert_eq!(all.iter().map(counter).collect::<HashSet<_>>().len(), list.len(), "{list:?}");
        }
        // A tier counts where its limit counts with the same period.
        let key = Key::new(vec![Part::Global]);
        let of_tier = |algorithm: Algorithm| {
            let rates = vec![(algorithm.to_string(), algorithm)];
            counter(&policies(("api", &key, OnError::Local), rates, Some(HOUR))[0])
        };
        assert_eq!(of_tier(long), counter(of_limit));
        assert_eq!(of_tier(short), counter(&of(&[short, long])[0]));
    }

    /// Gateways of builds that numbered the rates of a list share one Redis with others: a change here makes the
    /// counters of each such fleet start afresh.
    #[test]
    fn the_first_window_of_a_limit_has_its_name_in_redis_and_a_limit_its_identity() {
        let key = Key::new(vec![Part::Global]);
        let window = Algorithm::fixed_window(rate(5, MINUTE), Align::FirstRequest);
        let numbered = identity("api", &window, &key, 0);
        assert_eq!(of(&[window])[0].shared_key.name, key::policy("api", &window, numbered));
        assert_eq!(limit_identity("api", &of(&[window]), &key), numbered);
    }
}
