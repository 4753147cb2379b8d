//! The maximum that is found, in virtual time: each run is the same each time.

use crate::harness::overload_model::{Protection, Scene, Seen, ServiceTime, play};

const SEEDS: u64 = 4;
const SERVICES: [ServiceTime; 3] =
    [ServiceTime::Constant, ServiceTime::Exponential, ServiceTime::LogNormal(1.0)];

/// Runs with each of the service times: what `measure` finds, as the mean over seeds.
fn means(scene: &Scene, measure: impl Fn(&Seen) -> f64) -> [f64; 3] {
    SERVICES.map(|service| {
        let run = |seed| measure(&play(&Scene { service, ..*scene }, seed));
        (1..=SEEDS).map(run).sum::<f64>() / SEEDS as f64
    })
}

#[track_caller]
fn at_least(least: f64, found: [f64; 3]) {
    assert!(found.iter().all(|one| *one >= least), "{found:?} of at least {least}");
}

#[test]
fn a_load_of_sixty_percent_is_let_through_as_without_a_limit() {
    for (workers, rate, mean) in [
        ((|_| 16) as fn(f64) -> u32, (|_| 96.0) as fn(f64) -> f64, (|_| 0.1) as fn(f64) -> f64),
        (|_| 64, |_| 3_840.0, |_| 0.01),
        (|_| 4, |_| 240.0, |_| 0.01),
        (|_| 1, |_| 60.0, |_| 0.01),
    ] {
        let scene = Scene { workers, rate, mean, seconds: 30.0, ..Scene::USUAL };
        for service in SERVICES {
            let with = play(&Scene { service, ..scene }, 1);
            let without = play(&Scene { service, protection: Protection::Nothing, ..scene }, 1);
            assert_eq!(with.refused, 0, "{service:?}");
            let (with, without) = (with.p99(), without.p99());
            assert!(with <= 1.1 * without, "{service:?}: {with} and {without}");
        }
    }
}

#[test]
fn under_twice_the_load_the_backend_works_at_its_capacity_in_the_deadline() {
    at_least(0.95, means(&Scene::USUAL, |seen| seen.goodput(10.0, 60.0) / 160.0));
    let fast = Scene { workers: |_| 8, mean: |_| 0.005, rate: |_| 3_200.0, seconds: 8.0, ..Scene::USUAL };
    at_least(0.97, means(&fast, |seen| seen.goodput(3.0, 8.0) / 1_600.0));
    let large = Scene { workers: |_| 200, rate: |_| 4_000.0, seconds: 12.0, ..Scene::USUAL };
    let large = play(&large, 1).goodput(8.0, 12.0) / 2_000.0;
    assert!(large > 0.95, "{large}");
    // As servers of language models: few places, long work.
    let slow = Scene {
        workers: |_| 4,
        mean: |_| 5.0,
        rate: |_| 1.6,
        deadline: 60.0,
        max_wait: 20.0,
        seconds: 600.0,
        ..Scene::USUAL
    };
    at_least(0.95, means(&slow, |seen| seen.goodput(60.0, 600.0) / 0.8));
    // Without a limit, nearly every response comes too late.
    let nothing = Scene { protection: Protection::Nothing, ..Scene::USUAL };
    let unprotected = means(&nothing, |seen| seen.goodput(10.0, 60.0) / 160.0);
    assert!(unprotected.iter().all(|one| *one < 0.05), "{unprotected:?}");
}

/// From five seconds after the change on, nearly all that the backend can do is in the deadline.
#[test]
fn when_the_workers_halve_and_double_the_maximum_follows_in_five_seconds() {
    let scene = Scene { workers: |at| if (20.0..40.0).contains(&at) { 8 } else { 16 }, ..Scene::USUAL };
    at_least(
        0.9,
        means(&scene, |seen| {
            let (halved, doubled) = (seen.goodput(25.0, 40.0) / 80.0, seen.goodput(45.0, 60.0) / 160.0);
            halved.min(doubled)
        }),
    );
    let halved = means(&Scene { seconds: 40.0, ..scene }, |seen| seen.mean_max(25.0, 40.0));
    assert!(halved.iter().all(|max| (7.0..18.0).contains(max)), "{halved:?}");
    let large = Scene {
        workers: |at| if (8.0..18.0).contains(&at) { 100 } else { 200 },
        rate: |_| 4_000.0,
        seconds: 26.0,
        ..Scene::USUAL
    };
    let seen = play(&large, 1);
    let (halved, doubled) = (seen.goodput(13.0, 18.0) / 1_000.0, seen.goodput(23.0, 26.0) / 2_000.0);
    assert!(halved > 0.9 && doubled > 0.9, "{halved} and {doubled}");
}

/// Each request takes twice as long: fewer in flight would not help, so the maximum stays where it was.
#[test]
fn when_the_work_doubles_the_maximum_does_not_collapse() {
    let mean = |at| if (20.0..40.0).contains(&at) { 0.2 } else { 0.1 };
    let scene = Scene { mean, deadline: 2.0, ..Scene::USUAL };
    let best = Scene { protection: Protection::Fixed(16), ..scene };
    let (found, best) =
        (means(&scene, |seen| seen.goodput(25.0, 40.0)), means(&best, |seen| seen.goodput(25.0, 40.0)));
    for (found, best) in found.iter().zip(best) {
        assert!(*found >= 0.9 * best, "{found} of {best}");
    }
    at_least(0.9, means(&scene, |seen| seen.goodput(45.0, 60.0) / 160.0));
}

/// Clients try three times more. Without a limit, the backend works for ever on what nobody waits for.
#[test]
fn retries_after_an_outage_end_within_ten_seconds() {
    let scene = Scene {
        workers: |at| if (20.0..30.0).contains(&at) { 0 } else { 16 },
        rate: |_| 120.0,
        retries: 3,
        ..Scene::USUAL
    };
    at_least(0.95, means(&scene, |seen| seen.goodput(40.0, 60.0) / 120.0));
    let nothing = Scene { protection: Protection::Nothing, ..scene };
    let unprotected = means(&nothing, |seen| seen.goodput(40.0, 60.0) / 120.0);
    assert!(unprotected.iter().all(|one| *one < 0.05), "{unprotected:?}");
}

#[test]
fn a_deploy_that_answers_errors_at_once_lowers_no_maximum() {
    let scene = Scene { fails: |at| (20.0..40.0).contains(&at), rate: |_| 140.0, ..Scene::USUAL };
    for service in SERVICES {
        let seen = play(&Scene { service, ..scene }, 1);
        // What was in flight before the deploy has ended by then.
        let (before, during) = (seen.mean_max(21.0, 22.0), seen.mean_max(25.0, 40.0));
        assert!(during >= before - 1.0, "{service:?}: {before}, then {during}");
        assert!(seen.errors > 2_000, "{service:?}: {}", seen.errors);
    }
}

/// At the least maximum there is no room for a probe: the baseline is found anew all the same.
#[test]
fn at_the_least_maximum_a_slower_backend_is_no_trap() {
    let mean = |at| if at < 10.0 { 0.02 } else { 0.2 };
    let workers = |at| if at < 20.0 { 2 } else { 32 };
    let scene = Scene { mean, workers, rate: |_| 400.0, deadline: 3.0, ..Scene::USUAL };
    at_least(0.75, means(&scene, |seen| seen.goodput(35.0, 60.0) / 160.0));
}
