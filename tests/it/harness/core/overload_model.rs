//! An open system in virtual time: clients with deadlines and retries, a gateway with a limit, and a backend that is a queue
//! in front of workers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU32;

use tollgate::limit::adaptive_concurrency::{
    AdmissionLoad, CapacityBounds, CapacityEstimate, LatencySample, SampleOutcome,
};
use tollgate::limit::fair_queue::{FairQueue, FairShare, Priority, QueueEntry, Room, background_reserve};
use tollgate::limit::units::{Fingerprint, Micros, Timestamp};

/// How long the backend works on a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServiceTime {
    /// Always the mean.
    Constant,
    Exponential,
    /// The logarithm varies by this.
    LogNormal(f64),
}

/// What the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    Nothing,
    /// `max` is this number.
    Fixed(u32),
    /// `max = "auto"`.
    Adaptive,
}

/// One of those whose requests arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Its part of the rate.
    pub(crate) part: f64,
    pub(crate) weight: u32,
    pub(crate) priority: Priority,
}

impl Caller {
    /// With this part of the rate.
    pub(crate) const fn of(part: f64) -> Self {
        Self { part, weight: 1, priority: Priority::Normal }
    }
}

/// A run. Functions are of the second.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) service: ServiceTime,
    /// Seconds of work for a request.
    pub(crate) mean: fn(f64) -> f64,
    /// Requests that the backend works on at the same time.
    pub(crate) workers: fn(f64) -> u32,
    /// New requests a second.
    pub(crate) rate: fn(f64) -> f64,
    /// The parts of all together are 1.
    pub(crate) callers: &'static [Caller],
    /// Whether places are divided among callers.
    pub(crate) shares: bool,
    /// Whether responses are errors of a fault, after a thousandth of the work.
    pub(crate) fails: fn(f64) -> bool,
    /// A client waits so long.
    pub(crate) deadline: f64,
    /// So often a client tries once more.
    pub(crate) retries: u32,
    pub(crate) queue: usize,
    pub(crate) max_wait: f64,
    pub(crate) seconds: f64,
    pub(crate) protection: Protection,
}

impl Scene {
    /// 16 workers of 100 ms each, so 160 requests a second.
    pub(crate) const USUAL: Self = Self {
        service: ServiceTime::Exponential,
        mean: |_| 0.1,
        workers: |_| 16,
        rate: |_| 320.0,
        callers: &[Caller::of(1.0)],
        shares: false,
        fails: |_| false,
        deadline: 1.0,
        retries: 0,
        queue: 200,
        max_wait: 0.5,
        seconds: 60.0,
        protection: Protection::Adaptive,
    };
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Responses in the deadline: when, after how long, and to which caller.
    pub(crate) good: Vec<(f64, f64, usize)>,
    /// When requests were sent, by which caller.
    pub(crate) sent: Vec<(f64, usize)>,
    /// Errors that were passed on.
    pub(crate) errors: u64,
    pub(crate) refused: u64,
    /// The maximum, each 50 ms.
    pub(crate) maxima: Vec<(f64, u32)>,
}

impl Seen {
    /// Responses a second in the deadline, from this second to that.
    pub(crate) fn goodput(&self, from: f64, to: f64) -> f64 {
        let inside = self.good.iter().filter(|(at, ..)| (from..to).contains(at)).count();
        inside as f64 / (to - from)
    }

    /// Of responses in the deadline, the latency that all but one in a hundred have.
    pub(crate) fn p99(&self) -> f64 {
        self.p99_of(|_| true)
    }

    /// The same of some callers.
    pub(crate) fn p99_of(&self, chosen: impl Fn(usize) -> bool) -> f64 {
        let of_chosen = self.good.iter().filter(|(.., caller)| chosen(*caller));
        let mut latencies: Vec<f64> = of_chosen.map(|(_, latency, _)| *latency).collect();
        latencies.sort_by(f64::total_cmp);
        latencies[latencies.len() * 99 / 100]
    }

    /// Responses in the deadline of some callers.
    pub(crate) fn good_of(&self, chosen: impl Fn(usize) -> bool) -> f64 {
        self.good.iter().filter(|(.., caller)| chosen(*caller)).count() as f64
    }

    /// Their part of the requests of these callers, but for the last second.
    pub(crate) fn success(&self, chosen: impl Fn(usize) -> bool) -> f64 {
        let end = self.sent.last().map_or(0.0, |(at, _)| at - 1.0);
        let sent = self.sent.iter().filter(|(at, caller)| *at < end && chosen(*caller)).count();
        let good =
            self.good.iter().filter(|(at, latency, caller)| at - latency < end && chosen(*caller)).count();
        good as f64 / sent as f64
    }

    /// The mean of the maximum, from this second to that.
    pub(crate) fn mean_max(&self, from: f64, to: f64) -> f64 {
        let inside = self.maxima.iter().filter(|(at, _)| (from..to).contains(at));
        let all: Vec<f64> = inside.map(|(_, max)| f64::from(*max)).collect();
        all.iter().sum::<f64>() / all.len() as f64
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    fn service(&mut self, kind: ServiceTime, mean: f64) -> f64 {
        match kind {
            ServiceTime::Constant => mean,
            ServiceTime::Exponential => self.exponential(mean),
            ServiceTime::LogNormal(sigma) => {
                let normal =
                    (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
                mean * (sigma * normal - sigma * sigma / 2.0).exp()
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Retry(u32, usize),
    WorkDone(usize),
    MaxWait(usize),
    Deadline(usize),
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    began: f64,
    sent: f64,
    load: AdmissionLoad,
    stage: Stage,
    tries: u32,
    fails: bool,
    caller: usize,
}

struct Model<'s> {
    scene: &'s Scene,
    bounds: CapacityBounds,
    estimate: CapacityEstimate,
    chance: Chance,
    now: f64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    requests: Vec<Request>,
    /// In the gateway's queue.
    waiting: FairQueue<usize>,
    /// In the backend's.
    backlog: VecDeque<usize>,
    busy: u32,
    held: u32,
    seen: Seen,
}

/// Plays a scene.
pub(crate) fn play(scene: &Scene, seed: u64) -> Seen {
    let of = |number| NonZeroU32::new(number).unwrap();
    let bounds = CapacityBounds { min: of(4), ceiling: of(1_000) };
    let mut model = Model {
        scene,
        bounds,
        estimate: CapacityEstimate::new(&bounds, Timestamp(0)),
        chance: Chance(seed),
        now: 0.0,
        events: BinaryHeap::new(),
        scheduled: 0,
        requests: Vec::new(),
        waiting: FairQueue::default(),
        backlog: VecDeque::new(),
        busy: 0,
        held: 0,
        seen: Seen::default(),
    };
    model.schedule(0.0, Event::Arrival);
    model.schedule(0.0, Event::Look);
    while let Some(Reverse((at, _, event))) = model.events.pop() {
        model.now = at as f64 / 1e6;
        if model.now > scene.seconds {
            break;
        }
        model.happens(event);
        model.admit();
        model.work();
    }
    model.seen
}

impl Model<'_> {
    fn schedule(&mut self, after: f64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((micros(self.now + after).0, self.scheduled, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                let next = self.chance.exponential(1.0 / (self.scene.rate)(self.now));
                self.schedule(next, Event::Arrival);
                let caller = self.caller();
                self.arrives(0, caller);
            }
            Event::Retry(tries, caller) => self.arrives(tries, caller),
            Event::Look => {
                self.schedule(0.05, Event::Look);
                let max = self.max();
                self.seen.maxima.push((self.now, max));
            }
            Event::MaxWait(id) if self.requests[id].stage == Stage::Waiting => {
                self.leave(id);
                self.refuse(id);
            }
            Event::Deadline(id) => match self.requests[id].stage {
                Stage::Waiting => {
                    self.leave(id);
                    self.ends(id);
                }
                Stage::Sent => {
                    // The backend does not notice.
                    self.give_back(id);
                    self.learn(id, SampleOutcome::Abandoned);
                    self.ends(id);
                }
                Stage::Over => {}
            },
            Event::WorkDone(id) => {
                self.busy -= 1;
                if self.requests[id].stage == Stage::Sent {
                    self.responds(id);
                }
            }
            Event::MaxWait(_) => {}
        }
    }

    fn arrives(&mut self, tries: u32, caller: usize) {
        let id = self.requests.len();
        let (began, load) = (self.now, AdmissionLoad::default());
        let fails = (self.scene.fails)(self.now);
        self.requests.push(Request { began, sent: 0.0, load, stage: Stage::Waiting, tries, fails, caller });
        self.seen.sent.push((self.now, caller));
        self.schedule(self.scene.deadline, Event::Deadline(id));
        let now = micros(self.now);
        let waiting = QueueEntry { ticket: id as u64, places: 1, since: now, waiter: id };
        self.waiting.join(self.share(id), waiting, now);
        if self.scene.protection == Protection::Nothing {
            return;
        }
        self.schedule(self.scene.max_wait, Event::MaxWait(id));
        self.admit();
        while self.waiting.len() > self.scene.queue {
            let dropped = self.waiting.drop_from_longest(now).unwrap().1;
            self.refuse(dropped.waiter);
        }
        let max_wait = Micros(micros(self.scene.max_wait).0);
        if let Some((_, dropped)) = self.waiting.drop_if_slow(max_wait, now) {
            self.refuse(dropped.waiter);
        }
    }

    /// A caller, by chance.
    fn caller(&mut self) -> usize {
        let callers = self.scene.callers;
        if callers.len() == 1 {
            return 0;
        }
        let mut left = self.chance.unit();
        let chosen = callers.iter().position(|caller| {
            left -= caller.part;
            left < 0.0
        });
        chosen.unwrap_or(callers.len() - 1)
    }

    fn share(&self, id: usize) -> FairShare {
        let index = self.requests[id].caller;
        let Caller { weight, priority, .. } = self.scene.callers[index];
        let key = if self.scene.shares { index as u128 } else { 0 };
        FairShare { priority, key: Fingerprint(key), weight: NonZeroU32::new(weight).unwrap() }
    }

    fn leave(&mut self, id: usize) {
        self.waiting.leave(self.share(id), id as u64, micros(self.now));
    }

    fn give_back(&mut self, id: usize) {
        self.held -= 1;
        self.waiting.give_back(self.share(id), 1, micros(self.now));
    }

    fn refuse(&mut self, id: usize) {
        self.seen.refused += 1;
        self.ends(id);
    }

    /// Without a response.
    fn ends(&mut self, id: usize) {
        self.requests[id].stage = Stage::Over;
        let tries = self.requests[id].tries;
        if tries < self.scene.retries {
            let after = 0.2 * self.chance.unit();
            self.schedule(after, Event::Retry(tries + 1, self.requests[id].caller));
        }
    }

    fn responds(&mut self, id: usize) {
        self.give_back(id);
        self.requests[id].stage = Stage::Over;
        if self.requests[id].fails {
            // Another error of a server is neither sample nor signal.
            self.seen.errors += 1;
            return;
        }
        self.seen.good.push((self.now, self.now - self.requests[id].began, self.requests[id].caller));
        self.learn(id, SampleOutcome::Answered);
    }

    fn learn(&mut self, id: usize, outcome: SampleOutcome) {
        if self.scene.protection == Protection::Adaptive {
            let Request { sent, load, .. } = self.requests[id];
            let latency = Micros(micros(self.now).0 - micros(sent).0);
            let sample = LatencySample { route: 0, latency, load, outcome };
            self.estimate.learn(&self.bounds, &sample, micros(self.now));
        }
    }

    fn max(&self) -> u32 {
        match self.scene.protection {
            Protection::Nothing => u32::MAX,
            Protection::Fixed(max) => max,
            Protection::Adaptive => self.estimate.max(&self.bounds),
        }
    }

    fn admit(&mut self) {
        while let Some(id) = self.next() {
            let (share, now) = (self.share(id), micros(self.now));
            self.waiting.admitted(share, id as u64, Micros(micros(self.scene.max_wait).0), now);
            self.waiting.take(share, 1, now);
            self.held += 1;
            let load = self.estimate.admit(&self.bounds, self.held, micros(self.now));
            let request = &mut self.requests[id];
            (request.sent, request.load, request.stage) = (self.now, load, Stage::Sent);
            self.backlog.push_back(id);
        }
    }

    fn next(&mut self) -> Option<usize> {
        let max = self.max();
        let room = Room { free: max.saturating_sub(self.held), reserve: background_reserve(max) };
        let next = self.waiting.next(room, micros(self.now)).filter(|_| room.free > 0);
        next.map(|next| next.waiter)
    }

    fn work(&mut self) {
        while self.busy < (self.scene.workers)(self.now)
            && let Some(id) = self.backlog.pop_front()
        {
            self.busy += 1;
            let service = self.chance.service(self.scene.service, (self.scene.mean)(self.now));
            let part = if self.requests[id].fails { 0.001 } else { 1.0 };
            self.schedule((service * part).max(1e-6), Event::WorkDone(id));
        }
    }
}

fn micros(seconds: f64) -> Timestamp {
    Timestamp(std::time::Duration::from_secs_f64(seconds).as_micros().try_into().unwrap_or(u64::MAX))
}
