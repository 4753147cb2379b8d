//! What a step of a fair queue costs: of ten keys with ten requests, and of 100,000 keys of which 10,000 wait.
//!
//! `cargo bench --bench fair_queue`. A step: the next request gets its place, the one before gives its place back, and another
//! request waits. The time is passed in.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use divan::{Bencher, black_box};
use tollgate::limit::fair_queue::{FairQueue, FairShare, Priority, QueueEntry, Room};
use tollgate::limit::units::{Fingerprint, Micros, Timestamp};

fn main() {
    divan::main();
}

/// Keys, and how many of them wait. So many steps that each key has waited and held places.
#[divan::bench(sample_count = 30, sample_size = 20_000, args = [(10, 10), (100, 100), (10_000, 1_000), (100_000, 10_000)])]
fn step(bencher: Bencher<'_, '_>, (keys, waiting): (u128, u64)) {
    let share = |key: u128| FairShare {
        priority: Priority::Normal,
        // Spread, as hashes are.
        key: Fingerprint((key % keys).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        weight: 1.try_into().unwrap(),
    };
    let mut queue = FairQueue::default();
    let (mut ticket, mut now) = (0_u64, 0_u64);
    let mut join = |queue: &mut FairQueue<u128>, now: u64| {
        ticket += 1;
        let key = u128::from(ticket);
        let entry = QueueEntry { ticket, places: 1, since: Timestamp(now), waiter: key };
        queue.join(share(key), entry, Timestamp(now));
    };
    (0..waiting).for_each(|_| join(&mut queue, 0));
    // The others are known since they hold a place.
    (u128::from(waiting)..keys).for_each(|key| queue.take(share(key), 1, Timestamp(0)));
    let mut last = None;
    bencher.bench_local(move || {
        now += 100;
        let moment = Timestamp(now);
        let next = queue.next(Room { free: 1, reserve: 1 }, moment).map(|next| (next.ticket, next.waiter));
        let (number, key) = black_box(next).unwrap();
        queue.admitted(share(key), number, Micros(1_000_000), moment);
        queue.take(share(key), 1, moment);
        if let Some(key) = last.replace(key) {
            queue.give_back(share(key), 1, moment);
        }
        join(&mut queue, now);
    });
}
