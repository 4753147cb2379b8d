//! Shares of the places, in virtual time: each run is the same each time.

use tollgate::limit::fair_queue::{FairQueue, FairShare, Priority, QueueEntry, Room};
use tollgate::limit::units::{Fingerprint, Micros, Timestamp};

use crate::harness::overload_model::{Caller, Protection, Scene, Seen, ServiceTime, play};

const SERVICES: [ServiceTime; 3] =
    [ServiceTime::Constant, ServiceTime::Exponential, ServiceTime::LogNormal(1.0)];
const SHARED: Scene = Scene { shares: true, ..Scene::USUAL };
const SEEDS: u64 = 2;

/// The mean over seeds.
fn mean(scene: &Scene, measure: impl Fn(&Seen) -> f64) -> f64 {
    (1..=SEEDS).map(|seed| measure(&play(scene, seed))).sum::<f64>() / SEEDS as f64
}

/// Twenty clients of 4 requests a second each, and one of fifty times as many.
fn beside_a_noisy_client(protection: Protection, least: [f64; 3]) {
    const QUIET: [Caller; 20] = [Caller::of(0.05); 20];
    const NOISY: [Caller; 21] = {
        let mut all = [Caller::of(4.0 / 280.0); 21];
        all[20].part = 200.0 / 280.0;
        all
    };
    for (service, least) in SERVICES.into_iter().zip(least) {
        let quiet = Scene { service, protection, callers: &QUIET, rate: |_| 80.0, ..SHARED };
        let noisy = Scene { callers: &NOISY, rate: |_| 280.0, ..quiet };
        let success = mean(&noisy, |seen| seen.success(|caller| caller < 20));
        assert!(success >= least, "{service:?}: {success} of at least {least}");
        let alone = mean(&quiet, Seen::p99);
        let beside = mean(&noisy, |seen| seen.p99_of(|caller| caller < 20));
        // Where all work takes equally long, places become free together: a request waits for up to as long as one works.
        let bound = match service {
            ServiceTime::Constant => alone + 0.17,
            _ => 1.5 * alone,
        };
        assert!(beside <= bound, "{service:?}: {beside}, and {alone} alone");
        // The noisy one gets what the others leave.
        let got = mean(&noisy, |seen| seen.good_of(|caller| caller == 20) / 60.0);
        assert!((60.0..85.0).contains(&got), "{service:?}: {got}");
        let unfair = mean(&Scene { shares: false, ..noisy }, |seen| seen.success(|caller| caller < 20));
        assert!(unfair < 0.7, "{service:?}: {unfair} without shares");
    }
}

#[test]
fn a_noisy_client_takes_no_place_that_others_want() {
    beside_a_noisy_client(Protection::Fixed(16), [0.999, 0.999, 0.99]);
}

#[test]
fn a_noisy_client_takes_no_place_that_others_want_of_a_maximum_that_is_found() {
    beside_a_noisy_client(Protection::Adaptive, [0.999, 0.999, 0.99]);
}

#[test]
fn under_pressure_places_are_divided_by_weight() {
    const WEIGHTS: [Caller; 2] = [Caller { weight: 4, ..Caller::of(0.5) }, Caller::of(0.5)];
    for protection in [Protection::Fixed(16), Protection::Adaptive, Protection::Fixed(3)] {
        for service in SERVICES {
            // The time of places is divided: in a minute, the number of requests varies with their work.
            let scene = Scene { service, protection, callers: &WEIGHTS, seconds: 120.0, ..SHARED };
            let ratio =
                mean(&scene, |seen| seen.good_of(|caller| caller == 0) / seen.good_of(|one| one == 1));
            assert!((4.0 - ratio).abs() <= 0.2, "{protection:?} {service:?}: {ratio}");
        }
    }
}

#[test]
fn beside_background_requests_normal_ones_go_on_as_if_alone() {
    const BOTH: [Caller; 2] =
        [Caller::of(120.0 / 320.0), Caller { priority: Priority::Background, ..Caller::of(200.0 / 320.0) }];
    for service in SERVICES {
        let protection = Protection::Fixed(16);
        let alone = Scene { service, protection, rate: |_| 120.0, ..SHARED };
        let both = Scene { callers: &BOTH, rate: |_| 320.0, ..alone };
        let normal = |seen: &Seen| seen.success(|caller| caller == 0);
        let (success, before) = (mean(&both, normal), mean(&alone, normal));
        assert!(success >= before - 0.002, "{service:?}: {success}, and {before} alone");
        let p99 = mean(&both, |seen| seen.p99_of(|caller| caller == 0));
        let before = mean(&alone, Seen::p99);
        assert!(p99 <= 1.15 * before, "{service:?}: {p99}, and {before} alone");
        // What is left is used, but for the reserve.
        let all = mean(&both, |seen| seen.goodput(10.0, 60.0));
        assert!(all > 150.0, "{service:?}: {all}");
    }
}

/// Of what the highest wants, each lower priority gets one place in ten.
#[test]
fn a_lower_priority_that_waits_gets_one_place_in_ten() {
    const THREE: [Caller; 3] = [
        Caller { priority: Priority::High, ..Caller::of(0.4) },
        Caller::of(0.3),
        Caller { priority: Priority::Low, ..Caller::of(0.3) },
    ];
    // The queue is so short that requests wait for less than half of the longest wait.
    let scene = Scene {
        protection: Protection::Fixed(16),
        callers: &THREE,
        rate: |_| 800.0,
        queue: 20,
        max_wait: 2.0,
        deadline: 3.0,
        ..SHARED
    };
    let part =
        |caller: usize| mean(&scene, |seen| seen.good_of(|one| one == caller) / seen.good_of(|_| true));
    let parts = [part(0), part(1), part(2)];
    assert!(parts[0] > 0.75, "{parts:?}");
    assert!((0.08..0.12).contains(&parts[1]) && (0.08..0.12).contains(&parts[2]), "{parts:?}");
}

fn share(key: u128) -> FairShare {
    FairShare { priority: Priority::Normal, key: Fingerprint(key), weight: 1.try_into().unwrap() }
}

/// What keys have used grows while they hold places, at each moment and for all of them: a step must not look at each. If it
/// did, this would take minutes.
#[test]
fn a_step_does_not_look_at_all_keys_that_hold_places_and_wait() {
    const KEYS: u64 = 10_000;
    let mut queue = FairQueue::<u128>::default();
    for key in 0..KEYS {
        queue.take(share(key.into()), 1, Timestamp(key));
        let entry = QueueEntry { ticket: key, places: 1, since: Timestamp(key), waiter: key.into() };
        queue.join(share(key.into()), entry, Timestamp(key));
    }
    let mut holders: std::collections::VecDeque<u128> = (0..KEYS.into()).collect();
    let mut served = std::collections::HashSet::new();
    for step in 0..2 * KEYS {
        let now = Timestamp(KEYS + step * 1_000);
        let next = queue.next(Room { free: 1, reserve: 0 }, now).unwrap();
        let (ticket, key) = (next.ticket, next.waiter);
        served.insert(key);
        // The place that is held longest becomes free: its key has used no more than others from then on.
        queue.give_back(share(holders.pop_front().unwrap()), 1, now);
        holders.push_back(key);
        queue.admitted(share(key), ticket, Micros(1_000_000), now);
        queue.take(share(key), 1, now);
        queue.join(share(key), QueueEntry { ticket: KEYS + step, places: 1, since: now, waiter: key }, now);
    }
    assert_eq!(served.len() as u64, KEYS, "each gets its turn");
}

/// A client whose requests take ten times as long gets as much time of places, not as many requests.
#[test]
fn the_time_of_places_is_divided_and_not_the_number_of_requests() {
    let spans = [100_000_u64, 10_000];
    let mut queue = FairQueue::<usize>::default();
    let (mut ticket, mut ends, mut used) = (0, Vec::<(u64, usize)>::new(), [0_u64; 2]);
    for key in 0..2 {
        for _ in 0..4 {
            ticket += 1;
            let waiting = QueueEntry { ticket, places: 1, since: Timestamp(0), waiter: key };
            queue.join(share(key as u128), waiting, Timestamp(0));
        }
    }
    let mut now = 0;
    while now < 60_000_000 {
        while ends.len() < 4 {
            let room = Room { free: 1, reserve: 0 };
            let Some((number, key)) = queue.next(room, Timestamp(now)).map(|one| (one.ticket, one.waiter))
            else {
                break;
            };
            let share = share(key as u128);
            queue.admitted(share, number, Micros(1_000_000), Timestamp(now));
            queue.take(share, 1, Timestamp(now));
            ends.push((now + spans[key], key));
            // The next request of the key waits.
            ticket += 1;
            queue.join(
                share,
                QueueEntry { ticket, places: 1, since: Timestamp(now), waiter: key },
                Timestamp(now),
            );
        }
        ends.sort_unstable();
        let (at, key) = ends.remove(0);
        now = at;
        used[key] += spans[key];
        queue.give_back(share(key as u128), 1, Timestamp(now));
    }
    let ratio = used[0] as f64 / used[1] as f64;
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}
