//! What is simulated: the fleet, its limit, its traffic and its network.

use tollgate::limit::lease::Lease;
use tollgate::limit::units::{Cost, Micros, Rate};
use tollgate::limit::{Algorithm, Align};

/// How gateways share a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Each request is decided by the store.
    Exact,
    /// Each gateway has a limit of its own: the rate divided by the number of gateways.
    Divided,
    /// Gateways take units in advance.
    Leased(Lease),
}

/// A limit: `count` per `period`, and for the bucket a burst of the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) is_window: bool,
    pub(crate) count: u32,
    pub(crate) period: Micros,
}

/// Which gateway gets a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Routing {
    /// Each gateway equally often.
    Even,
    /// This share of the requests goes to a tenth of the gateways: to another tenth after each period.
    Skewed(f64, Micros),
    /// All requests of a key go to one gateway: another one after each period.
    Sticky(Micros),
}

/// The requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    /// One key, or keys by a Zipf distribution with the exponent 1.
    pub(crate) keys: u64,
    /// Requests a second, at random moments (Poisson).
    pub(crate) demand: f64,
    pub(crate) routing: Routing,
}

/// Parts of a gateway's flow that are open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// A request that waited for units, and got none, waits for the next ones; else the store decides it.
    pub(crate) waits_again: bool,
    /// A gateway that got fewer units than it wanted asks for no others during [`Lease::pause`].
    pub(crate) pauses: bool,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) gateways: usize,
    pub(crate) mode: Mode,
    pub(crate) limit: Limit,
    pub(crate) traffic: Traffic,
    /// The round trip to the store: that of gateway i is the one at i modulo their number.
    pub(crate) round_trips: &'static [Micros],
    /// The share of calls that are lost: half of them before the store has decided.
    pub(crate) loss: f64,
    /// A gateway loses its memory this often: one after the other.
    pub(crate) crashes: Option<Micros>,
    /// Seconds that count.
    pub(crate) seconds: u64,
    pub(crate) flow: Flow,
}

pub(crate) const fn milliseconds(count: u64) -> Micros {
    Micros(count * 1_000)
}

pub(crate) const fn seconds(count: u64) -> Micros {
    Micros(count * 1_000_000)
}

/// A round trip within a data centre.
pub(crate) const NEAR: &[Micros] = &[milliseconds(1)];

impl Mode {
    pub(crate) fn leased(period: Micros) -> Self {
        Self::Leased(Lease::new(period).expect("a lease is 100 ms to 60 s"))
    }

    /// For how long units are taken in advance: zero without leases.
    pub(crate) fn lease(self) -> Micros {
        if let Self::Leased(lease) = self { lease.duration() } else { Micros(0) }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::Divided => "divided by N".to_owned(),
            Self::Leased(lease) => format!("lease {}", written(lease.duration())),
        }
    }
}

/// `100 ms`, `1 s`.
pub(crate) fn written(span: Micros) -> String {
    match span.0 {
        span if span % 1_000_000 == 0 => format!("{} s", span / 1_000_000),
        span if span % 1_000 == 0 => format!("{} ms", span / 1_000),
        span => format!("{} ms", span as f64 / 1_000.0),
    }
}

impl Limit {
    pub(crate) const fn bucket(count: u32) -> Self {
        Self { is_window: false, count, period: Micros::SECOND }
    }

    pub(crate) const fn window(count: u32, period: Micros) -> Self {
        Self { is_window: true, count, period }
    }

    pub(crate) fn rate(self) -> Rate {
        Rate::new(self.count, self.period).expect("the rate is in range")
    }

    /// Units a second.
    pub(crate) fn admitted(self) -> f64 {
        f64::from(self.count) * 1e6 / self.period.0 as f64
    }

    /// The limit of the store.
    pub(crate) fn algorithm(self) -> Algorithm {
        self.divided(1)
    }

    /// The limit of each of so many gateways that share no store: at least one unit.
    pub(crate) fn divided(self, gateways: usize) -> Algorithm {
        let gateways = u32::try_from(gateways).expect("it is a small number");
        let units = (self.count / gateways).max(1);
        if self.is_window {
            let rate = Rate::new(units, self.period).expect("the rate is in range");
            return Algorithm::fixed_window(rate, Align::Clock);
        }
        let period = Micros(self.period.0 * u64::from(gateways));
        let rate = Rate::new(self.count, period).expect("the rate is in range");
        Algorithm::token_bucket(rate, Cost::new(units).expect("at least one"))
    }
}

impl Scenario {
    /// Gateways near the store that each get the same number of requests, all of one key: so many times what the limit
    /// admits.
    pub(crate) fn one_key(gateways: usize, mode: Mode, limit: Limit, times: f64) -> Self {
        let traffic = Traffic { keys: 1, demand: limit.admitted() * times, routing: Routing::Even };
        let seconds = 20.max(4 * mode.lease().0 / 1_000_000);
        Self {
            gateways,
            mode,
            limit,
            traffic,
            round_trips: NEAR,
            loss: 0.0,
            crashes: None,
            seconds,
            flow: Flow::default(),
        }
    }

    pub(crate) fn with_routing(mut self, routing: Routing) -> Self {
        self.traffic.routing = routing;
        self
    }

    pub(crate) fn with_round_trips(mut self, round_trips: &'static [Micros]) -> Self {
        self.round_trips = round_trips;
        self
    }

    /// What passes before anything counts: the first units of a bucket are spent meanwhile.
    pub(crate) fn warm_up(&self) -> Micros {
        let surplus = self.traffic.demand / self.limit.admitted() - 1.0;
        let has_burst = !self.limit.is_window && self.traffic.keys == 1 && surplus > 0.0;
        let drains = if has_burst { 1e6 / surplus } else { 0.0 };
        Micros((self.two_leases() + drains as u64).next_multiple_of(1_000_000))
    }

    /// The periods for which shares are given apart: a window, or twice the lease.
    pub(crate) fn block(&self) -> Micros {
        if self.limit.is_window { self.limit.period } else { Micros(self.two_leases()) }
    }

    fn two_leases(&self) -> u64 {
        (2 * self.mode.lease().0).max(2_000_000)
    }

    /// After this time a gateway counts a call as lost.
    pub(crate) fn timeout(&self) -> Micros {
        let longest = self.round_trips.iter().max().map_or(0, |trip| trip.0);
        Micros((3 * longest).max(20_000))
    }
}
