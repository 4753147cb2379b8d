//! One worker's access to the counters.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::bans::{BanCause, BanFault, Banned, Bans};
use super::fleet::{FleetView, GatewayIdentity};
use super::hand_over::{HandOver, PendingCall, SuccessorCalls};
use super::memory::MemoryStore;
use super::memory::in_flight::{LocalPlaces, Ticket, Turn};
use super::overrides::{KeyOfLimit, KeyOverride, OverrideFault, Overrides};
use super::redis::{PlaceLease, RedisClient};
use super::usage::{SharedUsage, UsageLedger, UsageSettings, UsageSpan};
use super::{
    Charge, ChargeRecords, Correction, Decisions, KeyOperation, Known, OperationFault, OperationResult,
    Outcome, PlaceClaims, PolicyRegistration, StoreRequest, Unreachable,
};
use crate::boxed_cold::boxed_cold;
use crate::limit::adaptive_concurrency::SampleOutcome;
use crate::limit::concurrency::Concurrency;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::wall_clock::{self, WallTime};
use crate::limit::{Decision, Verdict};

/// How often a request that waits for a place asks a shared store again: other gateways free places, too.
const PLACE_CHECK: Micros = Micros(50_000);
/// How often a worker that ends looks whether all corrections were sent.
const SETTLED_CHECK: Duration = Duration::from_millis(2);

/// One worker's access to the counters. Stays on its thread.
#[derive(Debug)]
pub struct Counters {
    pub(super) location: Location,
    pub(super) memory: Arc<MemoryStore>,
    pub(super) bans: Arc<Bans>,
    pub(super) charge_records: Arc<ChargeRecords>,
    /// Of [`Location::Memory`]: whether another process has the counters now.
    pub(super) hand_over: Arc<HandOver>,
    pub(super) overrides: Arc<Overrides>,
}

/// Where the counters are.
#[derive(Debug)]
pub(super) enum Location {
    /// In this process.
    Memory,
    /// In a server that other gateways share.
    Shared(Box<RedisClient>),
}

/// The places of a request in flight. Dropped, they are free.
#[derive(Debug)]
pub struct Places {
    places: Option<LocalPlaces>,
    /// In a server, too.
    _lease: Option<PlaceLease>,
    /// In the process that has the counters now, and not here.
    _elsewhere: Option<PendingCall>,
}

/// The decision on a request with concurrency limits.
#[derive(Debug)]
pub struct InTurn {
    /// The store's decision.
    pub outcome: Outcome,
    /// The places of an admitted request. Boxed, since few requests have any.
    pub places: Option<Box<Places>>,
    /// How long it has waited for a place.
    pub waited: Micros,
    /// The [`Charge::key`] of the limit that it has waited for last.
    pub queue: Option<Fingerprint>,
}

impl Places {
    /// The request of this route, which any number stands for, is passed on now.
    pub fn send(&mut self, route: impl FnOnce() -> u64) {
        if let Some(places) = &mut self.places {
            places.send(route);
        }
    }

    /// The request that was passed on went on so, of which adaptive limits learn: of several calls, the first counts. `None`:
    /// it says nothing of the backend's load.
    pub fn end_measurement(&mut self, outcome: Option<SampleOutcome>) {
        if let Some(places) = &mut self.places {
            places.end_measurement(outcome);
        }
    }
}

impl Counters {
    /// Executes an operation on the counters of one owner. `now` as for [`Self::decide`].
    ///
    /// # Errors
    ///
    /// See [`OperationFault`].
    pub async fn execute(
        &self,
        operation: &KeyOperation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<OperationResult, OperationFault> {
        if let Some(successor) = self.successor()
            && let Some(result) = successor.execute(operation, charges).await
        {
            return result;
        }
        match &self.location {
            // A key whose tier is unlimited has no counter.
            Location::Shared(client)
                if !charges.is_empty()
                    && !charges.iter().any(|charge| charge.shared_key.stays_in_process)
                    && (*operation == KeyOperation::Look || !charges.iter().any(Charge::is_adaptive)) =>
            {
                client.execute(operation, charges, now).await
            }
            _ => self.execute_in_process(operation, charges, now),
        }
    }

    /// The same on the counters of this process, which decide while a shared store is unavailable.
    ///
    /// # Errors
    ///
    /// See [`OperationFault`].
    pub fn execute_in_process(
        &self,
        operation: &KeyOperation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<OperationResult, OperationFault> {
        match (&self.location, operation) {
            (Location::Shared(_), KeyOperation::Look) => Ok(self.look_in_process(charges, now).into()),
            _ => self.memory.execute(operation, charges, &self.charge_records, now),
        }
    }

    /// What would be decided without the shared store. Of a limit with a lease, units in advance pay as far as they last.
    fn look_in_process(&self, charges: &[Charge<'_>], now: Timestamp) -> Decisions {
        let looked = self.memory.look(charges, now);
        let decision = |(charge, decision): (&Charge<'_>, &Decision)| match charge.of_lease() {
            None => *decision,
            Some(_) if !charge.refuses_without_store(charge.cost == Cost::ZERO) => {
                Decision { verdict: Verdict::Allow, ..*decision }
            }
            Some(units) => self.memory.peek_cost(&units, now),
        };
        Decisions::Together(charges.iter().zip(&*looked).map(decision).collect())
    }

    /// Registers one more policy of the active plan, before its first charge.
    pub fn register(&self, policy: &PolicyRegistration<'_>) {
        self.memory.register_one(policy);
    }

    /// What this process knows at `now`.
    #[inline]
    pub fn known(&self, now: Timestamp) -> Known<'_> {
        Known { bans: &self.bans, overrides: &self.overrides, memory: Some(&self.memory), now }
    }

    /// Corrects a cost that was charged before. In this process it counts at once; in a shared store soon after, or when it
    /// is back. A refund is void if the counter was reset meanwhile. `now` as for [`Self::decide`].
    pub fn settle(&self, correction: &Correction<'_>, now: Timestamp) {
        match &self.location {
            Location::Memory => match self.successor() {
                Some(successor) => successor.settle(correction),
                None => self.memory.settle(correction, now),
            },
            Location::Shared(client) => client.settle(correction, now),
        }
    }

    /// Waits until a shared store knows of all corrections, but no longer than a second.
    pub async fn all_settled(&self) {
        let Location::Shared(client) = &self.location else { return };
        let settled = async {
            while !client.has_settled() {
                tokio::time::sleep(SETTLED_CHECK).await;
            }
        };
        let _ = timeout(Duration::from_secs(1), settled).await;
    }

    /// Bans a key by hand for `span`, or ends its bans (`None`): afterwards this process knows the change. The refusals
    /// and bans so far are not forgotten: see [`KeyOperation::Reset`]. `now` is this machine's time.
    ///
    /// # Errors
    ///
    /// See [`BanFault`].
    pub async fn ban(&self, banned: Banned, span: Option<Micros>, now: Timestamp) -> Result<(), BanFault> {
        match (&self.location, span) {
            (Location::Memory, Some(span)) => self.bans.insert(banned, now.plus(span), now),
            (Location::Memory, None) => {
                self.bans.remove(banned);
                Ok(())
            }
            (Location::Shared(client), span) => client.ban(&self.bans, banned, span, now).await,
        }
    }

    /// Sets the override of a key, or takes it back (`None`): afterwards this process knows the change. Returns whether it
    /// changes something. `now` is this machine's time.
    ///
    /// # Errors
    ///
    /// See [`OverrideFault`].
    pub async fn set_override(
        &self,
        key: KeyOfLimit,
        set: Option<KeyOverride>,
        now: WallTime,
    ) -> Result<bool, OverrideFault> {
        match (&self.location, set) {
            (Location::Memory, Some(set)) => {
                let changes = self.overrides.find(key, now).as_ref() != Some(&set);
                self.overrides.set(key, set, now).map(|()| changes)
            }
            (Location::Memory, None) => Ok(self.overrides.remove(key, now)),
            (Location::Shared(client), set) => client.set_override(&self.overrides, key, set, now).await,
        }
    }

    /// Tells the shared store that an automatic ban has ended, as this process knows. Its counter stays as it is.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable: it goes on listing the ban.
    pub async fn end_automatic_ban(&self, banned: Banned) -> Result<(), Unreachable> {
        match &self.location {
            Location::Memory => Ok(()),
            Location::Shared(client) => client.end_automatic_ban(banned).await,
        }
    }

    /// Reads the bans and the overrides of the shared store: to be called about once a second by one worker. `now` is this machine's
    /// time.
    pub async fn keep_bans(&self, now: Timestamp) {
        if let Location::Shared(client) = &self.location {
            for cause in [BanCause::Hand, BanCause::Refusals] {
                // If they cannot be read, the known ones stay.
                let _ = client.read_bans(&self.bans, cause, now).await;
            }
            let _ = client.read_overrides(&self.overrides, wall_clock::system().wall_time(now)).await;
        }
        self.bans.sweep(now);
    }

    /// Tells the shared store of this gateway when it is time, and reads the other gateways if they have changed: to be called
    /// about once a second by one worker. `now` is this machine's time.
    pub async fn keep_fleet(&self, own: &GatewayIdentity, now: Timestamp) {
        if let Location::Shared(client) = &self.location {
            // If they cannot be read, the known ones stay.
            let _ = client.keep_fleet(own, now).await;
        }
    }

    /// The worker of [`Self::keep_fleet`] ends, or uses another store: the other gateways are told so.
    pub async fn leave_fleet(&self) {
        if let Location::Shared(client) = &self.location {
            client.leave_fleet().await;
        }
    }

    /// Writes the usage of these limits to the shared store: to be called about once a second by one worker. `run` names this
    /// process there; `ends`: it ends, and nothing is recorded after this.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable: the next call writes everything.
    pub async fn keep_usage<'s>(
        &self,
        ledger: &UsageLedger,
        run: u64,
        limits: impl IntoIterator<Item = &'s UsageSettings>,
        ends: bool,
    ) -> Result<(), Unreachable> {
        match &self.location {
            Location::Memory => Ok(()),
            Location::Shared(client) => client.keep_usage(ledger, run, limits, ends).await,
        }
    }

    /// The usage of the other processes that share the store, read now. `None`: it is not shared.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable.
    pub async fn read_usage(
        &self,
        run: u64,
        settings: &UsageSettings,
        span: UsageSpan,
    ) -> Result<Option<SharedUsage>, Unreachable> {
        match &self.location {
            Location::Memory => Ok(None),
            Location::Shared(client) => client.read_usage(run, settings, span).await.map(Some),
        }
    }

    /// Gives the units in advance of shared counters back, and takes no more: to be called when a worker ends, or uses another
    /// store. `now` is this machine's time.
    pub async fn return_leases(&self, now: Timestamp) {
        if let Location::Shared(client) = &self.location {
            client.return_leases(now).await;
        }
    }

    /// The gateways that share the store, read now. `None`: it is not shared.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable.
    pub async fn fleet(&self, own: &GatewayIdentity) -> Result<Option<FleetView>, Unreachable> {
        match &self.location {
            Location::Memory => Ok(None),
            Location::Shared(client) => client.read_fleet(own).await.map(Some),
        }
    }

    /// Decides a request at once. A refusal counts for the bans, and may begin one. `now` is this machine's time; a shared
    /// store uses its own.
    #[inline]
    pub async fn decide(&self, request: StoreRequest<'_>, now: Timestamp) -> Outcome {
        match &self.location {
            Location::Memory if self.hand_over.is_begun() => {
                boxed_cold(|| self.decide_elsewhere(request, now)).await
            }
            Location::Memory if request.bans.is_empty() => self.memory.decide(request.charges, now),
            Location::Memory => request.decide_in(&self.memory, &self.bans, now),
            Location::Shared(client) => {
                match client.spend(request, now).or_else(|| client.recall(request, now)) {
                    Some(outcome) => outcome,
                    // Boxed: otherwise its state would be part of every connection's, even where it is not used.
                    None => boxed_cold(|| client.decide(request, now)).await,
                }
            }
        }
    }

    /// Decides a request in this process, beside a shared store, too. `None`: another process has the counters now, and
    /// [`Self::decide`] asks it.
    pub fn decide_here(&self, request: StoreRequest<'_>, now: Timestamp) -> Option<Outcome> {
        let is_here = matches!(self.location, Location::Shared(_)) || !self.hand_over.is_begun();
        is_here.then(|| request.decide_in(&self.memory, &self.bans, now))
    }

    /// Has the process decide that has the counters now. If it is gone, this one does.
    async fn decide_elsewhere(&self, request: StoreRequest<'_>, now: Timestamp) -> Outcome {
        if let Some(successor) = self.successor()
            && let Some((outcome, ..)) = successor.decide(request, None).await
        {
            return outcome;
        }
        request.decide_in(&self.memory, &self.bans, now)
    }

    /// The process that has the counters of this one's memory now.
    fn successor(&self) -> Option<Arc<SuccessorCalls>> {
        if matches!(self.location, Location::Memory) { self.hand_over.successor() } else { None }
    }

    /// Charges units that are spent already, if necessary into debt. Where a shared store is unavailable, this process
    /// counts them.
    pub async fn charge(&self, charges: &[Charge<'_>], units: Cost, now: Timestamp) {
        let charge = KeyOperation::Charge(units, None);
        if self.execute(&charge, charges, now).await.is_err() {
            // Without an idempotency key, memory takes every charge.
            let _ = self.execute_in_process(&charge, charges, now);
        }
    }

    /// What would be decided on these charges, each by itself. Nothing is charged. Where a shared store is unavailable, this
    /// process tells by what it knows.
    pub async fn look(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        let looked = self.execute(&KeyOperation::Look, charges, now).await;
        match looked {
            Ok(result) => result.decisions.into(),
            Err(_) => {
                let known = self.execute_in_process(&KeyOperation::Look, charges, now);
                let mut outcome = Outcome::from(known.map(|result| result.decisions).unwrap_or_default());
                let noted = charges.iter().enumerate();
                noted.for_each(|(index, charge)| outcome.note_unavailable(index, charge));
                outcome
            }
        }
    }

    /// As [`Self::decide`], for a request with concurrency limits. If only these refuse, the request waits in
    /// their queues, with their `claims`; `since` is when its wait begins, and `clock` tells the time later. Dropped, it leaves them.
    pub async fn admit(
        &self,
        request: StoreRequest<'_>,
        claims: PlaceClaims,
        since: Timestamp,
        clock: impl Fn() -> Timestamp,
    ) -> InTurn {
        let mut ticket = self.memory.in_flight().ticket(claims);
        let mut now = since;
        loop {
            if let Some(successor) = self.successor()
                && let Some((outcome, places, waited)) =
                    successor.decide(request, Some((since, ticket.claims()))).await
            {
                let elsewhere =
                    |place| Box::new(Places { places: None, _lease: None, _elsewhere: Some(place) });
                return InTurn { outcome, places: places.map(elsewhere), waited, queue: None };
            }
            let (turn, lease) = match &self.location {
                Location::Memory => (self.memory.admit(request.charges, now, &mut ticket), None),
                Location::Shared(client) => client.admit(request, now, &mut ticket).await,
            };
            let waited = now.since(since);
            let (mut outcome, places) = match turn {
                Turn::Decided(outcome, places) => {
                    let held = |places| Places { places: Some(places), _lease: lease, _elsewhere: None };
                    (outcome, places.map(|places| Box::new(held(places))))
                }
                Turn::Waits(outcome, limit) => {
                    let left = Micros(limit.max_wait().0.saturating_sub(waited.0));
                    if left > Micros(0) {
                        self.wait(&ticket, &limit, left).await;
                        now = clock();
                        if request.is_banned(&self.bans, now) {
                            let outcome = Outcome { banned: true, ..Outcome::default() };
                            let (waited, queue) = (now.since(since), ticket.queue());
                            return InTurn { outcome, places: None, waited, queue };
                        }
                        continue;
                    }
                    (Outcome { dropped: ticket.time_out(), ..outcome }, None)
                }
            };
            match &self.location {
                _ if request.bans.is_empty() => {}
                Location::Memory => {
                    outcome.banned = request.count_refusals(&outcome, &self.memory, &self.bans, now);
                }
                Location::Shared(client) => client.report_refusals(request, &outcome, now),
            }
            return InTurn { outcome, places, waited, queue: ticket.queue() };
        }
    }

    /// Waits until a place of the limit may be free, at most for `left`. Other gateways do not tell of theirs.
    async fn wait(&self, ticket: &Ticket, limit: &Concurrency, left: Micros) {
        let longest = match &self.location {
            Location::Shared(_) if limit.capacity_bounds().is_none() => left.min(PLACE_CHECK),
            _ => left,
        };
        // Either way the request is decided again.
        let _ = timeout(Duration::from_micros(longest.0), ticket.changed()).await;
    }
}
