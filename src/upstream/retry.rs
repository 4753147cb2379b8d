//! The retry budget of an upstream: a bounded share of its requests, so that retries never amplify a short outage.

use std::time::Duration;

use tokio::time::Instant;

/// The number of one-second slots that the budget covers.
const SLOTS: usize = 10;
/// Retries a second that are always allowed, for the whole process.
const FLOOR: u64 = 10;

/// One upstream's retry budget in one worker: at most a share of the requests of the last 10 s, and at least 10 a
/// second (split between the workers).
#[derive(Debug)]
pub struct RetryBudget {
    permille: u64,
    floor: u64,
    slots: [BudgetSlot; SLOTS],
    /// When the newest slot began, and its index.
    newest: Option<(Instant, usize)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct BudgetSlot {
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// `permille` thousandths of the requests may be retries.
    pub fn new(permille: u32, workers: usize) -> Self {
        let workers = workers.max(1) as u64;
        Self {
            permille: u64::from(permille),
            floor: (FLOOR * SLOTS as u64).div_ceil(workers),
            slots: [BudgetSlot::default(); SLOTS],
            newest: None,
        }
    }

    /// Counts a request.
    pub fn request(&mut self, now: Instant) {
        self.slot(now).requests += 1;
    }

    /// Spends one retry if the budget allows it.
    pub fn spend(&mut self, now: Instant) -> bool {
        self.slot(now);
        let (requests, retries) =
            self.slots.iter().fold((0, 0), |sum, slot| (sum.0 + slot.requests, sum.1 + slot.retries));
        let allowed = retries < self.floor.max(requests * self.permille / 1000);
        if allowed {
            self.slot(now).retries += 1;
        }
        allowed
    }

    /// The slot of `now`; expired slots are emptied on the way.
    fn slot(&mut self, now: Instant) -> &mut BudgetSlot {
        let (mut began, mut index) = self.newest.unwrap_or((now, 0));
        let passed = now.saturating_duration_since(began).as_secs();
        for _ in 0..passed.min(SLOTS as u64) {
            index = (index + 1) % SLOTS;
            self.slots[index] = BudgetSlot::default();
        }
        began += Duration::from_secs(passed);
        self.newest = Some((began, index));
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_last_ten_seconds_and_ten_a_second_at_least() {
        let start = crate::clock::now();
        let mut budget = RetryBudget::new(200, 1);
        assert_eq!((0..1000).filter(|_| budget.spend(start)).count(), 100, "the floor: 10 a second for 10 s");
        for _ in 0..1000 {
            budget.request(start);
        }
        assert_eq!(
            (0..1000).filter(|_| budget.spend(start)).count(),
            100,
            "a fifth of 1,000, less the 100 spent"
        );
        let later = start + Duration::from_secs(10);
        assert_eq!(
            (0..1000).filter(|_| budget.spend(later)).count(),
            100,
            "all that is forgotten after 10 s"
        );
    }
}
