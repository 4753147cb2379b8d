//! The storage of counters: one call decides all limits of a request, all or none.
//!
//! For example, a request costs 10 units of its client's limit and 10 of the limit of all clients, which has 4 left. Neither
//! counter changes, and the [`Outcome`] says how long each limit would have to wait. In memory ([`memory`]) a single
//! counter changes by compare-and-swap, and several are locked in one order. In Redis ([`redis`]) one script decides, so
//! that a fleet of gateways counts as one.

mod acme_values;
pub mod bans;
mod charge_records;
mod counters;
pub mod fleet;
pub mod hand_over;
mod known;
mod lease_policy;
pub mod memory;
mod operation;
pub mod overrides;
pub mod redis;
mod release;
mod request;
pub mod snapshot;
pub mod usage;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::limit::{Algorithm, Decision};
use bans::Bans;
pub use charge_records::{ChargeEffect, ChargeRecords, IdempotentCharge};
use counters::Location;
pub use counters::{Counters, InTurn, Places};
use hand_over::{HandOver, PlacesOfKey, SuccessorCalls};
pub use known::Known;
pub use lease_policy::LeasePolicy;
use memory::in_flight::PlaceUsage;
pub use memory::in_flight::{DropReason, PlaceClaims, PlaceShare, QueueDrop};
use memory::{MemoryStore, OutOfMemory};
pub use operation::{KeyOperation, OperationFault, OperationResult};
use overrides::Overrides;
use redis::SharedStore;
use redis::settings::RedisSettings;
pub use release::PendingRelease;
pub use request::{BanCharge, StoreRequest};
use usage::{UsageLedger, UsageSuccessor};

/// The maximum number of charges in one request: limits of a route, times their rates. `config` refuses more.
pub const MAX_CHARGES: usize = 32;

/// A hash of an algorithm and its parameters, equal in every process: the version of a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamsId(pub u32);

impl ParamsId {
    /// The id of an algorithm's parameters: SipHash-1-3 with key zero over their `Debug` text, which names the
    /// algorithm and all its parameters. A test pins some ids, since processes of different builds have to agree on
    /// them.
    pub fn of(algorithm: &Algorithm) -> Self {
        let mut text = Hashed(SipHasher13::new());
        // Infallible: `Hashed` takes anything, and a derived `Debug` fails only where its writer does.
        let _ = write!(text, "{algorithm:?}");
        let [a, b, c, d, ..] = text.0.finish().to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }

    /// The id of a policy's parameters: two policies with equal parameters have different ids, so that a stored state
    /// identifies its policy. `identity` is the policy's [`SharedKeyInfo::identity`].
    pub fn of_policy(algorithm: &Algorithm, identity: u128) -> Self {
        let folded = (identity >> 64) ^ identity;
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let folded = (folded >> u32::BITS ^ folded) as u32;
        Self(Self::of(algorithm).0 ^ folded)
    }
}

/// Hashes the bytes written to it, without keeping them.
struct Hashed(SipHasher13);

impl fmt::Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// One policy that a request is charged to. Charges of one request may share a key: then the second sees the first. A
/// key names its policy, so charges of one key have one algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The policy's algorithm and parameters.
    pub algorithm: &'a Algorithm,
    /// The policy's [`ParamsId::of_policy`], so that a state written under other parameters is detected and converted.
    pub params: ParamsId,
    /// The key of the counter: a hash of limit, policy and owner.
    pub key: Fingerprint,
    /// The cost in units.
    pub cost: Cost,
    /// The charges that are decided together.
    pub group: Group,
    /// Data that only a shared store needs.
    pub shared_key: &'a SharedKeyInfo,
}

/// The policy's data for a shared store, and its rule for when that store is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedKeyInfo {
    /// The name of the policy and of the format of its states, the same in all gateways of a fleet.
    pub name: Cow<'static, str>,
    /// A hash of the settings that a reload must not change for the counters to stay: it makes a [`Charge::key`] of an
    /// owner.
    pub identity: u128,
    /// The rule for when the store is unavailable.
    pub on_error: OnError,
    /// Costs of the policy are corrected later: the store tells when a charge counted, and no denial is cached, since a
    /// refund may end it at any time.
    pub settles: bool,
    /// Its counters are in this process, beside a shared store, too.
    pub stays_in_process: bool,
    /// Each gateway takes units in advance.
    pub lease: Option<LeasePolicy>,
}

impl SharedKeyInfo {
    /// The data of charges that never go to a shared store.
    pub const NONE: &Self = &const {
        Self {
            name: Cow::Borrowed(""),
            identity: 0,
            on_error: OnError::Local,
            settles: false,
            stays_in_process: false,
            lease: None,
        }
    };
}

impl Charge<'_> {
    /// The owner of the counter, whatever the limit: the hash of the key's parts alone, the same in all gateways of a
    /// fleet.
    pub fn key_hash(&self) -> Fingerprint {
        self.key.of_policy(self.shared_key.identity)
    }

    /// Whether the request is refused without the shared store. `is_paid`: units in advance pay for the charge.
    pub fn refuses_without_store(&self, is_paid: bool) -> bool {
        let needs_store = match self.shared_key.on_error {
            OnError::Deny => true,
            // It counts nothing in this process: it spends the units that are left, and then refuses.
            OnError::Local => self.is_leased(),
            OnError::Allow => false,
        };
        needs_store && !is_paid && self.group == Group::Enforced
    }

    /// Whether it is of a limit whose maximum each gateway finds for itself: its places are in this process alone, beside a
    /// shared store, too.
    pub fn is_adaptive(&self) -> bool {
        self.algorithm.as_concurrency().is_some_and(|limit| limit.capacity_bounds().is_some())
    }
}

/// A policy, as the store must know it before it is charged.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRegistration<'a> {
    /// The policy's algorithm and parameters.
    pub algorithm: &'a Algorithm,
    /// The policy's [`SharedKeyInfo::identity`].
    pub identity: u128,
    /// The share of its limit.
    pub share: Option<MaxKeys>,
}

/// `max_keys` of a limit: the share of the store that its counters never exceed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxKeys {
    /// The limit's identity.
    pub limit: u128,
    /// The maximum number of entries. Each counter of a key is one, and so is each event of a sliding log.
    pub bound: NonZeroU64,
}

/// The rule of a limit for when the shared store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Go on counting in this process, with the full limit, from the known state.
    #[default]
    Local,
    /// Admit everything.
    Allow,
    /// Refuse with 503, since the client is not at fault.
    Deny,
}

/// Charges of one group are admitted all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The enforced limits: together they admit or refuse the request.
    Enforced,
    /// One shadow limit (its index on the route): decided separately, and charged only if it and all enforced limits
    /// admit.
    Shadow(u8),
}

impl Group {
    /// Whether it is of a shadow limit.
    pub fn is_shadow(self) -> bool {
        matches!(self, Self::Shadow(_))
    }
}

/// The store's decision on a request: one decision per charge, in the order of the charges.
///
/// A charge that was admitted but rolled back because of another keeps the verdict `Allow` (or `Delay`) and reports its
/// `remaining` without the charge. A refused request is charged nowhere; but a sliding log with `count_denied` records
/// the attempts that it refuses itself. It records none that another limit refuses, and none in shadow when the
/// enforced limits refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One per charge.
    pub decisions: Decisions,
    /// The charges that were decided by [`OnError`], without the shared store: it was unavailable.
    pub decided_locally: ChargeSet,
    /// One of those is enforced and has [`OnError::Deny`]: the request is refused, whatever the decisions. Nothing was
    /// charged.
    pub unavailable: bool,
    /// The request is refused because of a ban, which the process knows now: it was in force, and nothing was decided,
    /// or this refusal has begun it.
    pub banned: bool,
    /// A queue for a place has refused it.
    pub dropped: Option<QueueDrop>,
    /// When each charge counted, if one of them may be corrected later: by the clock of the store that decided it.
    pub counted_at: CountedAt,
}

impl Outcome {
    /// Notes that the shared store is unavailable for the charge at this index, which this process has looked at.
    pub fn note_unavailable(&mut self, index: usize, charge: &Charge<'_>) {
        self.decided_locally.insert(index);
        let admits = self.decisions.get(index).is_some_and(|decision| !decision.denies());
        self.unavailable |= charge.refuses_without_store(charge.is_leased() && admits);
    }
}

/// When the charges of a request counted, in their order. `None`: nothing needs to know.
pub type CountedAt = Option<Box<[Timestamp]>>;

/// The shared store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared store is unreachable")]
pub struct Unreachable;

impl From<Decisions> for Outcome {
    /// The outcome of the store's own decisions.
    #[inline]
    fn from(decisions: Decisions) -> Self {
        Self { decisions, ..Self::default() }
    }
}

/// A list of decisions. A single one, which is the usual case, is written and moved without a list: a list cost as much
/// as the decision itself.
#[derive(Clone, Debug)]
pub enum Decisions {
    /// The decision on a request with one charge.
    Alone(Decision),
    /// The decisions on any other request.
    Together(SmallVec<[Decision; 4]>),
}

impl Deref for Decisions {
    type Target = [Decision];

    #[inline]
    fn deref(&self) -> &[Decision] {
        match self {
            Self::Alone(decision) => std::slice::from_ref(decision),
            Self::Together(decisions) => decisions,
        }
    }
}

impl Default for Decisions {
    fn default() -> Self {
        Self::Together(SmallVec::new())
    }
}

impl PartialEq for Decisions {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Decisions {}

/// The store of counters: one for the process.
#[derive(Debug)]
pub struct Store {
    /// All counters; beside a shared store, the counters for when it is unavailable.
    memory: Arc<MemoryStore>,
    shared: ArcSwapOption<SharedStore>,
    bans: Arc<Bans>,
    charge_records: Arc<ChargeRecords>,
    hand_over: Arc<HandOver>,
    overrides: Arc<Overrides>,
    usage: Arc<UsageLedger>,
}

impl Store {
    /// A store in this process with a hard bound of `max_keys` entries; with `shared`, in a server.
    ///
    /// # Errors
    ///
    /// The system does not reserve the memory for them.
    pub fn new(max_keys: usize, shared: Option<Arc<RedisSettings>>) -> Result<Self, OutOfMemory> {
        let memory = Arc::new(MemoryStore::new(max_keys)?);
        let shared = ArcSwapOption::new(shared.map(SharedStore::new).map(Arc::new));
        Ok(Self {
            memory,
            shared,
            bans: Arc::default(),
            charge_records: Arc::default(),
            hand_over: Arc::default(),
            overrides: Arc::default(),
            usage: Arc::default(),
        })
    }

    /// The counters for the worker with this number. With a shared store this needs the worker's runtime around it, and
    /// connects. Each number belongs to one thread.
    pub fn open(&self, worker: usize) -> Counters {
        let (memory, bans) = (Arc::clone(&self.memory), Arc::clone(&self.bans));
        let open = |shared: Arc<SharedStore>| {
            let client = shared.open(worker, Arc::clone(&memory), Arc::clone(&bans));
            Location::Shared(Box::new(client))
        };
        let location = self.shared().map_or(Location::Memory, open);
        Counters { location, ..self.open_memory() }
    }

    /// The counters in memory, for calls of a process that had them before.
    pub fn open_memory(&self) -> Counters {
        let (memory, bans) = (Arc::clone(&self.memory), Arc::clone(&self.bans));
        let (charge_records, hand_over) = (Arc::clone(&self.charge_records), Arc::clone(&self.hand_over));
        let overrides = Arc::clone(&self.overrides);
        Counters { location: Location::Memory, memory, bans, charge_records, hand_over, overrides }
    }

    /// From now on another process decides; see [`hand_over`]. What workers decide at this moment ends here: afterwards the
    /// state and [`Self::hand_places_over`] are complete once each worker has done something else.
    pub fn hand_over_to(&self, successor: Arc<SuccessorCalls>) {
        if successor.takes_usage() {
            let (calls, others) = (Arc::clone(&successor), Arc::clone(&successor));
            self.usage.hand_over_to(UsageSuccessor {
                record: Box::new(move |entry| calls.record_usage(entry)),
                lose: Box::new(move |at| others.lose_usage(at)),
            });
        }
        self.hand_over.begin(successor);
    }

    /// The places of requests in flight, whose end the successor is told of from now on.
    pub fn hand_places_over(&self, successor: Arc<SuccessorCalls>) -> Vec<PlacesOfKey> {
        self.memory.in_flight().hand_over(move |freed| successor.free(freed))
    }

    /// The successor is gone: this process decides again.
    pub fn take_back(&self) {
        self.memory.in_flight().take_back();
        self.hand_over.end();
        self.usage.take_back();
    }

    /// The process that has the counters now, if this one has handed them over.
    pub fn successor(&self) -> Option<Arc<SuccessorCalls>> {
        self.hand_over.successor()
    }

    /// Registers all policies of a plan before it is used: their parameters, so that states written under them can be
    /// converted after a reload, and the shares of their limits. A share that has become smaller evicts counters now.
    pub fn register<'a>(&self, policies: impl IntoIterator<Item = PolicyRegistration<'a>>, now: Timestamp) {
        self.memory.register_all(policies, now);
    }

    /// Changes the shared store: from now on counters are opened there; open ones stay where they are. Does nothing if
    /// the settings are unchanged.
    pub fn share(&self, settings: Option<&Arc<RedisSettings>>) {
        let last = self.shared();
        if last.as_ref().map(|last| last.settings()) != settings {
            if last.is_some() != settings.is_some() {
                // Another store's keys are named by another secret.
                self.bans.clear();
                self.overrides.clear();
            }
            let next = settings.map(|settings| SharedStore::after(last.as_deref(), Arc::clone(settings)));
            self.shared.store(next.map(Arc::new));
        }
    }

    /// The shared store, if there is one.
    pub fn shared(&self) -> Option<Arc<SharedStore>> {
        self.shared.load_full()
    }

    /// The bans known to this process.
    #[inline(always)]
    pub fn bans(&self) -> &Bans {
        &self.bans
    }

    /// The overrides of keys.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// The units that consumers were charged.
    #[inline]
    pub fn usage(&self) -> &Arc<UsageLedger> {
        &self.usage
    }

    /// What this process knows at `now`.
    pub fn known(&self, now: Timestamp) -> Known<'_> {
        Known { bans: &self.bans, overrides: &self.overrides, memory: Some(&self.memory), now }
    }

    /// Entries held in this process now (each event of a sliding log counts as one).
    pub fn keys(&self) -> u64 {
        self.memory.keys()
    }

    /// The places and queues of concurrency limits in this process, by policy.
    pub fn in_flight(&self) -> HashMap<u128, PlaceUsage> {
        self.memory.in_flight().usage()
    }

    /// The size of the table of counters: a table takes the counters of one of the same size.
    pub fn sets(&self) -> u64 {
        self.memory.sets()
    }

    /// The maximum number of entries held in this process.
    pub fn max_keys(&self) -> u64 {
        self.memory.max_keys()
    }

    /// The entries that a limit with a share holds in this process; `None` if it has none. `limit` is its identity.
    pub fn keys_of_limit(&self, limit: u128) -> Option<u64> {
        self.memory.keys_of_limit(limit)
    }

    /// Live entries evicted so far because this process's memory for them, or the share of their limit, was full.
    pub fn evictions(&self) -> u64 {
        self.memory.evictions()
    }
}

/// Some of a request's charges, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChargeSet(u32);

impl ChargeSet {
    /// Adds the charge at index `index`, which is below [`MAX_CHARGES`].
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << (index % MAX_CHARGES);
    }

    /// Whether it contains the charge at index `index`.
    pub fn contains(self, index: usize) -> bool {
        index < MAX_CHARGES && self.0 & 1 << index != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The correction of a charge that was admitted, once the request's cost is known.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    /// The charge.
    pub charge: Charge<'a>,
    /// When it counted: see [`Outcome::counted_at`].
    pub counted_at: Timestamp,
    /// By how many units the cost was higher; a refund if negative.
    pub difference: i64,
    /// A shared store has decided it, and not this process.
    pub shared: bool,
}
