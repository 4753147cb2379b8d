//! Executes the admin listener's commands on a worker, between requests, and keeps the bans up to date.
//!
//! The automatic bans that have begun are logged, a few a second: a flood of bans must not become a flood of lines.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::refusal_sample::time_of_day;
use super::worker::Worker;
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::plan::{Limit, Mode, Plan, admission};
use crate::route::key::LABEL_END;
use crate::shared::worker_commands::{
    Change, ChargeByHand, CommandReceiver, KeyCommand, KeyOperation, WorkerCommand,
};
use crate::store::bans::{BanCause, BanFault, Banned, Bans, BegunBan};
use crate::store::{Charge, ChargeEffect, ChargeFault, Decisions, Group, Unreachable};
use crate::telemetry::hyperloglog::HyperLogLogUnion;
use crate::telemetry::top_keys::Sketch;

/// How often the shared store is asked for bans set by other gateways.
const BANS_EVERY: Duration = Duration::from_secs(1);

/// Executes commands one after the other. Each is short: a call to a shared store has a timeout.
pub(super) async fn serve(mut inbox: CommandReceiver, worker: Rc<Worker>) {
    while let Some(command) = inbox.recv().await {
        match command {
            // A dropped receiver needs no result.
            WorkerCommand::Key(command, tell) => drop(tell.send(key(&command, &worker).await)),
            WorkerCommand::Change(command, tell) => drop(tell.send(change(&command, &worker).await)),
            WorkerCommand::Charge(command, tell) => drop(tell.send(charge(&command, &worker).await)),
            WorkerCommand::Used(command, tell) => drop(tell.send(used(&command, &worker).await)),
            WorkerCommand::Ban(banned, span, tell) => drop(tell.send(ban(banned, span, &worker).await)),
            WorkerCommand::Talkers(limit, tell) => drop(tell.send(top_keys(&limit, &worker))),
            WorkerCommand::Labels(limit, owners, tell) => drop(tell.send(labels(&limit, &owners, &worker))),
            WorkerCommand::RefusedKeys(tell) => drop(tell.send(refused_keys(&worker))),
        }
    }
}

/// Keeps the bans of the process up to date. One worker runs it.
pub(super) async fn keep_bans(worker: Rc<Worker>) -> Infallible {
    loop {
        let counters = Rc::clone(&worker.plan().counters);
        counters.keep_bans(worker.shared.clock.now()).await;
        log_begun(worker.shared.store.bans(), &worker.plan());
        // Not held during the wait: a reload may have replaced the counters.
        drop(counters);
        tokio::time::sleep(BANS_EVERY).await;
    }
}

fn top_keys(limit: &str, worker: &Worker) -> Vec<Sketch> {
    let plan = worker.plan();
    let sketches =
        plan.key_stats_of(limit).map(|key_stats| key_stats.borrow_mut().sketches(worker.shared.clock.now()));
    sketches.into_iter().flatten().collect()
}

fn labels(limit: &str, owners: &[Fingerprint], worker: &Worker) -> Vec<(Fingerprint, String)> {
    let plan = worker.plan();
    let Some(key_stats) = plan.key_stats_of(limit) else { return Vec::new() };
    let key_stats = key_stats.borrow();
    let named = owners.iter().filter_map(|owner| Some((*owner, key_stats.label(*owner)?.to_owned())));
    named.collect()
}

fn refused_keys(worker: &Worker) -> Vec<(Arc<str>, [HyperLogLogUnion; 2])> {
    let (plan, now) = (worker.plan(), worker.shared.clock.now());
    let limits = plan.limits.iter().zip(&plan.key_stats);
    let reported = limits.filter_map(|(limit, key_stats)| {
        Some((Arc::clone(&limit.name), key_stats.borrow().refused_keys(now)?))
    });
    reported.collect()
}

async fn key(command: &KeyCommand, worker: &Worker) -> Result<Decisions, Unreachable> {
    let charges = |cost| charges(command, cost);
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    match command.deed {
        KeyOperation::Look(cost) => counters.look(&charges(cost), now).await,
        KeyOperation::LookAtWhole => {
            let mut charges = charges(Cost::ONE);
            charges.iter_mut().for_each(|charge| charge.cost = charge.algorithm.whole());
            counters.look(&charges, now).await
        }
    }
}

async fn change(command: &KeyCommand<Change>, worker: &Worker) -> Result<u64, Unreachable> {
    let charges = charges(command, Cost::ONE);
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    match command.deed {
        Change::Reset => counters.reset(&charges, now).await.map(u64::from),
        Change::Grant(units) => counters.grant(&charges, units, now).await,
    }
}

async fn charge(command: &KeyCommand<ChargeByHand>, worker: &Worker) -> Result<ChargeEffect, ChargeFault> {
    let ChargeByHand { units, once } = &command.deed;
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    counters.charge(&charges(command, *units), *units, once.as_ref(), now).await
}

async fn used(command: &KeyCommand<()>, worker: &Worker) -> Result<Vec<u64>, Unreachable> {
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    counters.used(&charges(command, Cost::ONE), now).await
}

async fn ban(banned: Banned, span: Option<Micros>, worker: &Worker) -> Result<(), BanFault> {
    let (plan, now) = (worker.plan(), worker.shared.clock.now());
    if span.is_none()
        && let Some(ban) = plan.limits.iter().find(|limit| limit.identity() == banned.limit)
        && let Some(ban) = ban.ban.as_ref()
    {
        // The refusals and bans so far are forgotten, so that the next refusal begins no ban.
        let group = Group::Ban { first: 0, count: 0, shadow: false };
        plan.counters.reset(&[ban.charge(banned.owner, group)], now).await?;
    }
    plan.counters.ban(banned, span, now).await
}

fn charges<D>(command: &KeyCommand<D>, cost: Cost) -> Vec<Charge<'_>> {
    let limit = command.plan.limit(command.limit);
    let group = match limit.mode {
        Mode::Enforce => Group::Enforced,
        Mode::Shadow => Group::Shadow(0),
    };
    admission::charges(limit.policies_of(command.tier), command.owner, cost, group).collect()
}

/// Logs the bans that have begun since the last call.
fn log_begun(bans: &Bans, plan: &Plan) {
    let (begun, more) = bans.take_begun();
    for ban in begun {
        // A reload may have removed the limit.
        if let Some(limit) = plan.limits.iter().find(|limit| limit.identity() == ban.banned.limit) {
            log_ban(limit, &ban, bans);
        }
    }
    if more > 0 {
        tracing::warn!("{more} more bans in the same second: `GET /api/v1/bans` lists them");
    }
}

fn log_ban(limit: &Limit, ban: &BegunBan, bans: &Bans) {
    let key = match bans.label(ban.banned) {
        Some(label) => label
            .split_terminator(LABEL_END)
            .map(|part| part.escape_debug().to_string())
            .collect::<Vec<_>>()
            .join(", "),
        None => format!("id:{:032x}", ban.banned.owner.0),
    };
    let (cause, until) = (limit.ban_cause(BanCause::Refusals), time_of_day(ban.until));
    let verb = match limit.mode {
        Mode::Enforce => "banned",
        Mode::Shadow => "would be banned",
    };
    tracing::warn!("{verb} by limit `{}`: {key}, {cause}, until {until} UTC", limit.name);
}
