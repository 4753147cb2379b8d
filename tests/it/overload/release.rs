//! `share_by` of a leaky bucket: requests leave at the bucket's rate, in the order of shares.

use proptest::prelude::*;
use tollgate::limit::fair_queue::{FairShare, Priority, QueueEntry};
use tollgate::limit::release_queue::ReleaseQueue;
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, State, Verdict, Wait};

/// A request of a key, at a moment.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Timestamp,
    key: u128,
    weight: u32,
    cost: u32,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left(Timestamp),
    Dropped,
    Refused,
}

fn share(arrival: &Arrival) -> FairShare {
    let weight = arrival.weight.try_into().unwrap();
    FairShare { priority: Priority::Normal, key: Fingerprint(arrival.key), weight }
}

/// A bucket of so many units a second, and the queue before it.
struct Model {
    bucket: Algorithm,
    state: State,
    queue: ReleaseQueue<usize>,
    ends: Vec<Option<End>>,
    /// The slots that the bucket has given, with their units.
    slots: Vec<(Timestamp, u32)>,
}

impl Model {
    fn new(rate: u32, queue: u32) -> Self {
        let rate = Rate::new(rate, Micros::SECOND).unwrap();
        let bucket = Algorithm::leaky_bucket(rate, Cost::new(queue).unwrap(), Micros(100_000_000));
        Self {
            bucket,
            state: State::default(),
            queue: ReleaseQueue::default(),
            ends: Vec::new(),
            slots: Vec::new(),
        }
    }

    fn leave(&mut self, now: Timestamp) {
        while let Some(slot) = self.queue.next_slot().filter(|slot| *slot <= now) {
            for entry in self.queue.release(slot) {
                self.ends[entry.waiter] = Some(End::Left(slot));
            }
        }
    }

    fn arrive(&mut self, arrival: &Arrival) {
        let (now, cost) = (arrival.at, Cost::new(arrival.cost).unwrap());
        self.leave(now);
        let index = self.ends.len();
        self.ends.push(None);
        if let Verdict::Deny(Wait::After(wait)) = self.bucket.peek(&self.state, now, cost).verdict {
            let units = self.bucket.as_leaky_bucket().unwrap().units_in(wait);
            let (dropped, freed) = self.queue.make_room(share(arrival), units, now);
            dropped.iter().for_each(|entry| self.ends[entry.waiter] = Some(End::Dropped));
            if let Some(freed) = Cost::new(u32::try_from(freed).unwrap()) {
                self.state = self.bucket.grant(std::mem::take(&mut self.state), freed, now).0;
            }
        }
        let (state, decision) = self.bucket.decide(std::mem::take(&mut self.state), now, cost);
        self.state = state;
        let slot = match decision.verdict {
            Verdict::Allow => now,
            Verdict::Delay(delay) => now.plus(delay),
            Verdict::Deny(_) => {
                self.ends[index] = Some(End::Refused);
                return;
            }
        };
        self.slots.push((slot, arrival.cost));
        let ticket = index as u64 + 1;
        let entry = QueueEntry { ticket, places: arrival.cost, since: now, waiter: index };
        self.queue.join(share(arrival), slot, entry, now);
        self.leave(now);
    }

    fn run(mut self, arrivals: &[Arrival]) -> (Vec<End>, Vec<(Timestamp, u32)>) {
        arrivals.iter().for_each(|arrival| self.arrive(arrival));
        self.leave(Timestamp(u64::MAX));
        assert!(self.queue.is_empty());
        (self.ends.into_iter().map(Option::unwrap).collect(), self.slots)
    }
}

/// `count` requests of cost 1 of this key, one each `every` µs.
fn stream(key: u128, weight: u32, count: u64, every: u64) -> impl Iterator<Item = Arrival> {
    (0..count).map(move |number| Arrival { at: Timestamp(number * every), key, weight, cost: 1 })
}

fn merged(streams: impl IntoIterator<Item = Arrival>) -> Vec<Arrival> {
    let mut all: Vec<_> = streams.into_iter().collect();
    all.sort_by_key(|arrival| arrival.at);
    all
}

fn left<'a>(
    arrivals: &'a [Arrival],
    ends: &'a [End],
    key: u128,
) -> impl Iterator<Item = (Arrival, Timestamp)> + 'a {
    let both = arrivals.iter().zip(ends);
    both.filter_map(move |(arrival, end)| match end {
        End::Left(at) if arrival.key == key => Some((*arrival, *at)),
        _ => None,
    })
}

/// A client with fifty times the requests of another waits for itself: the other one is never refused, and waits for a slot or two.
#[test]
fn a_noisy_client_waits_for_itself() {
    let arrivals = merged(stream(1, 1, 50_000, 200).chain(stream(2, 1, 200, 50_000)));
    let (ends, _) = Model::new(100, 50).run(&arrivals);
    let quiet: Vec<_> = left(&arrivals, &ends, 2).collect();
    assert_eq!(quiet.len(), 200);
    let longest = quiet.iter().map(|(arrival, at)| at.since(arrival.at)).max().unwrap();
    assert!(longest <= Micros(20_000), "{longest:?}");
    let noisy = left(&arrivals, &ends, 1).count();
    // A hundred leave each second, of ten seconds, and fifty wait in the end.
    assert!((840..=860).contains(&noisy), "{noisy}");
}

/// Two clients with more than there is, by weight 4 : 1.
#[test]
fn weights_divide_the_rate() {
    let arrivals = merged(stream(1, 4, 20_000, 500).chain(stream(2, 1, 20_000, 500)));
    let (ends, _) = Model::new(200, 100).run(&arrivals);
    let until = Timestamp(10_000_000);
    let of = |key| left(&arrivals, &ends, key).filter(|(_, at)| *at < until).count() as f64;
    let ratio = of(1) / of(2);
    assert!((3.8..4.2).contains(&ratio), "{ratio}");
    assert!(of(1) + of(2) >= 1_990.0);
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let arrival = (0_u64..30_000, 0_u128..4, 1_u32..5, 1_u32..6);
    prop::collection::vec(arrival, 1..200).prop_map(|all| {
        let mut now = 0;
        let arrival = |(span, key, weight, cost)| {
            now += span;
            Arrival { at: Timestamp(now), key, weight, cost }
        };
        all.into_iter().map(arrival).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whoever leaves: until any moment no more units have left than the slots of the bucket until then had. Each request ends.
    #[test]
    fn the_rate_is_that_of_the_bucket(arrivals in arrivals(), rate in 20_u32..500, queue in 1_u32..50) {
        let (ends, slots) = Model::new(rate, queue).run(&arrivals);
        let mut departures: Vec<_> = arrivals.iter().zip(&ends).filter_map(|(arrival, end)| match end {
            End::Left(at) => Some((*at, arrival.cost)),
            _ => None,
        }).collect();
        departures.sort_unstable();
        let mut units = 0;
        for (at, cost) in departures {
            units += u64::from(cost);
            let given: u64 = slots.iter().filter(|(slot, _)| *slot <= at).map(|(_, units)| u64::from(*units)).sum();
            prop_assert!(units <= given, "{units} of {given} at {at:?}");
        }
    }

    /// With one key the queue is first come, first served: as the bucket alone has it.
    #[test]
    fn one_key_leaves_as_without_shares(arrivals in arrivals(), rate in 20_u32..500, queue in 1_u32..50) {
        let arrivals: Vec<_> = arrivals.into_iter().map(|arrival| Arrival { key: 1, weight: 1, ..arrival }).collect();
        let (ends, _) = Model::new(rate, queue).run(&arrivals);
        let (mut model, mut expected) = (Model::new(rate, queue), Vec::new());
        for arrival in &arrivals {
            let (state, decision) = model.bucket.decide(std::mem::take(&mut model.state), arrival.at, Cost::new(arrival.cost).unwrap());
            model.state = state;
            expected.push(match decision.verdict {
                Verdict::Allow => End::Left(arrival.at),
                Verdict::Delay(delay) => End::Left(arrival.at.plus(delay)),
                Verdict::Deny(_) => End::Refused,
            });
        }
        prop_assert_eq!(ends, expected);
    }
}
