//! What is checked: an algorithm and a lease, the moments at which something may happen, and a bug if there is one.

use tollgate::limit::lease::Lease;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align};

/// The number of gateways.
pub(super) const GATEWAYS: usize = 3;
/// The rates of the gateways' clocks, in percent of the store's clock. Each clock also has another time.
const CLOCKS: [u64; GATEWAYS] = [98, 100, 102];
/// The store's time of the first moment. Windows begin then.
const START: u64 = 10_000_000;

/// Units that are granted at the first moment end at 98 ms of the gateway's clock: by the clock of 98 % that is 100 ms of
/// the store's, by that of 102 % it is 96 ms.
const LEASE: Micros = Micros(100_000);
/// Two leases. So units of the first moments end before their window, and units of 150 ms end with it.
const WINDOW: Micros = Micros(200_000);
/// For the bucket a unit is refilled in half a lease and 0.5 ms. So a unit that is spent 1 % after its lease, together
/// with those that are there by then, is one too many.
const UNIT: Micros = Micros(50_500);

const FIXED_WINDOW: &[u64] = &[0, 99_999, 150_000, 200_000];
const SLIDING_WINDOW: &[u64] = &[0, 99_999, 150_000, 200_000, 300_000];
const TOKEN_BUCKET: &[u64] = &[0, 50_500, 99_999, 101_000];
/// Fewer, since a failover gives more to try.
const BUCKET_WITH_FAILOVER: &[u64] = &[0, 99_999, 101_000];
const GCRA: &[u64] = &[0, 99_999, 101_000, 202_000];

/// The most by which the replica lags behind.
const LAG: Micros = Micros(60_000);

/// A bug that is put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A gateway spends units for the whole lease, not for 98 % of it.
    WholeLease,
    /// A gateway counts the lease from the answer, not from before the question.
    CountedFromAnswer,
    /// The units of a window last as long as others.
    PastWindow,
    /// Units that come back to a bucket are all taken off its level.
    NoFloor,
    /// A gateway spends units that it has given back.
    SpendsReturned,
    /// Units come back twice: a gateway that got no answer has sent them again.
    ReturnedTwice,
}

/// A configuration, the moments, and the faults that may happen.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) algorithm: Algorithm,
    pub(super) lease: Lease,
    /// How many gateways ask for units, at most [`GATEWAYS`].
    pub(super) gateways: usize,
    /// In µs of the store since the first, in order.
    moments: &'static [u64],
    /// A failover may happen, which loses writes of at most this age. `None`: the store keeps what it has acknowledged.
    pub(super) lag: Option<Micros>,
    pub(super) mutant: Option<Mutant>,
    /// Units that come back are followed to the gateway that spends them.
    pub(super) follows_units: bool,
}

impl Scenario {
    fn new(algorithm: Algorithm, moments: &'static [u64]) -> Self {
        let lease = Lease::new(LEASE).expect("in range");
        Self { algorithm, lease, gateways: GATEWAYS, moments, lag: None, mutant: None, follows_units: false }
    }

    pub(super) fn fixed_window(count: u32) -> Self {
        let rate = Rate::new(count, WINDOW).expect("in range");
        Self::new(Algorithm::fixed_window(rate, Align::Clock), FIXED_WINDOW)
    }

    pub(super) fn sliding_window(count: u32) -> Self {
        let rate = Rate::new(count, WINDOW).expect("in range");
        Self::new(Algorithm::sliding_window(rate), SLIDING_WINDOW)
    }

    pub(super) fn token_bucket(burst: u32) -> Self {
        let (rate, burst) = (Rate::new(1, UNIT).expect("in range"), Cost::new(burst).expect("in range"));
        Self::new(Algorithm::token_bucket(rate, burst), TOKEN_BUCKET)
    }

    pub(super) fn gcra(burst: u32) -> Self {
        let (rate, burst) = (Rate::new(1, UNIT).expect("in range"), Cost::new(burst).expect("in range"));
        Self::new(Algorithm::gcra(rate, burst), GCRA)
    }

    /// Two gateways are enough to see what a failover loses.
    pub(super) fn with_failover(self) -> Self {
        let moments = if self.moments == TOKEN_BUCKET { BUCKET_WITH_FAILOVER } else { self.moments };
        Self { lag: Some(LAG), gateways: 2, moments, ..self }
    }

    /// One gateway beside the requests that the store decides is enough to see each bug.
    pub(super) fn with_mutant(self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), gateways: 1, ..self }
    }

    pub(super) fn following_units(self) -> Self {
        Self { follows_units: true, ..self }
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The store's time of a moment.
    pub(super) fn time(&self, moment: usize) -> Timestamp {
        Timestamp(START + self.moments[moment])
    }

    pub(super) fn is_last(&self, moment: usize) -> bool {
        moment + 1 == self.moments.len()
    }

    /// The time of a gateway's clock at a time of the store.
    pub(super) fn local(gateway: usize, time: Timestamp) -> Timestamp {
        Timestamp(time.0 * CLOCKS[gateway] / 100)
    }
}
