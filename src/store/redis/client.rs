//! One worker's client of the shared counters: the denial cache, the servers, and the fallback without them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::counts::RedisCounts;
use super::denial_cache::DenialCache;
use super::health::ServerHealths;
use super::nodes::Nodes;
use super::resp::{Command, Integers};
use super::script::Script;
use super::script_client::{ScriptClient, ScriptOp};
use super::settings::RedisSettings;
use super::{call, cross_slot, reply};
use crate::clock::{deadline, micros};
use crate::limit::units::{Cost, Timestamp};
use crate::store::memory::MemoryStore;
use crate::store::{Charge, Decisions, OnError, Outcome, Unreachable};

/// One worker's client of the shared counters. Stays on its thread.
#[derive(Debug)]
pub struct RedisClient {
    pub(super) script: ScriptClient,
    /// The version of the bans read last.
    pub(super) known_bans: Cell<Option<i64>>,
    refusals: RefCell<DenialCache>,
    memory: Arc<MemoryStore>,
    counts: Arc<RedisCounts>,
}

impl RedisClient {
    /// Begins to connect. Needs the worker's runtime around it.
    pub(super) fn open(
        settings: &Arc<RedisSettings>,
        script: &Arc<Script>,
        health: &Arc<ServerHealths>,
        memory: Arc<MemoryStore>,
        counts: Arc<RedisCounts>,
    ) -> Self {
        let nodes = Nodes::open(settings, script, health);
        let (settings, script) = (Arc::clone(settings), Arc::clone(script));
        let script = ScriptClient::new(settings, script, nodes, Arc::clone(&memory), Arc::clone(&counts));
        Self { script, known_bans: Cell::default(), refusals: RefCell::default(), memory, counts }
    }

    /// The cached denial of a call, if there is one.
    #[inline]
    pub(in crate::store) fn recall(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcome> {
        let outcome = self.refusals.borrow().recall(charges, now)?;
        self.counts.remembered.add(1);
        Some(outcome)
    }

    /// Decides on the servers, or without them if they are unavailable.
    pub(in crate::store) async fn decide(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        let asked = deadline::now();
        let outcome = match self.script.only_slot(charges) {
            Some(slot) => match self.script.ask(slot, ScriptOp::Decide, charges).await {
                Ok(reply) => reply.outcome,
                Err(_) => self.script.without(charges, now),
            },
            None => cross_slot::decide(&self.script, charges, now, asked + self.script.timeout()).await,
        };
        self.learn(charges, &outcome, now, now.plus(micros(asked.elapsed())));
        outcome
    }

    /// See [`Counters::look`](crate::store::Counters::look). The charges have one owner, so they are in one slot.
    pub(in crate::store) async fn look(&self, charges: &[Charge<'_>]) -> Result<Decisions, Unreachable> {
        let slot = self.script.only_slot(charges).ok_or(Unreachable)?;
        let reply = self.script.ask(slot, ScriptOp::Peek, charges).await.map_err(|_| Unreachable)?;
        Ok(reply.outcome.decisions)
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
        let answer =
            self.change(charges, |command| call::grant(charges, units, |word| command.word(word))).await?;
        self.memory.grant(charges, units, now);
        let granted = reply::granted(&answer, charges.len()).map_err(|_| Unreachable)?;
        Ok(granted.into_iter().max().unwrap_or_default())
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
    fn learn(&self, charges: &[Charge<'_>], outcome: &Outcome, asked: Timestamp, replied: Timestamp) {
        if !outcome.unasked.is_empty() {
            self.counts.errors.add(1);
        }
        self.refusals.borrow_mut().remember(charges, outcome, asked, replied);
        for (index, (charge, decision)) in charges.iter().zip(outcome.decisions.iter()).enumerate() {
            if charge.remote.on_error == OnError::Local && !outcome.unasked.contains(index) {
                self.memory.adopt(charge, decision, replied);
            }
        }
    }
}
