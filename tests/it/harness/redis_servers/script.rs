//! What the tests of the shared store stand on: the script in a real server, with a clock that the test holds.
//!
//! The script that gateways use knows no clock but the server's. The tests change its text: the module that asks for the time
//! takes it from the last argument instead, and keys outlive any test, as the test's time may stand still.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tollgate::limit::lease::Lease;
use tollgate::limit::units::{Cost, Fingerprint, Timestamp};
use tollgate::limit::wall_clock::WallTime;
use tollgate::limit::{Algorithm, Decision, Verdict, Wait};
use tollgate::store::bans::Banned;
use tollgate::store::redis::call;
use tollgate::store::redis::key::Version;
use tollgate::store::redis::reply::{self, Reply};
use tollgate::store::redis::script::Script;
use tollgate::store::{BanCharge, Charge, ChargeEffect, Group, StoreRequest};

use crate::harness::charges;
use crate::harness::{Answer, Connection, Redis};

/// A server that decides at any moment it is told.
#[derive(Debug)]
pub(crate) struct Shared {
    connection: Connection,
    sha1: String,
    keys: u64,
    _redis: Redis,
}

impl Shared {
    pub(crate) fn start() -> Self {
        let redis = Redis::start();
        let mut connection = redis.connect();
        let sha1 = connection.call(["SCRIPT", "LOAD", &with_clock_in_hand(&Script::new())]).text();
        Self { connection, sha1, keys: 0, _redis: redis }
    }

    /// An unused key.
    pub(crate) fn new_key(&mut self) -> Fingerprint {
        self.keys += 1;
        charges::key(0, self.keys)
    }

    pub(crate) fn decide(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Vec<Decision> {
        self.decide_with(StoreRequest::of(charges), now)
    }

    fn decide_with(&mut self, request: StoreRequest<'_>, now: Timestamp) -> Vec<Decision> {
        let mut arguments = Vec::new();
        call::decide(request, WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        let bans = request.bans.iter().map(|ban| &ban.charge);
        self.evaluate(request.charges.iter().chain(bans).map(named).collect(), arguments, now)
    }

    /// Decides a request with concurrency limits, which has this id.
    pub(crate) fn admit(&mut self, charges: &[Charge<'_>], id: u128, now: Timestamp) -> Vec<Decision> {
        let mut arguments = Vec::new();
        call::decide(StoreRequest::of(charges), WallTime(now.0), |argument| {
            arguments.push(argument.to_vec())
        });
        arguments.push(id.to_le_bytes().to_vec());
        self.evaluate(charges.iter().map(named).collect(), arguments, now)
    }

    /// Gives the places of a charge back, as the request with this id ends.
    pub(crate) fn release(&mut self, charge: &Charge<'_>, id: u128, now: Timestamp) {
        let member = [&id.to_le_bytes()[..], &charge.cost.units().to_le_bytes()].concat();
        self.call(&[named(charge)], vec![b"release".to_vec(), b"0".to_vec(), member], now);
    }

    /// Counts refusals of a key. Returns what the ban decides, and whether this call has begun it.
    pub(crate) fn refuse(&mut self, ban: &Charge<'_>, now: Timestamp) -> (Decision, bool) {
        let banned = Banned { limit: 0, key_hash: ban.key_hash() };
        let ban = BanCharge { charge: Charge { group: Group::Enforced, ..*ban }, banned, of: (0, 0) };
        let decision = self.decide_with(StoreRequest { charges: &[], bans: &[ban] }, now)[0];
        match decision.verdict {
            Verdict::Delay(rest) => {
                (Decision { verdict: Verdict::Deny(Wait::After(rest)), ..decision }, true)
            }
            _ => (decision, false),
        }
    }

    pub(crate) fn peek(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Vec<Decision> {
        let mut arguments = Vec::new();
        call::peek(charges, WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        self.evaluate(charges.iter().map(named).collect(), arguments, now)
    }

    pub(crate) fn grant(&mut self, charge: &Charge<'_>, units: Cost, now: Timestamp) -> u64 {
        let mut arguments = Vec::new();
        call::grant(&[*charge], units, WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        let answer = self.call(&[named(charge)], arguments, now).integers();
        reply::units(&answer, 1).unwrap()[0]
    }

    /// Charges by hand.
    pub(crate) fn charge(&mut self, charge: &Charge<'_>, units: Cost, now: Timestamp) {
        let mut arguments = Vec::new();
        call::charge(&[*charge], units, None, WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        let answer = self.call(&[named(charge)], arguments, now).integers();
        assert_eq!(reply::charged(&answer), Ok(ChargeEffect::Charged));
    }

    /// The units in use.
    pub(crate) fn used(&mut self, charge: &Charge<'_>, now: Timestamp) -> u64 {
        let mut arguments = Vec::new();
        call::used(&[*charge], WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        let answer = self.call(&[named(charge)], arguments, now).integers();
        reply::units(&answer, 1).unwrap()[0]
    }

    /// Corrects a cost that was admitted then.
    pub(crate) fn settle(
        &mut self,
        charge: &Charge<'_>,
        admitted_at: Timestamp,
        difference: i64,
        now: Timestamp,
    ) {
        let mut arguments = Vec::new();
        let correction = (charge.algorithm, admitted_at, difference);
        call::settle(std::iter::once(correction), WallTime(now.0), |argument| {
            arguments.push(argument.to_vec())
        });
        let answer = self.call(&[named(charge)], arguments, now).integers();
        assert_eq!(reply::read(&answer, 0).map(|reply| reply.now), Ok(now));
    }

    /// Takes units in advance: how many, and the decision afterwards.
    pub(crate) fn lease(
        &mut self,
        charge: &Charge<'_>,
        lease: &Lease,
        wanted: u32,
        now: Timestamp,
    ) -> (u32, Decision) {
        let mut arguments = Vec::new();
        let wanted = std::iter::once((charge.algorithm, lease, wanted));
        call::lease(wanted, WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        let answer = self.call(&[named(charge)], arguments, now).integers();
        let (used, grants) = reply::grants(&answer, 1).unwrap();
        assert_eq!(used, now);
        grants[0]
    }

    /// Gives units back that were taken at that time.
    pub(crate) fn give_back(
        &mut self,
        charge: &Charge<'_>,
        lease: &Lease,
        (units, granted_at): (u32, Timestamp),
        now: Timestamp,
    ) {
        let mut arguments = Vec::new();
        let returned = std::iter::once((charge.algorithm, lease, units, granted_at));
        call::give_back(returned, WallTime(now.0), |argument| arguments.push(argument.to_vec()));
        assert_eq!(self.call(&[named(charge)], arguments, now).integers()[..], [now.0.cast_signed()]);
    }

    /// Deletes the counter.
    pub(crate) fn reset(&mut self, charge: &Charge<'_>, now: Timestamp) {
        self.call(&[named(charge)], vec![b"reset".to_vec()], now);
    }

    /// Any other command.
    pub(crate) fn command(&mut self, words: &[&str]) -> Answer {
        self.connection.call(words)
    }

    fn evaluate(&mut self, keys: Vec<String>, arguments: Vec<Vec<u8>>, now: Timestamp) -> Vec<Decision> {
        let answer = self.call(&keys, arguments, now).integers();
        let Reply { now: used, outcome } = reply::read(&answer, keys.len()).unwrap();
        assert_eq!(used, now);
        outcome.decisions.to_vec()
    }

    fn call(&mut self, keys: &[String], mut arguments: Vec<Vec<u8>>, now: Timestamp) -> Answer {
        arguments.push(now.0.to_string().into_bytes());
        self.connection.call(evalsha(&self.sha1, keys, arguments))
    }
}

/// The words of an `EVALSHA`.
pub(crate) fn evalsha(sha1: &str, keys: &[String], arguments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let head = ["EVALSHA".to_owned(), sha1.to_owned(), keys.len().to_string()];
    head.into_iter().chain(keys.iter().cloned()).map(String::into_bytes).chain(arguments).collect()
}

/// A charge's key in the server.
pub(crate) fn named(charge: &Charge<'_>) -> String {
    name(charge.key, charge.algorithm)
}

/// A key in the server.
pub(crate) fn name(key: Fingerprint, algorithm: &Algorithm) -> String {
    format!("test:{}:{{{:032x}}}", Version(algorithm), key.0)
}

/// An enforced charge.
pub(crate) fn charge(
    algorithm: &Algorithm,
    key: Fingerprint,
    cost: tollgate::limit::units::Cost,
) -> Charge<'_> {
    crate::harness::core::charges::charge(algorithm, key, cost.units())
}

/// Runs `test` on this number of samples, all on one server.
pub(crate) fn hold<S: Strategy>(cases: u32, samples: S, test: impl Fn(&mut Shared, S::Value)) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let shared = RefCell::new(Shared::start());
    let told = TestRunner::new(config).run(&samples, |sample| {
        test(&mut shared.borrow_mut(), sample);
        Ok(())
    });
    if let Err(told) = told {
        panic!("{told}");
    }
}

fn with_clock_in_hand(script: &Script) -> String {
    let clock = include_str!("../../../../src/store/redis/clock.lua");
    let in_hand = "local now = tonumber(table.remove(ARGV))\n";
    replaced(&replaced(script.text(), clock, in_hand), "local SLACK = 1000\n", "local SLACK = 1000000000\n")
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "the script has changed: {from}");
    text.replace(from, to)
}
