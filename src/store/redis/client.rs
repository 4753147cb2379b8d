//! One worker's way to the shared counters: what is remembered, the servers, and what is done without them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use smallvec::SmallVec;

use super::call::Correction;
use super::counts::Counts;
use super::fault::Fault;
use super::health::Healths;
use super::nodes::Nodes;
use super::refusals::Refusals;
use super::reply::{self, Reply};
use super::resp::{Command, Integers};
use super::script::Script;
use super::settings::Settings;
use super::slots::Slot;
use super::{call, key, turns, unasked};
use crate::clock::{deadline, micros};
use crate::limit::units::{Cost, Timestamp};
use crate::store::memory::MemoryStore;
use crate::store::{Charge, Decisions, OnError, Outcome, Unreachable};

/// One worker's way to the shared counters. Stays on its thread.
#[derive(Debug)]
pub struct Client {
    pub(super) settings: Arc<Settings>,
    pub(super) script: Arc<Script>,
    pub(super) nodes: Nodes,
    /// The version of the bans that were read last.
    pub(super) known_bans: Cell<Option<i64>>,
    refusals: RefCell<Refusals>,
    /// Goes on counting where the servers can't be asked.
    memory: Arc<MemoryStore>,
    counts: Arc<Counts>,
}

/// What the servers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// To charge all or none.
    Decide,
    /// To look at each charge as if alone, without charging.
    Peek,
    /// To give back what was charged at this time of the server's.
    Refund(Timestamp),
}

impl Client {
    /// Begins to connect. Needs the worker's runtime around it.
    pub(super) fn open(
        settings: &Arc<Settings>,
        script: &Arc<Script>,
        health: &Arc<Healths>,
        memory: Arc<MemoryStore>,
        counts: Arc<Counts>,
    ) -> Self {
        let nodes = Nodes::open(settings, script, health);
        let (settings, script) = (Arc::clone(settings), Arc::clone(script));
        Self {
            settings,
            script,
            nodes,
            known_bans: Cell::default(),
            refusals: RefCell::default(),
            memory,
            counts,
        }
    }

    /// The answer to a call whose refusal is remembered.
    #[inline]
    pub(in crate::store) fn recall(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcome> {
        let outcome = self.refusals.borrow().recall(charges, now)?;
        self.counts.remembered.add(1);
        Some(outcome)
    }

    /// Has the servers decide, or decides without them.
    pub(in crate::store) async fn decide(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        let asked = deadline::now();
        let outcome = match self.only_slot(charges) {
            Some(slot) => match self.ask(slot, Question::Decide, charges).await {
                Ok(reply) => reply.outcome,
                Err(_) => self.without(charges, now),
            },
            None => turns::decide(self, charges, now, asked + self.settings.timeout).await,
        };
        self.learn(charges, &outcome, now, now.plus(micros(asked.elapsed())));
        outcome
    }

    /// See [`Counters::look`](crate::store::Counters::look). The charges are of one owner, so they lie in one place.
    pub(in crate::store) async fn look(&self, charges: &[Charge<'_>]) -> Result<Decisions, Unreachable> {
        let slot = self.only_slot(charges).ok_or(Unreachable)?;
        let reply = self.ask(slot, Question::Peek, charges).await.map_err(|_| Unreachable)?;
        Ok(reply.outcome.decisions)
    }

    /// See [`Counters::reset`](crate::store::Counters::reset). The charges are of one owner.
    pub(in crate::store) async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<bool, Unreachable> {
        let answer = self.change(charges, |command| call::reset(|word| command.word(word))).await?;
        self.memory.reset(charges, now);
        // The time, and how many keys there were.
        Ok(answer.get(1).is_some_and(|deleted| *deleted > 0))
    }

    /// See [`Counters::grant`](crate::store::Counters::grant). The charges are of one owner.
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

    /// Changes the counters of one owner. What is remembered of refusals may be wrong then.
    async fn change(
        &self,
        charges: &[Charge<'_>],
        write: impl Fn(&mut Command<'_>),
    ) -> Result<Integers, Unreachable> {
        let slot = self.only_slot(charges).ok_or(Unreachable)?;
        let answer = self.nodes.ask(slot, |command| {
            self.write_keys(command, charges);
            write(command);
        });
        let answer = answer.await.map_err(|_| Unreachable)?;
        *self.refusals.borrow_mut() = Refusals::default();
        Ok(answer.integers)
    }

    /// Asks the server of this slot after charges that all lie there.
    pub(super) async fn ask(
        &self,
        slot: Slot,
        question: Question,
        charges: &[Charge<'_>],
    ) -> Result<Reply, Fault> {
        let answer = self.nodes.ask(slot, |command| self.write(command, question, charges)).await;
        // What was not sent is no call.
        if !matches!(answer, Err(Fault::Down | Fault::Busy)) {
            self.counts.calls.add(1);
        }
        let answer = answer?;
        self.counts.duration.record(micros(answer.took));
        let decided = if matches!(question, Question::Refund(_)) { 0 } else { charges.len() };
        reply::read(&answer.integers, decided).map_err(|_| Fault::Unreadable)
    }

    /// Decides without the servers.
    pub(super) fn without(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        unasked::decide(&self.memory, charges, now)
    }

    /// Where a charge's counter lies.
    pub(super) fn slot(&self, charge: &Charge<'_>) -> Slot {
        self.nodes.slot(&key::owner(charge.owner()))
    }

    /// Where all the counters lie, if they lie in one place.
    fn only_slot(&self, charges: &[Charge<'_>]) -> Option<Slot> {
        let (first, rest) = charges.split_first()?;
        let is_near = |charge: &Charge<'_>| charge.owner() == first.owner();
        let slot = self.slot(first);
        rest.iter().all(|charge| is_near(charge) || self.slot(charge) == slot).then_some(slot)
    }

    /// Keeps what was told: refusals, and from where on to count should the servers be lost.
    fn learn(&self, charges: &[Charge<'_>], outcome: &Outcome, asked: Timestamp, told: Timestamp) {
        if !outcome.unasked.is_empty() {
            self.counts.errors.add(1);
        }
        self.refusals.borrow_mut().remember(charges, outcome, asked, told);
        for (place, (charge, decision)) in charges.iter().zip(outcome.decisions.iter()).enumerate() {
            if charge.remote.on_error == OnError::Local && !outcome.unasked.contains(place) {
                self.memory.adopt(charge, decision, told);
            }
        }
    }

    /// Writes the call of the script.
    fn write(&self, command: &mut Command<'_>, question: Question, charges: &[Charge<'_>]) {
        self.write_keys(command, charges);
        let word = |word: &[u8]| command.word(word);
        match question {
            Question::Decide => call::decide(charges, word),
            Question::Peek => call::peek(charges, word),
            Question::Refund(at) => call::settle(&refunds(charges), at, word),
        }
    }

    fn write_keys(&self, command: &mut Command<'_>, charges: &[Charge<'_>]) {
        command.word(b"EVALSHA");
        command.word(self.script.sha1().as_bytes());
        command.number(charges.len() as u64);
        for charge in charges {
            let owner = key::owner(charge.owner());
            command.parts(&key::parts(&self.settings.prefix, &charge.remote.name, &owner));
        }
    }
}

fn refunds<'a>(charges: &[Charge<'a>]) -> SmallVec<[Correction<'a>; 4]> {
    let refund = |charge: &Charge<'a>| Correction {
        algorithm: charge.algorithm,
        key: charge.key,
        difference: -i64::from(charge.cost.units()),
    };
    charges.iter().map(refund).collect()
}
