//! The verdicts of limits in the last hour, minute by minute.

use std::collections::HashMap;
use std::sync::Arc;

use crate::telemetry::metrics::Decided;

const MINUTES: usize = 60;

/// The last minutes of each limit with verdicts in them.
#[derive(Debug, Default)]
pub(super) struct HourlyHistory {
    limits: HashMap<Arc<str>, Box<[Minute; MINUTES]>>,
    /// The minute that was counted last, since 1970.
    last: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    /// Since 1970.
    at: u64,
    said: Decided,
}

impl HourlyHistory {
    /// Adds the verdicts of this second, counted since 1970.
    pub(super) fn count(&mut self, second: u64, news: &HashMap<Arc<str>, Decided>) {
        let minute = second / 60;
        if minute != self.last {
            self.last = minute;
            self.limits.retain(|_, minutes| minutes.iter().any(|one| is_recent(one.at, minute)));
        }
        for (name, said) in news {
            let minutes = match self.limits.get_mut(name) {
                Some(minutes) => minutes,
                None => self
                    .limits
                    .entry(Arc::clone(name))
                    .or_insert_with(|| Box::new([Minute::default(); MINUTES])),
            };
            let slot = &mut minutes[usize::try_from(minute).unwrap_or(0) % MINUTES];
            if slot.at != minute {
                *slot = Minute { at: minute, said: Decided::default() };
            }
            slot.said.add(said);
        }
    }

    /// The limit's verdicts in the hour that ends with this second.
    pub(super) fn sum(&self, second: u64, limit: &str) -> Decided {
        let mut sum = Decided::default();
        let minutes = self.limits.get(limit).into_iter().flat_map(|minutes| minutes.iter());
        minutes.filter(|one| is_recent(one.at, second / 60)).for_each(|one| sum.add(&one.said));
        sum
    }
}

/// Whether it is one of the last 60 minutes.
fn is_recent(minute: u64, now: u64) -> bool {
    minute <= now && minute + MINUTES as u64 > now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_the_minute_that_runs_and_the_59_before() {
        let mut hours = HourlyHistory::default();
        let name: Arc<str> = "a".into();
        let news = HashMap::from([(Arc::clone(&name), Decided { words: [1, 0, 2] })]);
        let start = 60 * 1_000_000;
        for second in start..start + 7_200 {
            hours.count(second, &news);
            let whole = (second - start).min(59 * 60 + second % 60) + 1;
            assert_eq!(hours.sum(second, "a").words, [whole, 0, 2 * whole], "at {second}");
        }
        assert_eq!(hours.sum(start, "b"), Decided::default());
        hours.count(start + 4 * 3_600, &HashMap::new());
        assert!(hours.limits.is_empty(), "a limit that says nothing is forgotten");
    }
}
