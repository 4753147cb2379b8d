//! The storage of counters: one call decides all limits of a request, all or none.

pub mod bans;
pub mod memory;
pub mod redis;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use crate::boxed_cold::boxed_cold;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::{Algorithm, Decision};
use bans::{BanFault, Banned, Bans};
use memory::{MemoryStore, OutOfMemory};
use redis::settings::RedisSettings;
use redis::{RedisClient, SharedStore};

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
    pub numbers: ParamsId,
    /// The key of the counter: a hash of limit, policy and owner.
    pub key: Fingerprint,
    /// The cost in units.
    pub cost: Cost,
    /// The charges that are decided together.
    pub group: Group,
    /// Data that only a shared store needs.
    pub remote: &'a SharedKeyInfo,
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
}

impl SharedKeyInfo {
    /// The data of charges that never go to a shared store.
    pub const NONE: &Self =
        &const { Self { name: Cow::Borrowed(""), identity: 0, on_error: OnError::Local } };
}

impl Charge<'_> {
    /// The owner of the counter, whatever the limit: the hash of the key's parts alone, the same in all gateways of a
    /// fleet.
    pub fn owner(&self) -> Fingerprint {
        self.key.of_policy(self.remote.identity)
    }
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
    pub unasked: ChargeSet,
    /// One of those is enforced and has [`OnError::Deny`]: the request is refused, whatever the decisions. Nothing was
    /// charged.
    pub unavailable: bool,
}

/// The shared store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared store is unreachable")]
pub struct Unreachable;

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

impl From<Decisions> for Outcome {
    /// The outcome of the store's own decisions.
    #[inline]
    fn from(decisions: Decisions) -> Self {
        Self { decisions, unasked: ChargeSet::default(), unavailable: false }
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
    bans: Bans,
}

/// One worker's access to the counters. Stays on its thread.
#[derive(Debug)]
pub enum Counters {
    /// Counters in this process.
    Memory(Arc<MemoryStore>),
    /// Counters in a server that other gateways share.
    Shared(Box<RedisClient>),
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
        Ok(Self { memory, shared, bans: Bans::default() })
    }

    /// The counters for the worker with this number. With a shared store this needs the worker's runtime around it, and
    /// connects. Each number belongs to one thread.
    pub fn open(&self, worker: usize) -> Counters {
        match self.shared() {
            None => Counters::Memory(Arc::clone(&self.memory)),
            Some(shared) => Counters::Shared(Box::new(shared.open(worker, Arc::clone(&self.memory)))),
        }
    }

    /// Registers an algorithm's parameters, so that states written under them can be converted after a reload. Called
    /// once for every policy of a plan before the plan is used, never per request. `identity` is the policy's
    /// [`SharedKeyInfo::identity`].
    pub fn register(&self, algorithm: &Algorithm, identity: u128) {
        self.memory.register_policy(algorithm, identity);
    }

    /// Changes the shared store: from now on counters are opened there; open ones stay where they are. Does nothing if
    /// the settings are unchanged.
    pub fn share(&self, settings: Option<&Arc<RedisSettings>>) {
        let last = self.shared();
        if last.as_ref().map(|last| last.settings()) != settings {
            if last.is_some() != settings.is_some() {
                // Another store's keys are named by another secret.
                self.bans.replace([]);
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

    /// Entries held in this process now (each event of a sliding log counts as one).
    pub fn keys(&self) -> u64 {
        self.memory.keys()
    }

    /// The maximum number of entries held in this process.
    pub fn max_keys(&self) -> u64 {
        self.memory.max_keys()
    }

    /// Live entries evicted so far because this process's memory for them was full.
    pub fn evictions(&self) -> u64 {
        self.memory.evictions()
    }
}

impl Counters {
    /// What the policies of one owner would decide, each separately. Nothing is charged. `now` as for [`Self::decide`].
    ///
    /// # Errors
    ///
    /// The shared store is unavailable.
    pub async fn look(&self, charges: &[Charge<'_>], now: Timestamp) -> Result<Decisions, Unreachable> {
        match self {
            Self::Memory(memory) => Ok(memory.look(charges, now)),
            Self::Shared(client) => client.look(charges).await,
        }
    }

    /// Resets the counters of one owner, in all policies of the charges. Returns whether any was in use. `now` as for
    /// [`Self::decide`].
    ///
    /// # Errors
    ///
    /// The shared store is unavailable: nothing has changed, unless it did not reply in time.
    pub async fn reset(&self, charges: &[Charge<'_>], now: Timestamp) -> Result<bool, Unreachable> {
        match self {
            Self::Memory(memory) => Ok(memory.reset(charges, now)),
            Self::Shared(client) => client.reset(charges, now).await,
        }
    }

    /// Gives `units` back to one owner, in each policy of the charges, but no more than are in use there: see
    /// [`Algorithm::grant`]. Returns the units given back, where they were the most. `now` as for [`Self::decide`].
    ///
    /// # Errors
    ///
    /// As [`Self::reset`].
    pub async fn grant(
        &self,
        charges: &[Charge<'_>],
        units: Cost,
        now: Timestamp,
    ) -> Result<u64, Unreachable> {
        match self {
            Self::Memory(memory) => Ok(memory.grant(charges, units, now)),
            Self::Shared(client) => client.grant(charges, units, now).await,
        }
    }

    /// Bans a key for `span`, or ends its ban (`None`): afterwards `bans` contains the change. `now` is this machine's
    /// time.
    ///
    /// # Errors
    ///
    /// See [`BanFault`].
    pub async fn ban(
        &self,
        bans: &Bans,
        banned: Banned,
        span: Option<Micros>,
        now: Timestamp,
    ) -> Result<(), BanFault> {
        match (self, span) {
            (Self::Memory(_), Some(span)) => bans.insert(banned, now.plus(span), now),
            (Self::Memory(_), None) => {
                bans.remove(banned);
                Ok(())
            }
            (Self::Shared(client), span) => client.ban(bans, banned, span, now).await,
        }
    }

    /// Reads the bans of the shared store: to be called about once a second by one worker. `now` is this machine's
    /// time.
    pub async fn keep_bans(&self, bans: &Bans, now: Timestamp) {
        if let Self::Shared(client) = self {
            // If they cannot be read, the known ones stay.
            let _ = client.read_bans(bans, now).await;
        }
        bans.sweep(now);
    }

    /// Decides all charges of a request at once. At most [`MAX_CHARGES`]. `now` is this machine's time; a shared store
    /// uses its own.
    pub async fn decide(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        match self {
            Self::Memory(memory) => memory.decide(charges, now),
            Self::Shared(client) => match client.recall(charges, now) {
                Some(outcome) => outcome,
                // Boxed: otherwise its state would be part of every connection's, even where it is not used.
                None => boxed_cold(|| client.decide(charges, now)).await,
            },
        }
    }
}
