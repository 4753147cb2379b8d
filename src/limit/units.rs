//! The core's quantities: whole microseconds, costs, rates and key fingerprints.
//!
//! Everything is an integer below 2^53, so that Redis' Lua, which has only doubles, computes the same numbers.

/// The largest integer that a double holds exactly together with all below it, plus one: 2^53.
pub const EXACT: u64 = 1 << 53;

/// A span of time in whole microseconds, below 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// One second.
    pub const SECOND: Self = Self(1_000_000);

    /// Whole seconds, rounded up: a client that waits this long has waited long enough.
    pub const fn seconds_rounded_up(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

/// A moment to count by: microseconds, below 2^53 (until the year 2255). It never goes back, and runs while the machine is
/// suspended. It began as the wall clock stood when the process started, and is not a wall time since: see
/// [`WallTime`](super::wall_clock::WallTime).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The span since `earlier`, or zero if `earlier` is later: time that runs backwards grants nothing.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` later.
    pub const fn plus(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// The cost of one request: 1 to 10^9 units, or [`Cost::ZERO`]. (A route of cost 0 is never charged, so it has no `Cost`
/// at all.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// Nothing, of a request whose cost is known only later: a limit refuses it only while it is in debt.
    pub const ZERO: Self = Self(0);
    /// One unit.
    pub const ONE: Self = Self(1);
    /// The largest count, cost, burst or queue that configuration admits.
    pub const MAX: u32 = 1_000_000_000;

    /// `None` unless `units` lies in 1 to 10^9.
    pub const fn new(units: u32) -> Option<Self> {
        match units {
            1..=Self::MAX => Some(Self(units)),
            _ => None,
        }
    }

    /// The number of units.
    pub const fn units(self) -> u32 {
        self.0
    }
}

/// A number of units per period: the `COUNT/PERIOD` of the configuration, kept as the exact fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: Cost,
    period: Micros,
}

impl Rate {
    /// The shortest period: 1 ms.
    pub const MIN_PERIOD: Micros = Micros(1_000);
    /// The longest period: 366 days.
    pub const MAX_PERIOD: Micros = Micros(366 * 86_400 * 1_000_000);

    /// `None` unless the count lies in 1 to 10^9 and the period in 1 ms to 366 days.
    pub fn new(count: u32, period: Micros) -> Option<Self> {
        let count = Cost::new(count)?;
        (Self::MIN_PERIOD..=Self::MAX_PERIOD).contains(&period).then_some(Self { count, period })
    }

    /// Units per period.
    pub const fn count(self) -> u32 {
        self.count.units()
    }

    /// The period.
    pub const fn period(self) -> Micros {
        self.period
    }

    /// The time for this many units, rounded up; at most 2^53 µs.
    pub(super) fn span_of(self, units: Cost) -> Micros {
        let span = u128::from(self.period.0) * u128::from(units.units());
        Micros(u64::try_from(span.div_ceil(self.count().into())).unwrap_or(u64::MAX).min(EXACT))
    }
}

/// A keyed 128-bit hash of a key's parts; after [`Self::of_policy`], the key of a counter in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    /// This key's counter of the policy with this identity (a hash, too). Two counters coincide only if two hashes
    /// differ by exactly the difference of two identities: as unlikely as two equal hashes.
    #[must_use]
    pub const fn of_policy(self, identity: u128) -> Self {
        Self(self.0 ^ identity)
    }
}
