//! One worker's client of the shared counters: the denial cache, the servers, and the fallback without them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::ban_list::KnownBans;
use super::call::{self, PlaceId};
use super::client_context::ClientContext;
use super::denial_cache::DenialCache;
use super::errors::CallError;
use super::fleet_member::FleetMember;
use super::leases::Leases;
use super::nodes::Nodes;
use super::renewal::LeaseReturns;
use super::reporter::Reporter;
use super::resp::{Command, Integers};
use super::script_client::{RedisCounts, ScriptClient, ScriptOp};
use super::settings::RedisSettings;
use super::slot::HashSlot;
use super::written_usage::WrittenUsage;
use super::{cross_slot, reply};
use crate::boxed_cold::boxed_cold;
use crate::clock::{self, micros};
use crate::limit::units::{Cost, Timestamp};
use crate::limit::wall_clock::WallTime;
use crate::limit::{Decision, Verdict, Wait};
use crate::store::bans::Bans;
use crate::store::fleet::Fleet;
use crate::store::memory::MemoryStore;
use crate::store::{
    BanCharge, Charge, ChargeEffect, ChargeSet, Correction, Decisions, IdempotentCharge, KeyOperation,
    OnError, OperationFault, OperationResult, Outcome, StoreRequest, Unreachable,
};

/// One worker's client of the shared counters. Stays on its thread.
#[derive(Debug)]
pub struct RedisClient {
    pub(super) script: Rc<ScriptClient>,
    /// The versions of the lists of bans that were read last.
    pub(super) known_bans: KnownBans,
    /// The version of the overrides that were read last.
    pub(super) known_overrides: Cell<Option<i64>>,
    pub(super) reporter: Reporter,
    pub(super) leases: Arc<Leases>,
    _returns: LeaseReturns,
    /// What this gateway has told the others of itself.
    pub(super) member: FleetMember,
    /// What this gateway has written of the usage of consumers.
    pub(super) usage: WrittenUsage,
    pub(super) fleet: Arc<Fleet>,
    bans: Arc<Bans>,
    refusals: RefCell<DenialCache>,
    changes: Arc<AtomicU64>,
    /// How many of them the cached denials are of.
    known_changes: Cell<u64>,
    pub(super) memory: Arc<MemoryStore>,
    pub(super) counts: Arc<RedisCounts>,
}

impl RedisClient {
    /// Begins to connect. Needs the worker's runtime around it.
    pub(super) fn open(
        settings: &Arc<RedisSettings>,
        context: &ClientContext,
        memory: Arc<MemoryStore>,
        bans: Arc<Bans>,
        counts: Arc<RedisCounts>,
    ) -> Self {
        let ClientContext { script, health, rights, fleet, leases, changes } = context;
        let nodes = Nodes::open(settings, script, health);
        let (settings, script, rights) = (Arc::clone(settings), Arc::clone(script), Arc::clone(rights));
        let (places, calls) = (Arc::clone(&memory), Arc::clone(&counts));
        let script = Rc::new(ScriptClient::new(settings, script, nodes, places, calls, rights));
        let reporter = Reporter::start(Rc::clone(&script), Arc::clone(&bans));
        let (leases, returns) = (Arc::clone(leases), LeaseReturns::start(leases, &script, &memory));
        let (known_bans, refusals) = (KnownBans::default(), RefCell::default());
        let (known_overrides, known_changes) = (Cell::default(), Cell::default());
        let (member, fleet) = (FleetMember::default(), Arc::clone(fleet));
        Self {
            script,
            known_bans,
            known_overrides,
            reporter,
            leases,
            _returns: returns,
            member,
            usage: WrittenUsage::default(),
            fleet,
            bans,
            refusals,
            changes: Arc::clone(changes),
            known_changes,
            memory,
            counts,
        }
    }

    /// The cached denial of a request, if there is one. It is reported to the bans later.
    #[inline]
    pub(in crate::store) fn recall(&self, request: StoreRequest<'_>, now: Timestamp) -> Option<Outcome> {
        self.forget_changed();
        let outcome = self.refusals.borrow().recall(request.charges, now)?;
        if !self.stands(request.charges, &outcome, now) {
            return None;
        }
        self.counts.remembered.add(1);
        if !request.bans.is_empty() {
            self.reporter.refused(&self.script, request, &outcome, now);
        }
        Some(outcome)
    }

    /// Decides on the servers, or without them if they are unavailable.
    pub(in crate::store) async fn decide(&self, request: StoreRequest<'_>, now: Timestamp) -> Outcome {
        match self.ask(request, now, clock::now(), None).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.counts.errors.add(1);
                self.spend_without(request, now)
            }
        }
    }

    /// Asks the servers, and learns from their reply. Units in advance pay for leased limits.
    pub(super) async fn ask(
        &self,
        request: StoreRequest<'_>,
        now: Timestamp,
        asked: Instant,
        place: Option<PlaceId>,
    ) -> Result<Outcome, CallError> {
        self.forget_changed();
        let outcome = if request.charges.iter().any(Charge::is_leased) {
            boxed_cold(|| self.ask_for_rest(request, now, asked, place)).await?
        } else {
            let none = ChargeSet::default();
            self.ask_servers((request.charges, none), request.bans, now, asked, place).await?
        };
        // Else the counters may have been changed after the server's decision.
        if self.changes.load(Ordering::Acquire) == self.known_changes.get() {
            self.remember(request.charges, &outcome, now, now.plus(micros(asked.elapsed())));
        }
        Ok(outcome)
    }

    /// Drops the cached denials of all workers.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Drops the cached denials if a worker has changed counters since.
    #[inline]
    fn forget_changed(&self) {
        let changes = self.changes.load(Ordering::Acquire);
        if self.known_changes.replace(changes) != changes {
            *self.refusals.borrow_mut() = DenialCache::default();
        }
    }

    /// Asks the servers about charges, of which some are paid already. Copies the counters, from which the process counts on
    /// if the servers become unavailable.
    pub(super) async fn ask_servers(
        &self,
        (charges, paid): (&[Charge<'_>], ChargeSet),
        bans: &[BanCharge<'_>],
        now: Timestamp,
        asked: Instant,
        place: Option<PlaceId>,
    ) -> Result<Outcome, CallError> {
        let request = StoreRequest { charges, bans };
        let (outcome, unknown) = match self.script.only_slot(charges) {
            Some(slot) => (self.ask_server(slot, request, now, place).await?, ChargeSet::default()),
            None => {
                let deadline = asked + self.script.timeout();
                let asked = (charges, paid);
                let outcome = cross_slot::decide(&self.script, asked, now, deadline, place).await;
                // Nodes that decide for others cannot count for a ban in the same call.
                self.reporter.refused(&self.script, request, &outcome, now);
                (outcome, paid)
            }
        };
        self.learn(charges, &outcome, unknown, now.plus(micros(asked.elapsed())));
        Ok(outcome)
    }

    /// Asks the server that has the counters of all charges.
    async fn ask_server(
        &self,
        slot: HashSlot,
        request: StoreRequest<'_>,
        now: Timestamp,
        place: Option<PlaceId>,
    ) -> Result<Outcome, CallError> {
        let StoreRequest { charges, bans } = request;
        let settles = charges.iter().any(|charge| charge.shared_key.settles);
        let counted_at = |at: Timestamp| settles.then(|| charges.iter().map(|_| at).collect());
        let reply = self.script.ask(slot, ScriptOp::Decide, request, now, place).await?;
        let counted_at = counted_at(reply.now);
        let outcome = match bans {
            [] => reply.outcome,
            _ => self.read_bans_of(request, &reply.outcome.decisions, now),
        };
        Ok(Outcome { counted_at, ..outcome })
    }

    /// The decisions on the charges, and the bans that the server told of.
    fn read_bans_of(&self, request: StoreRequest<'_>, decisions: &[Decision], now: Timestamp) -> Outcome {
        let (decided, told) = decisions.split_at_checked(request.charges.len()).unwrap_or_default();
        let (mut banned, mut in_force) = (false, false);
        for (ban, decision) in request.bans.iter().zip(told) {
            match decision.verdict {
                // It begins.
                Verdict::Delay(rest) => {
                    if self.bans.begin(ban.banned, rest, now) {
                        self.reporter.begun(ban.banned, rest);
                    }
                }
                Verdict::Deny(Wait::After(rest)) => {
                    self.bans.insert_remote(ban.banned, rest, now);
                    in_force |= !ban.is_shadow();
                }
                _ => continue,
            }
            banned |= !ban.is_shadow();
        }
        let decisions = match in_force {
            // Nothing was decided.
            true => Decisions::default(),
            false => Decisions::Together(decided.iter().copied().collect()),
        };
        Outcome { decisions, banned, ..Outcome::default() }
    }

    /// The outcome of a request that was decided without the servers: its refusals are counted in this process.
    pub(super) fn without(&self, request: StoreRequest<'_>, mut outcome: Outcome, now: Timestamp) -> Outcome {
        outcome.banned = request.count_refusals(&outcome, &self.memory, &self.bans, now);
        outcome
    }

    /// Executes an operation. The charges have one owner, so they are in one slot.
    pub(in crate::store) async fn execute(
        &self,
        operation: &KeyOperation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<OperationResult, OperationFault> {
        match operation {
            KeyOperation::Look => Ok(self.look(charges, now).await?.into()),
            KeyOperation::Used => {
                let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
                let write =
                    |command: &mut Command<'_>, now| call::used(charges, now, |word| command.word(word));
                let answer = self.script.change(slot, charges, now, write).await.map_err(|_| Unreachable)?;
                let used = reply::units(&answer, charges.len()).map_err(|_| Unreachable)?;
                Ok(OperationResult::used(used))
            }
            KeyOperation::Reset => {
                let answer =
                    self.change(charges, now, |command, _| call::reset(|word| command.word(word))).await?;
                self.memory.reset(charges, now);
                // The reply has the time, and the number of keys deleted.
                Ok(OperationResult::changed(answer.get(1).is_some_and(|deleted| *deleted > 0)))
            }
            KeyOperation::Grant(units) => {
                let write = |command: &mut Command<'_>, now| {
                    call::grant(charges, *units, now, |word| command.word(word))
                };
                let answer = self.change(charges, now, write).await?;
                self.memory.grant(charges, *units, now);
                let granted = reply::units(&answer, charges.len()).map_err(|_| Unreachable)?;
                Ok(OperationResult::granted(granted.into_iter().max().unwrap_or_default()))
            }
            KeyOperation::Charge(units, once) => {
                let effect = self.charge(charges, *units, once.as_ref(), now).await?;
                Ok(OperationResult::changed(effect == ChargeEffect::Charged))
            }
        }
    }

    /// What would be decided on each charge by itself.
    pub(super) async fn look(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, Unreachable> {
        match charges.iter().any(Charge::is_adaptive) {
            true => self.look_divided(charges, now).await,
            false => self.look_shared(charges, now).await,
        }
    }

    /// What the servers would decide on each charge by itself.
    pub(super) async fn look_shared(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, Unreachable> {
        let looked = match self.script.only_slot(charges) {
            _ if charges.is_empty() => Ok(Decisions::default()),
            Some(slot) => {
                let reply = self.script.ask(slot, ScriptOp::Peek, StoreRequest::of(charges), now, None).await;
                reply.map(|reply| reply.outcome.decisions)
            }
            None => cross_slot::look(&self.script, charges, now, clock::now() + self.script.timeout()).await,
        };
        looked.map_err(|_| Unreachable)
    }

    /// See [`Counters::settle`](crate::store::Counters::settle).
    pub(in crate::store) fn settle(&self, correction: &Correction<'_>, now: Timestamp) {
        if !correction.shared {
            return self.memory.settle(correction, now);
        }
        if correction.charge.shared_key.on_error == OnError::Local {
            // The copy in this process has its own clock: it counts as if it were decided now.
            self.memory.settle(&Correction { counted_at: now, ..*correction }, now);
        }
        if !self.reporter.settle(&self.script, correction, now) {
            self.script.count_unsettled(correction.difference.unsigned_abs());
        }
    }

    /// Whether the servers know of all corrections, as far as they can be told.
    pub(in crate::store) fn has_settled(&self) -> bool {
        self.reporter.has_settled()
    }

    /// Charges units by hand. The charges have one owner.
    ///
    /// An idempotency key is claimed first, under a name of its own, so that its use for a key in another slot is noticed.
    /// The record beside the counters is written with the charge, all or none, so it decides whether the charge is made.
    async fn charge(
        &self,
        charges: &[Charge<'_>],
        units: Cost,
        once: Option<&IdempotentCharge>,
        now: Timestamp,
    ) -> Result<ChargeEffect, OperationFault> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        if let Some(once) = once {
            match self.script.claim(once).await.map_err(|_| Unreachable)?.as_slice() {
                [_, 1] => {}
                [_, 0] => return Err(OperationFault::OtherCharge),
                _ => return Err(Unreachable.into()),
            }
        }
        let answer = self.script.charge(slot, charges, units, once, now).await.map_err(|_| Unreachable)?;
        let effect = reply::charged(&answer)?;
        if effect == ChargeEffect::Charged {
            self.memory.charge(charges, units, now);
            // Their waits are too short now.
            self.changed();
        }
        Ok(effect)
    }

    /// Changes the counters of one owner. Cached denials of all workers may be wrong afterwards.
    async fn change(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        write: impl Fn(&mut Command<'_>, WallTime),
    ) -> Result<Integers, Unreachable> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        let integers = self.script.change(slot, charges, now, write).await.map_err(|_| Unreachable)?;
        self.changed();
        Ok(integers)
    }

    /// Caches a denial.
    fn remember(&self, charges: &[Charge<'_>], outcome: &Outcome, asked: Timestamp, replied: Timestamp) {
        if !outcome.decided_locally.is_empty() {
            self.counts.errors.add(1);
        }
        self.refusals.borrow_mut().remember(charges, outcome, asked, replied);
    }

    /// Copies the counters of a reply, but for those that it says nothing of.
    fn learn(&self, charges: &[Charge<'_>], outcome: &Outcome, unknown: ChargeSet, replied: Timestamp) {
        for (index, (charge, decision)) in charges.iter().zip(outcome.decisions.iter()).enumerate() {
            // The places of this process are counted as they are held.
            let is_counted = charge.algorithm.as_concurrency().is_none() && !unknown.contains(index);
            if is_counted
                && (charge.shared_key.on_error == OnError::Local || charge.is_leased())
                && !outcome.decided_locally.contains(index)
            {
                self.memory.adopt(charge, decision, replied);
            }
        }
    }
}
