//! Executes the admin listener's commands on a worker, between requests, and keeps the bans up to date.
//!
//! The automatic bans that have begun are logged, a few a second: a flood of bans must not become a flood of lines.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;

use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::limit::wall_clock;
use crate::plan::{Limit, Mode, Plan, admission};
use crate::proxy::record::refusal_sample::time_of_day;
use crate::proxy::worker::Worker;
use crate::route::key::LABEL_END;
use crate::shared::worker_commands::{CommandReceiver, EndedBanKeys, KeyCommand, LimitKeys, WorkerCommand};
use crate::store::bans::{BanCause, BanFault, Banned, Bans, BegunBan};
use crate::store::{
    Charge, Counters, Group, KeyOperation, Known, OperationFault, OperationResult, Unreachable,
};
use crate::telemetry::hyperloglog::HyperLogLogUnion;
use crate::telemetry::top_keys::Sketch;

/// How often the shared store is asked for bans set by other gateways.
const LISTS_EVERY: Duration = Duration::from_secs(1);

/// The refusals of a key are counted for each of these.
const BAN_GROUPS: [Group; 2] = [Group::Enforced, Group::Shadow(0)];

/// Executes commands one after the other. Each is short: a call to a shared store has a timeout.
pub(crate) async fn serve(mut inbox: CommandReceiver, worker: Rc<Worker>) {
    while let Some(command) = inbox.recv().await {
        match command {
            // A dropped receiver needs no result.
            WorkerCommand::Key(command, reply) => drop(reply.send(key(&command, &worker).await)),
            WorkerCommand::Ban(banned, span, reply) => drop(reply.send(ban(banned, span, &worker).await)),
            WorkerCommand::Override(key, set, reply) => {
                let now = wall_clock::system().wall_time(worker.shared.clock.now());
                let counters = Rc::clone(&worker.plan().counters);
                reply.send(counters.set_override(key, set, now).await).ok();
            }
            WorkerCommand::Fleet(reply) => {
                let counters = Rc::clone(&worker.plan().counters);
                reply.send(counters.fleet(&worker.shared.identity()).await).ok();
            }
            // Apart from the others, since there may be many rows.
            WorkerCommand::Usage(settings, span, reply) => {
                let (counters, run) = (Rc::clone(&worker.plan().counters), worker.shared.identity().id);
                drop(spawn_local(async move {
                    reply.send(counters.read_usage(run, &settings, span).await).ok();
                }));
            }
            WorkerCommand::Pass(reply) => drop(reply.send(())),
            // Apart from the others, since there may be many.
            WorkerCommand::EndBans(ended) => drop(spawn_local(end_bans(ended, Rc::clone(&worker)))),
            WorkerCommand::Talkers(limit, keys, reply) => drop(reply.send(top_keys(&limit, keys, &worker))),
            WorkerCommand::Labels(limit, keys, key_hashes, reply) => {
                drop(reply.send(labels(&limit, keys, &key_hashes, &worker)))
            }
            WorkerCommand::RefusedKeys(reply) => drop(reply.send(refused_keys(&worker))),
        }
    }
}

/// Keeps what the gateways of a fleet share beside counters up to date: bans, overrides, and which gateways there are. One
/// worker runs it.
pub(crate) async fn keep_lists(worker: Rc<Worker>) -> Infallible {
    let mut last: Option<Rc<Counters>> = None;
    loop {
        let counters = Rc::clone(&worker.plan().counters);
        // A reload may have replaced them.
        if let Some(last) = last.replace(Rc::clone(&counters)).filter(|last| !Rc::ptr_eq(last, &counters)) {
            last.leave_fleet().await;
            last.return_leases(worker.shared.clock.now()).await;
        }
        counters.keep_bans(worker.shared.clock.now()).await;
        worker.shared.control.lists_read.send_replace(true);
        log_begun(worker.shared.store.bans(), &worker.plan());
        counters.keep_fleet(&worker.shared.identity(), worker.shared.clock.now()).await;
        let (plan, ledger) = (worker.plan(), worker.shared.store.usage());
        let limits = plan.limits.iter().filter_map(|limit| limit.usage.as_ref());
        // Where it cannot be written, it is written later.
        counters.keep_usage(ledger, worker.shared.control.gateway_id, limits, false).await.ok();
        tokio::time::sleep(LISTS_EVERY).await;
    }
}

fn top_keys(limit: &str, keys: LimitKeys, worker: &Worker) -> Vec<Sketch> {
    let plan = worker.plan();
    let sketches = plan
        .key_stats_of(limit, keys)
        .map(|key_stats| key_stats.borrow_mut().sketches(worker.shared.clock.now()));
    sketches.into_iter().flatten().collect()
}

fn labels(
    limit: &str,
    keys: LimitKeys,
    key_hashes: &[Fingerprint],
    worker: &Worker,
) -> Vec<(Fingerprint, String)> {
    let plan = worker.plan();
    let Some(key_stats) = plan.key_stats_of(limit, keys) else { return Vec::new() };
    let key_stats = key_stats.borrow();
    let named =
        key_hashes.iter().filter_map(|key_hash| Some((*key_hash, key_stats.label(*key_hash)?.to_owned())));
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
    let charges = charges(command, counters.known(now));
    match command.in_process {
        true => counters.execute_in_process(&command.operation, &charges, now),
        false => counters.execute(&command.operation, &charges, now).await,
    }
}

async fn ban(banned: Banned, span: Option<Micros>, worker: &Worker) -> Result<(), BanFault> {
    let (plan, now) = (worker.plan(), worker.shared.clock.now());
    if span.is_none()
        && let Some(limit) = plan.limits.iter().find(|limit| limit.identity == banned.limit)
    {
        // The refusals and bans so far are forgotten, so that the next refusal begins no ban.
        if let Some(ban) = &limit.ban {
            let charges = BAN_GROUPS.map(|group| ban.charge(banned.key_hash, group));
            let reset = plan.counters.execute(&KeyOperation::Reset, &charges, now).await;
            reset.map_err(|_| Unreachable)?;
        }
        plan.counters.ban(limit.banned_in_shadow(banned.key_hash), None, now).await?;
    }
    plan.counters.ban(banned, span, now).await
}

/// Resets the counters of bans that a reload has ended, and takes the bans off the list of a shared store.
async fn end_bans(ended: EndedBanKeys, worker: Rc<Worker>) {
    let EndedBanKeys { plan, limit, in_shadow, key_hashes } = ended;
    let (limit, counters) = (plan.limit(limit), Rc::clone(&worker.plan().counters));
    for (index, key_hash) in key_hashes.iter().enumerate() {
        if end_ban(limit, *key_hash, in_shadow, &counters, &worker).await.is_err() {
            let (left, name) = (key_hashes.len() - index, &limit.name);
            tracing::warn!(
                "limit `{name}`: the shared store is unreachable and keeps {left} bans that have ended"
            );
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn end_ban(
    limit: &Limit,
    key_hash: Fingerprint,
    in_shadow: bool,
    counters: &Counters,
    worker: &Worker,
) -> Result<(), Unreachable> {
    let [enforced, shadow] = BAN_GROUPS;
    let (group, banned) = match in_shadow {
        true => (shadow, limit.banned_in_shadow(key_hash)),
        false => (enforced, limit.banned(key_hash)),
    };
    if let Some(ban) = &limit.ban {
        let charges = [ban.charge(key_hash, group)];
        let now = worker.shared.clock.now();
        counters.execute(&KeyOperation::Reset, &charges, now).await.map_err(|_| Unreachable)?;
    }
    counters.end_automatic_ban(banned).await
}

fn charges<'c>(command: &'c KeyCommand, known: Known<'_>) -> Vec<Charge<'c>> {
    let limit = command.plan.limit(command.limit);
    let group = match limit.mode {
        Mode::Enforce => Group::Enforced,
        Mode::Shadow => Group::Shadow(0),
    };
    let overridden = command.plan.overridden(limit, command.key_hash, known);
    let policies = overridden.unwrap_or_else(|| limit.policies_of(command.tier));
    let policies = match command.operation {
        // A consumer may have been of another tier.
        KeyOperation::Reset => limit.with_other_counters(policies),
        _ => policies.iter().collect(),
    };
    let charges = admission::charges(policies, command.key_hash, command.cost.unwrap_or(Cost::ONE), group);
    let whole = |charge: Charge<'_>| charge.algorithm.whole();
    charges.map(|charge| Charge { cost: command.cost.unwrap_or(whole(charge)), ..charge }).collect()
}

/// Logs the bans that have begun since the last call.
fn log_begun(bans: &Bans, plan: &Plan) {
    let (begun, more) = bans.take_begun();
    for ban in begun {
        // A reload may have removed the limit.
        let named = |limit: &&Limit| [limit.identity, limit.shadow_identity()].contains(&ban.banned.limit);
        if let Some(limit) = plan.limits.iter().find(named) {
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
        None => format!("id:{:032x}", ban.banned.key_hash.0),
    };
    let (cause, until) = (limit.ban_cause(BanCause::Refusals), time_of_day(ban.until));
    let in_shadow = ban.banned.limit == limit.shadow_identity();
    let verb = if in_shadow { "would be banned" } else { "banned" };
    tracing::warn!("{verb} by limit `{}`: {key}, {cause}, until {until} UTC", limit.name);
}
