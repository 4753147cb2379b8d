//! One worker's client of the shared counters: the denial cache, the servers, and the fallback without them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::ban_list::KnownBans;
use super::call::{self, PlaceId};
use super::denial_cache::DenialCache;
use super::errors::CallError;
use super::health::ServerHealths;
use super::nodes::Nodes;
use super::reporter::Reporter;
use super::resp::{Command, Integers};
use super::script::Script;
use super::script_client::{RedisCounts, ScriptClient, ScriptOp};
use super::settings::RedisSettings;
use super::{cross_slot, reply};
use crate::clock::{self, micros};
use crate::limit::units::{Cost, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use crate::store::bans::Bans;
use crate::store::memory::MemoryStore;
use crate::store::{
    BanningRequest, Charge, ChargeEffect, ChargeFault, Correction, Decisions, IdempotentCharge, OnError,
    Outcome, Unreachable,
};

/// One worker's client of the shared counters. Stays on its thread.
#[derive(Debug)]
pub struct RedisClient {
    pub(super) script: Rc<ScriptClient>,
    /// The versions of the lists of bans that were read last.
    pub(super) known_bans: KnownBans,
    pub(super) reporter: Reporter,
    bans: Arc<Bans>,
    refusals: RefCell<DenialCache>,
    pub(super) memory: Arc<MemoryStore>,
    pub(super) counts: Arc<RedisCounts>,
}

impl RedisClient {
    /// Begins to connect. Needs the worker's runtime around it.
    pub(super) fn open(
        settings: &Arc<RedisSettings>,
        script: &Arc<Script>,
        health: &Arc<ServerHealths>,
        memory: Arc<MemoryStore>,
        bans: Arc<Bans>,
        counts: Arc<RedisCounts>,
    ) -> Self {
        let nodes = Nodes::open(settings, script, health);
        let (settings, script) = (Arc::clone(settings), Arc::clone(script));
        let script =
            Rc::new(ScriptClient::new(settings, script, nodes, Arc::clone(&memory), Arc::clone(&counts)));
        let reporter = Reporter::start(Rc::clone(&script), Arc::clone(&bans));
        let (known_bans, refusals) = (KnownBans::default(), RefCell::default());
        Self { script, known_bans, reporter, bans, refusals, memory, counts }
    }

    /// The cached denial of a call, if there is one.
    #[inline]
    pub(in crate::store) fn recall(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcome> {
        let outcome = self.refusals.borrow().recall(charges, now)?;
        self.counts.remembered.add(1);
        Some(outcome)
    }

    /// Decides on the servers, or without them if they are unavailable.
    pub(in crate::store) async fn decide(&self, request: BanningRequest<'_>, now: Timestamp) -> Outcome {
        let asked = clock::now();
        let outcome = match self.ask(request, now, asked, None).await {
            Ok(outcome) => outcome,
            Err(_) => self.without(request, self.script.without(request.charges, now), now),
        };
        self.learn(request.charges, &outcome, now, now.plus(micros(asked.elapsed())));
        outcome
    }

    /// As [`Self::decide`], with the cached denials. Refusals from the cache are reported to the bans later.
    pub(in crate::store) async fn decide_banning(
        &self,
        request: BanningRequest<'_>,
        now: Timestamp,
    ) -> Outcome {
        match self.recall(request.charges, now) {
            Some(outcome) => {
                self.reporter.refused(&self.script, request, &outcome, now);
                outcome
            }
            None => self.decide(request, now).await,
        }
    }

    /// Asks the servers.
    pub(super) async fn ask(
        &self,
        request: BanningRequest<'_>,
        now: Timestamp,
        asked: Instant,
        place: Option<PlaceId>,
    ) -> Result<Outcome, CallError> {
        let BanningRequest { charges, bans } = request;
        let Some(slot) = self.script.only_slot(charges) else {
            let deadline = asked + self.script.timeout();
            let outcome = cross_slot::decide(&self.script, charges, now, deadline, place).await;
            // Nodes that decide for others cannot count for a ban in the same call.
            self.reporter.refused(&self.script, request, &outcome, now);
            return Ok(outcome);
        };
        let settles = charges.iter().any(|charge| charge.remote.settles);
        let counted_at = |at: Timestamp| settles.then(|| charges.iter().map(|_| at).collect());
        if bans.is_empty() {
            let reply = self.script.ask(slot, ScriptOp::Decide, (charges, now), place).await?;
            return Ok(Outcome { counted_at: counted_at(reply.now), ..reply.outcome });
        }
        let all: SmallVec<[Charge<'_>; 4]> = charges.iter().chain(bans).copied().collect();
        let reply = self.script.ask(slot, ScriptOp::Decide, (&all, now), place).await?;
        let outcome = self.read_bans_of(request, &reply.outcome.decisions, now);
        Ok(Outcome { counted_at: counted_at(reply.now), ..outcome })
    }

    /// The decisions on the charges, and the bans that the server told of.
    fn read_bans_of(&self, request: BanningRequest<'_>, decisions: &[Decision], now: Timestamp) -> Outcome {
        let (decided, told) = decisions.split_at_checked(request.charges.len()).unwrap_or_default();
        let (mut banned, mut in_force) = (false, false);
        for (ban, decision) in request.bans.iter().zip(told) {
            let Some(key) = request.banned(ban) else { continue };
            match decision.verdict {
                // It begins.
                Verdict::Delay(rest) => {
                    if self.bans.begin(key, rest, now) {
                        self.reporter.begun(key, rest);
                    }
                }
                Verdict::Deny(Wait::After(rest)) => {
                    self.bans.insert_remote(key, rest, now);
                    in_force |= !ban.group.is_shadow();
                }
                _ => continue,
            }
            banned |= !ban.group.is_shadow();
        }
        let decisions = match in_force {
            // Nothing was decided.
            true => Decisions::default(),
            false => Decisions::Together(decided.iter().copied().collect()),
        };
        Outcome { decisions, banned, ..Outcome::default() }
    }

    /// The outcome of a request that was decided without the servers: its refusals are counted in this process.
    pub(super) fn without(
        &self,
        request: BanningRequest<'_>,
        mut outcome: Outcome,
        now: Timestamp,
    ) -> Outcome {
        outcome.banned = request.count_refusals(&outcome, &self.memory, &self.bans, now);
        outcome
    }

    /// See [`Counters::look`](crate::store::Counters::look). The charges have one owner, so they are in one slot.
    pub(in crate::store) async fn look(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, Unreachable> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        let reply = self.script.ask(slot, ScriptOp::Peek, (charges, now), None).await;
        Ok(reply.map_err(|_| Unreachable)?.outcome.decisions)
    }

    /// See [`Counters::reset`](crate::store::Counters::reset). The charges have one owner.
    pub(in crate::store) async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<bool, Unreachable> {
        let answer = self.change(charges, |command| call::reset(|word| command.word(word))).await?;
        self.memory.reset(charges, now);
        // The reply has the time, and the number of keys deleted.
        Ok(answer.get(1).is_some_and(|deleted| *deleted > 0))
    }

    /// See [`Counters::grant`](crate::store::Counters::grant). The charges have one owner.
    pub(in crate::store) async fn grant(
        &self,
        charges: &[Charge<'_>],
        units: Cost,
        now: Timestamp,
    ) -> Result<u64, Unreachable> {
        let answer = self
            .change(charges, |command| call::grant(charges, units, now, |word| command.word(word)))
            .await?;
        self.memory.grant(charges, units, now);
        let granted = reply::units(&answer, charges.len()).map_err(|_| Unreachable)?;
        Ok(granted.into_iter().max().unwrap_or_default())
    }

    /// See [`Counters::settle`](crate::store::Counters::settle).
    pub(in crate::store) fn settle(&self, correction: &Correction<'_>, now: Timestamp) {
        if !correction.shared {
            return self.memory.settle(correction, now);
        }
        if correction.charge.remote.on_error == OnError::Local {
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

    /// See [`Counters::charge`](crate::store::Counters::charge). The charges have one owner.
    ///
    /// An idempotency key is claimed first, under a name of its own, so that its use for a key in another slot is noticed.
    /// The record beside the counters is written with the charge, all or none, so it decides whether the charge is made.
    pub(in crate::store) async fn charge(
        &self,
        charges: &[Charge<'_>],
        units: Cost,
        once: Option<&IdempotentCharge>,
        now: Timestamp,
    ) -> Result<ChargeEffect, ChargeFault> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        if let Some(once) = once {
            match self.script.claim(once).await.map_err(|_| Unreachable)?.as_slice() {
                [_, 1] => {}
                [_, 0] => return Err(ChargeFault::OtherCharge),
                _ => return Err(Unreachable.into()),
            }
        }
        let answer = self.script.charge(slot, charges, units, once, now).await.map_err(|_| Unreachable)?;
        let effect = reply::charged(&answer)?;
        if effect == ChargeEffect::Charged {
            self.memory.charge(charges, units, now);
            // Their waits are too short now.
            *self.refusals.borrow_mut() = DenialCache::default();
        }
        Ok(effect)
    }

    /// See [`Counters::used`](crate::store::Counters::used). The charges have one owner.
    pub(in crate::store) async fn used(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Vec<u64>, Unreachable> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        let answer =
            self.script.change(slot, charges, |command| call::used(charges, now, |word| command.word(word)));
        let answer = answer.await.map_err(|_| Unreachable)?;
        reply::units(&answer, charges.len()).map_err(|_| Unreachable)
    }

    /// Changes the counters of one owner. Cached denials may be wrong afterwards.
    async fn change(
        &self,
        charges: &[Charge<'_>],
        write: impl Fn(&mut Command<'_>),
    ) -> Result<Integers, Unreachable> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        let integers = self.script.change(slot, charges, write).await.map_err(|_| Unreachable)?;
        *self.refusals.borrow_mut() = DenialCache::default();
        Ok(integers)
    }

    /// Learns from a reply: caches denials, and copies the counters, from which the process counts on if the servers
    /// become unavailable.
    pub(super) fn learn(
        &self,
        charges: &[Charge<'_>],
        outcome: &Outcome,
        asked: Timestamp,
        replied: Timestamp,
    ) {
        if !outcome.unasked.is_empty() {
            self.counts.errors.add(1);
        }
        self.refusals.borrow_mut().remember(charges, outcome, asked, replied);
        for (index, (charge, decision)) in charges.iter().zip(outcome.decisions.iter()).enumerate() {
            // The places of this process are counted as they are held.
            let is_counted = charge.algorithm.as_concurrency().is_none();
            if is_counted && charge.remote.on_error == OnError::Local && !outcome.unasked.contains(index) {
                self.memory.adopt(charge, decision, replied);
            }
        }
    }
}
