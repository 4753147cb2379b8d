//! Traces of one process' units, and the bound of a counter whose units come back.

use proptest::prelude::*;

use super::ledger::LeasedCounter;
use super::*;
use crate::limit::Align;

const SECOND: Lease = Lease { period: Micros::SECOND };

fn cost(units: u32) -> Cost {
    Cost::new(units).unwrap()
}

fn spend(units: LeasedUnits, at: u64, cost: u32) -> (LeasedUnits, Verdict) {
    let (units, decision) = SECOND.decide(units, Timestamp(at), Cost::new(cost).unwrap_or(Cost::ZERO));
    (units, decision.verdict)
}

#[test]
fn units_are_spent_until_two_percent_before_the_end() {
    let ends = SECOND.ends(Timestamp(1_000), None);
    assert_eq!(ends, Timestamp(981_000));
    let units = SECOND.deposit(LeasedUnits::default(), 3, ends, Timestamp(2_000)).units;
    let (units, first) = spend(units, 2_000, 1);
    let (units, too_many) = spend(units, 2_000, 3);
    let (units, last_moment) = spend(units, 980_999, 1);
    let (units, after) = spend(units, 981_000, 1);
    let refused = Verdict::Deny(Wait::Unknown);
    assert_eq!([first, too_many, last_moment, after], [Verdict::Allow, refused, Verdict::Allow, refused]);
    assert_eq!(Lease::withdraw(units, Some(Timestamp(980_999))).1, 0);
    assert_eq!(Lease::withdraw(units, Some(Timestamp(981_000))), (LeasedUnits { left: 0, ..units }, 1));
}

#[test]
fn units_of_a_window_end_with_it() {
    assert_eq!(SECOND.ends(Timestamp(0), Some(Micros(500))), Timestamp(490));
    assert_eq!(SECOND.ends(Timestamp(0), Some(Micros(1))), Timestamp(0));
    let sliding = Algorithm::sliding_window(Rate::new(10, Micros(1_000)).unwrap());
    let decision = sliding.peek(&State::Fresh, Timestamp(2_300), Cost::ONE);
    assert_eq!(sliding.rest_of_window(&decision, Timestamp(2_300)), Some(Micros(700)));
}

#[test]
fn rare_requests_are_not_worth_units_in_advance() {
    let mut units = LeasedUnits::default();
    for second in 1..100 {
        let (after, is_due) = SECOND.note_spent(units, Timestamp(second * 60_000), Cost::ONE);
        assert!(!is_due, "{after:?}");
        units = after;
    }
}

#[test]
fn a_busy_key_takes_about_a_tenth_of_what_it_spends_in_a_lease() {
    // 10,000/s
    let (mut units, mut renewals, mut asked) = (LeasedUnits::default(), 0, 0);
    for request in 0..20_000_u64 {
        let now = Timestamp(10_000_000 + request * 100);
        let (after, decision) = SECOND.decide(units, now, Cost::ONE);
        let is_due = match decision.denies() {
            false => (after, decision.reset_after > Micros(0)),
            true => {
                asked += 1;
                SECOND.note_spent(after, now, Cost::ONE)
            }
        };
        units = is_due.0;
        if is_due.1 {
            let (renewing, wanted) = SECOND.begin_renewal(units, now, 10_000).unwrap();
            assert!(SECOND.begin_renewal(renewing, now, 10_000).is_none());
            renewals += 1;
            let deposit = SECOND.deposit(renewing, wanted, SECOND.ends(now, None), now);
            units = deposit.units;
        }
    }
    assert!((500..=1_000).contains(&units.left().max(Lease::wanted(units))), "{units:?}");
    assert!(asked < 10, "{asked}");
    assert!((20..70).contains(&renewals), "{renewals}");
}

#[test]
fn units_join_those_of_a_young_lease_alone() {
    let first = SECOND.deposit(LeasedUnits::default(), 10, Timestamp(980_000), Timestamp(0)).units;
    let young = SECOND.deposit(first, 5, Timestamp(1_400_000), Timestamp(420_000));
    assert_eq!(
        (young.units.left, young.units.ends, young.returned, young.joined),
        (15, Timestamp(980_000), 0, true)
    );
    let old = SECOND.deposit(first, 5, Timestamp(1_600_000), Timestamp(620_000));
    assert_eq!(
        (old.units.left, old.units.ends, old.returned, old.joined),
        (5, Timestamp(1_600_000), 10, false)
    );
}

#[test]
fn units_are_put_back_to_their_own_lease_or_end_with_the_earlier_one() {
    let units = LeasedUnits { ends: Timestamp(900), left: 2, ..LeasedUnits::default() };
    let put_back = |ends, now| {
        Lease::put_back(units, cost(3), Timestamp(ends), Timestamp(now))
            .map(|units| (units.left, units.ends.0))
    };
    assert_eq!(put_back(900, 100), Some((5, 900)));
    assert_eq!(put_back(700, 100), Some((5, 700)), "600 of 800 are left");
    assert_eq!(put_back(400, 100), None, "300 of 800 are left");
    assert_eq!(put_back(950, 100), Some((5, 900)));
    assert_eq!(put_back(100, 100), None, "they have ended");
    let none = LeasedUnits { left: 0, ..units };
    assert_eq!(
        Lease::put_back(none, cost(3), Timestamp(400), Timestamp(100)).map(|one| one.ends.0),
        Some(400)
    );
}

/// A step of a process on a shared counter.
#[derive(Clone, Debug)]
enum Action {
    Take(u32),
    /// By a gateway that has no leases.
    Charge(u32),
    /// Of the grant so many grants ago, this part of 16 goes back.
    Return(usize, u32),
}

fn action() -> impl Strategy<Value = (u64, Action)> {
    let action = prop_oneof![
        3 => (1..20_u32).prop_map(Action::Take),
        1 => (1..5_u32).prop_map(Action::Charge),
        3 => (0..4_usize, 0..=16_u32).prop_map(|(which, part)| Action::Return(which, part)),
    ];
    (prop_oneof![Just(0), 0..2_000_u64, 0..500_000_u64], action)
}

/// The units that were charged at each moment and not returned.
type Spent = Vec<(u64, i64)>;

fn run(algorithm: &Algorithm, lease: &Lease, actions: &[(u64, Action)]) -> Spent {
    let (mut counter, mut now) = (LeasedCounter::default(), 5_000_000);
    let (mut spent, mut grants) = (Spent::new(), Vec::new());
    for (pause, action) in actions {
        now += pause;
        let at = Timestamp(now);
        match *action {
            Action::Take(wanted) => {
                let (taken, _) = counter.take(algorithm, lease, wanted, at);
                assert!(taken <= wanted);
                grants.push((spent.len(), taken));
                spent.push((now, taken.into()));
            }
            Action::Charge(units) => {
                let (state, decision) = algorithm.decide(std::mem::take(&mut counter.state), at, cost(units));
                counter.state = state;
                spent.push((now, if decision.denies() { 0 } else { units.into() }));
            }
            Action::Return(which, part) => {
                let Some(index) = grants.len().checked_sub(which + 1) else { continue };
                let (place, left) = grants[index];
                let units = left * part / 16;
                if units == 0 {
                    continue;
                }
                grants[index].1 -= units;
                spent[place].1 -= i64::from(units);
                counter.give_back(algorithm, lease, units, Timestamp(spent[place].0), at);
            }
        }
    }
    spent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// With what came back left out, as if it had never been charged, a bucket still keeps its bound: none of it counts
    /// twice.
    #[test]
    fn a_bucket_keeps_its_bound_whatever_comes_back(
        count in 1..30_u32, burst in 1..40_u32, actions in prop::collection::vec(action(), 1..40)
    ) {
        let rate = Rate::new(count, Micros::SECOND).unwrap();
        let lease = Lease::new(Micros(200_000)).unwrap();
        for algorithm in [Algorithm::token_bucket(rate, cost(burst)), Algorithm::gcra(rate, cost(burst))] {
            let spent = run(&algorithm, &lease, &actions);
            for (first, (from, _)) in spent.iter().enumerate() {
                let mut units = 0;
                for (to, more) in &spent[first..] {
                    units += more;
                    let bound = i64::from(burst) * 1_000_000 + i64::from(count) * i64::try_from(to - from).unwrap();
                    prop_assert!(units * 1_000_000 <= bound, "{units} in {} µs: {spent:?}", to - from);
                }
            }
        }
    }

    #[test]
    fn a_window_keeps_its_count_whatever_comes_back(
        count in 1..30_u32, actions in prop::collection::vec(action(), 1..40)
    ) {
        let rate = Rate::new(count, Micros::SECOND).unwrap();
        let lease = Lease::new(Micros(200_000)).unwrap();
        let algorithm = Algorithm::fixed_window(rate, Align::Clock);
        let mut windows = std::collections::BTreeMap::<u64, i64>::new();
        for (at, units) in run(&algorithm, &lease, &actions) {
            *windows.entry(at / 1_000_000).or_default() += units;
        }
        prop_assert!(windows.values().all(|units| (0..=i64::from(count)).contains(units)), "{windows:?}");
    }

    #[test]
    fn packed_units_are_found_again(ends in 0..1_u64 << 53, left in 0..=LeasedUnits::MAX, spent in 0..=LeasedUnits::MAX_SPENT,
        tick: u16, is_renewing: bool
    ) {
        let units = LeasedUnits { ends: Timestamp(ends), left, spent, tick, is_renewing };
        let packed = units.pack().unwrap();
        if packed.used == 0 {
            prop_assert_eq!((left, spent, is_renewing), (0, 0, false));
        } else {
            prop_assert_eq!(LeasedUnits::unpack(packed), Some(units));
        }
    }
}
