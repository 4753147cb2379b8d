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
use crate::shared::worker_commands::{CommandReceiver, KeyCommand, WorkerCommand};
use crate::store::bans::{BanCause, BanFault, Banned, Bans, BegunBan};
use crate::store::{Charge, Group, KeyOperation, OperationFault, OperationResult, Unreachable};
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

async fn key(command: &KeyCommand, worker: &Worker) -> Result<OperationResult, OperationFault> {
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    counters.execute(&command.operation, &charges(command), now).await
}

async fn ban(banned: Banned, span: Option<Micros>, worker: &Worker) -> Result<(), BanFault> {
    let (plan, now) = (worker.plan(), worker.shared.clock.now());
    if span.is_none()
        && let Some(ban) = plan.limits.iter().find(|limit| limit.identity() == banned.limit)
        && let Some(ban) = ban.ban.as_ref()
    {
        // The refusals and bans so far are forgotten, so that the next refusal begins no ban.
        let charges = [ban.charge(banned.owner, Group::Enforced)];
        let reset = plan.counters.execute(&KeyOperation::Reset, &charges, now).await;
        reset.map_err(|_| Unreachable)?;
    }
    plan.counters.ban(banned, span, now).await
}

fn charges(command: &KeyCommand) -> Vec<Charge<'_>> {
    let limit = command.plan.limit(command.limit);
    let group = match limit.mode {
        Mode::Enforce => Group::Enforced,
        Mode::Shadow => Group::Shadow(0),
    };
    let policies = limit.policies_of(command.tier);
    let charges = admission::charges(policies, command.owner, command.cost.unwrap_or(Cost::ONE), group);
    let whole = |charge: Charge<'_>| charge.algorithm.whole();
    charges.map(|charge| Charge { cost: command.cost.unwrap_or(whole(charge)), ..charge }).collect()
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
