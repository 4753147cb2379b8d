//! Calls of the script: encodes charges, sends them to the server with their counters, reads the reply, and counts the
//! calls.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{self, PlaceId};
use super::errors::CallError;
use super::leased_key::{LeasedKey, ReturnedUnits};
use super::nodes::{Nodes, NodesReply};
use super::reply::{self, Reply};
use super::resp::{Command, Integers};
use super::rights::MissingRights;
use super::script::Script;
use super::server_error::ErrorKind;
use super::settings::RedisSettings;
use super::slot::HashSlot;
use super::{fallback, key};
use crate::clock::{self, micros};
use crate::counter::{CallTime, Counter, FineHistogram};
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::wall_clock::{self, WallTime};
use crate::limit::{Algorithm, Decision};
use crate::store::memory::MemoryStore;
use crate::store::{Charge, IdempotentCharge, Outcome, StoreRequest};

/// One worker's calls of the script.
#[derive(Debug)]
pub(super) struct ScriptClient {
    settings: Arc<RedisSettings>,
    script: Arc<Script>,
    nodes: Nodes,
    /// Counts locally where the servers are unavailable.
    memory: Arc<MemoryStore>,
    counts: Arc<RedisCounts>,
    rights: Arc<MissingRights>,
    /// By how many µs the servers' clock is ahead of the wall clock, as far as calendars had to know it.
    ahead: Cell<i64>,
    /// A moment of the last call, on both clocks of this machine.
    called: Cell<(Timestamp, Instant)>,
    /// By how many µs the servers' clock was at least ahead of this machine's moments, by the last reply.
    server_ahead: Cell<i64>,
}

/// The operations of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptOp {
    /// Charge all or none.
    Decide,
    /// Evaluate each charge separately, without charging.
    Peek,
    /// Refund charges made at this time of the server's clock.
    Refund(Timestamp),
}

impl ScriptClient {
    pub(super) fn new(
        settings: Arc<RedisSettings>,
        script: Arc<Script>,
        nodes: Nodes,
        memory: Arc<MemoryStore>,
        counts: Arc<RedisCounts>,
        rights: Arc<MissingRights>,
    ) -> Self {
        let called = Cell::new((Timestamp(0), clock::now()));
        let (ahead, server_ahead) = (Cell::new(0), Cell::new(0));
        Self { settings, script, nodes, memory, counts, rights, ahead, called, server_ahead }
    }

    /// The timeout of a call.
    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Calls the server of this slot at this time; all charges are in the slot.
    pub(super) async fn ask(
        &self,
        slot: HashSlot,
        question: ScriptOp,
        request: StoreRequest<'_>,
        now: Timestamp,
        place: Option<PlaceId>,
    ) -> Result<Reply, CallError> {
        let answer =
            self.call(slot, now, |command, now| self.write(command, question, request, now, place)).await;
        let answer = self.counted(answer)?;
        let decided = match question {
            ScriptOp::Refund(_) => 0,
            ScriptOp::Decide | ScriptOp::Peek => request.charges.len() + request.bans.len(),
        };
        let reply = reply::read(&answer.integers, decided).map_err(|_| CallError::Unreadable)?;
        self.note_server_time(reply.now);
        Ok(reply)
    }

    /// The present moment, as far as a call was made lately.
    pub(super) fn now(&self) -> Timestamp {
        let (at, instant) = self.called.get();
        at.plus(micros(instant.elapsed()))
    }

    fn note_server_time(&self, server: Timestamp) {
        self.server_ahead.set(server.0.cast_signed() - self.now().0.cast_signed());
    }

    /// The time of the servers' clock at `now`, or a little earlier.
    pub(super) fn server_time(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_add_signed(self.server_ahead.get()))
    }

    /// Takes units of a counter in advance, at most so many. Returns the server's time, how many, and the decision on a
    /// request of one unit afterwards.
    pub(super) async fn lease(
        &self,
        key: &LeasedKey,
        wanted: u32,
        now: Timestamp,
    ) -> Result<(Timestamp, u32, Decision), CallError> {
        let answer = self.call(key.slot, now, |command, now| {
            self.write_script(command, 1);
            command.word(&key.name);
            let wanted = std::iter::once((&key.algorithm, &key.lease, wanted));
            call::lease(wanted, now, |word| command.word(word));
        });
        let answer = self.counted(answer.await)?;
        match reply::grants(&answer.integers, 1).map_err(|_| CallError::Unreadable)? {
            (at, grants) if let [(units, decision)] = grants[..] => {
                self.note_server_time(at);
                Ok((at, units, decision))
            }
            _ => Err(CallError::Unreadable),
        }
    }

    /// Gives units back that were taken in advance, all in this slot.
    pub(super) async fn give_back(
        &self,
        returned: &[ReturnedUnits],
        now: Timestamp,
    ) -> Result<(), CallError> {
        let Some(first) = returned.first() else { return Ok(()) };
        let answer = self.call(first.key.slot, now, |command, now| {
            self.write_script(command, returned.len() as u64);
            returned.iter().for_each(|one| command.word(&one.key.name));
            let returned =
                returned.iter().map(|one| (&one.key.algorithm, &one.key.lease, one.units, one.granted_at));
            call::give_back(returned, now, |word| command.word(word));
        });
        self.counted(answer.await).map(drop)
    }

    /// Counts a call, and how long it took. A call that was not sent is not counted.
    fn counted(&self, answer: Result<NodesReply, CallError>) -> Result<NodesReply, CallError> {
        if !matches!(answer, Err(CallError::Down | CallError::Busy)) {
            self.counts.calls.add(1);
        }
        self.counts.duration.record(micros(answer.as_ref().map_err(|fault| *fault)?.took));
        answer
    }

    /// Counts units of corrections that the servers may not know of.
    pub(super) fn count_unsettled(&self, units: u64) {
        self.counts.unsettled.add(units);
    }

    /// Decides without the servers.
    pub(super) fn without(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        fallback::decide(&self.memory, charges, now)
    }

    /// The slot of a charge's counter.
    pub(super) fn slot(&self, charge: &Charge<'_>) -> HashSlot {
        self.nodes.slot(&key::key_hash(charge.key_hash()))
    }

    /// Sends a call that may name windows of a calendar, those around the time that `write` is given. If the server's time
    /// is in none of them, it has decided nothing: it is called once more, with those around its time.
    async fn call(
        &self,
        slot: HashSlot,
        now: Timestamp,
        write: impl Fn(&mut Command<'_>, WallTime),
    ) -> Result<NodesReply, CallError> {
        self.called.set((now, clock::now()));
        let here = wall_clock::system().wall_time(now);
        let there = WallTime(here.0.saturating_add_signed(self.ahead.get()));
        let answer = self.nodes.ask(slot, |command| write(command, there)).await?;
        let Some(there) = reply::time_beyond_edges(&answer.integers) else { return Ok(answer) };
        self.ahead.set(there.0.cast_signed() - here.0.cast_signed());
        self.nodes.ask(slot, |command| write(command, there)).await
    }

    /// Sends a call on the counters of these charges, which are all in this slot. `write` writes the arguments after
    /// their keys.
    pub(super) async fn change(
        &self,
        slot: HashSlot,
        charges: &[Charge<'_>],
        now: Timestamp,
        write: impl Fn(&mut Command<'_>, WallTime),
    ) -> Result<Integers, CallError> {
        let answer = self.call(slot, now, |command, now| {
            self.write_keys(command, charges);
            write(command, now);
        });
        Ok(answer.await?.integers)
    }

    /// Sends a call on the keys of these names with this hash tag. `write` writes the arguments after the keys.
    async fn ask_keys<N: AsRef<[u8]>>(
        &self,
        names: &[N],
        tag: &[u8],
        write: impl Fn(&mut Command<'_>),
    ) -> Result<Integers, CallError> {
        let answer = self.nodes.ask(self.nodes.slot(tag), |command| {
            self.write_script(command, names.len() as u64);
            let prefix = self.settings.prefix.as_bytes();
            names.iter().for_each(|name| command.parts(&[prefix, b":", name.as_ref(), b":{", tag, b"}"]));
            write(command);
        });
        Ok(answer.await?.integers)
    }

    /// Sends a call on a list that gateways share beside counters, for `what`. The list is the one key `name` with this hash
    /// tag.
    pub(super) async fn ask_list(
        &self,
        what: &'static str,
        name: &[u8],
        tag: &[u8],
        write: impl Fn(&mut Command<'_>),
    ) -> Result<Integers, CallError> {
        self.ask_names(what, &[name], tag, write).await
    }

    /// The same of several keys with this hash tag.
    pub(super) async fn ask_names<N: AsRef<[u8]>>(
        &self,
        what: &'static str,
        names: &[N],
        tag: &[u8],
        write: impl Fn(&mut Command<'_>),
    ) -> Result<Integers, CallError> {
        let answer = self.ask_keys(names, tag, write).await?;
        if let [_] = answer.as_slice() {
            self.rights.refused(what);
            return Err(CallError::Refused(ErrorKind::NOPERM));
        }
        Ok(answer)
    }

    /// Charges the counters by hand, which are all in this slot.
    pub(super) async fn charge(
        &self,
        slot: HashSlot,
        charges: &[Charge<'_>],
        units: Cost,
        once: Option<&IdempotentCharge>,
        now: Timestamp,
    ) -> Result<Integers, CallError> {
        let answer = self.call(slot, now, |command, now| {
            self.write_script(command, charges.len() as u64 + u64::from(once.is_some()));
            self.write_names(command, charges);
            if let (Some(once), Some(charge)) = (once, charges.first()) {
                let (id, key_hash) = (key::key_hash(Fingerprint(once.id)), key::key_hash(charge.key_hash()));
                command.parts(&[self.settings.prefix.as_bytes(), b":charged:", &id, b":{", &key_hash, b"}"]);
            }
            call::charge(charges, units, once, now, |word| command.word(word));
        });
        Ok(answer.await?.integers)
    }

    /// Has an idempotency key stand for a request.
    pub(super) async fn claim(&self, once: &IdempotentCharge) -> Result<Integers, CallError> {
        let id = key::key_hash(Fingerprint(once.id));
        self.ask_keys(&[b"charge-id"], &id, |command| call::claim(once, |word| command.word(word))).await
    }

    /// The slot of all the counters, if they are in one slot.
    pub(super) fn only_slot(&self, charges: &[Charge<'_>]) -> Option<HashSlot> {
        let (first, rest) = charges.split_first()?;
        let is_near = |charge: &Charge<'_>| charge.key_hash() == first.key_hash();
        let slot = self.slot(first);
        rest.iter().all(|charge| is_near(charge) || self.slot(charge) == slot).then_some(slot)
    }

    /// The whole name of a charge's counter.
    pub(super) fn name(&self, charge: &Charge<'_>) -> Box<[u8]> {
        let key_hash = key::key_hash(charge.key_hash());
        key::parts(&self.settings.prefix, &charge.shared_key.name, &key_hash).concat().into()
    }

    /// Sends an operation on places of requests, all in this slot: pairs of a key and a member.
    pub(super) async fn change_places<'p>(
        &self,
        slot: HashSlot,
        operation: &[u8],
        places: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ) -> Result<(), CallError> {
        let answer = self.nodes.ask(slot, |command| {
            self.write_script(command, places.len() as u64);
            places.clone().for_each(|(key, _)| command.word(key));
            command.word(operation);
            command.word(b"0");
            places.clone().for_each(|(_, member)| command.word(member));
        });
        answer.await.map(drop)
    }

    /// Reports refusals of keys, all in this slot: the key of each ban, its algorithm, and how many. Returns how long each
    /// is banned, if it is.
    pub(super) async fn report<'r>(
        &self,
        slot: HashSlot,
        refused: impl ExactSizeIterator<Item = (&'r [u8], &'r Algorithm, Cost)> + Clone,
    ) -> Result<Vec<Option<Micros>>, CallError> {
        let answer = self.nodes.ask(slot, |command| {
            self.write_script(command, refused.len() as u64);
            refused.clone().for_each(|(key, ..)| command.word(key));
            let bans = refused.clone().map(|(_, ban, count)| (ban, count));
            call::report(bans, |word| command.word(word));
        });
        let reply = reply::read(&answer.await?.integers, refused.len()).map_err(|_| CallError::Unreadable)?;
        Ok(reply.outcome.decisions.iter().map(Decision::ban_rest).collect())
    }

    /// Corrects costs of keys, all in this slot: each key, its algorithm, when it counted by the server's clock, and by
    /// how many units the cost was higher.
    pub(super) async fn settle<'r>(
        &self,
        slot: HashSlot,
        corrections: impl ExactSizeIterator<Item = (&'r [u8], &'r Algorithm, Timestamp, i64)> + Clone,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let answer = self.call(slot, now, |command, now| {
            self.write_script(command, corrections.len() as u64);
            corrections.clone().for_each(|(key, ..)| command.word(key));
            let settled =
                corrections.clone().map(|(_, algorithm, at, difference)| (algorithm, at, difference));
            call::settle(settled, now, |word| command.word(word));
        });
        answer.await.map(drop)
    }

    /// Writes the call of the script.
    fn write(
        &self,
        command: &mut Command<'_>,
        question: ScriptOp,
        request: StoreRequest<'_>,
        now: WallTime,
        place: Option<PlaceId>,
    ) {
        let StoreRequest { charges, bans } = request;
        self.write_script(command, (charges.len() + bans.len()) as u64);
        self.write_names(command, charges.iter().chain(bans.iter().map(|ban| &ban.charge)));
        let word = |word: &[u8]| command.word(word);
        match question {
            ScriptOp::Decide => call::decide(request, now, word),
            ScriptOp::Peek => call::peek(charges, now, word),
            ScriptOp::Refund(at) => {
                let refund = |charge: &Charge<'_>| -i64::from(charge.cost.units());
                call::settle(charges.iter().map(|charge| (charge.algorithm, at, refund(charge))), now, word);
            }
        }
        if let Some(place) = place {
            command.word(&place);
        }
    }

    fn write_keys(&self, command: &mut Command<'_>, charges: &[Charge<'_>]) {
        self.write_script(command, charges.len() as u64);
        self.write_names(command, charges);
    }

    fn write_names<'c>(&self, command: &mut Command<'_>, charges: impl IntoIterator<Item = &'c Charge<'c>>) {
        for charge in charges {
            let key_hash = key::key_hash(charge.key_hash());
            command.parts(&key::parts(&self.settings.prefix, &charge.shared_key.name, &key_hash));
        }
    }

    fn write_script(&self, command: &mut Command<'_>, keys: u64) {
        command.word(b"EVALSHA");
        command.word(self.script.sha1().as_bytes());
        command.number(keys);
    }
}

/// A worker's counts: only its thread writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RedisCounts {
    /// Calls sent to the servers, including refunds and look-ups.
    pub calls: Counter,
    /// Requests decided without the servers, in part or whole.
    pub errors: Counter,
    /// Denials answered from the cache, without a call.
    pub remembered: Counter,
    /// Requests decided by units in advance, without a call.
    pub leased: Counter,
    /// Units of costs that were corrected, but whose correction the servers may not know of.
    pub unsettled: Counter,
    /// The duration of the calls that were answered.
    pub duration: FineHistogram<CallTime>,
}
