//! What a worker does for the admin listener, between requests.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::gateway::{Gateway, LimitIndex, Mode};
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::shared::desk::{Change, Deed, Errand, Inbox, KeyErrand};
use crate::store::bans::{BanFault, Banned};
use crate::store::{Charge, Decisions, Group, Unreachable};
use crate::telemetry::distinct::Union;
use crate::telemetry::talkers::Sketch;

/// How often it is asked whether another gateway has banned somebody.
const BANS_EVERY: Duration = Duration::from_secs(1);

/// Does what comes, one after the other. Each is short: a call to a shared store has its time-out.
pub(super) async fn serve(mut inbox: Inbox, worker: Rc<Worker>) {
    while let Some(errand) = inbox.recv().await {
        match errand {
            // Whoever does not wait for the answer any more needs none.
            Errand::Key(errand, tell) => drop(tell.send(key(&errand, &worker).await)),
            Errand::Change(errand, tell) => drop(tell.send(change(&errand, &worker).await)),
            Errand::Ban(banned, span, tell) => drop(tell.send(ban(banned, span, &worker).await)),
            Errand::Talkers(limit, tell) => drop(tell.send(talkers(&limit, &worker))),
            Errand::Labels(limit, owners, tell) => drop(tell.send(labels(&limit, &owners, &worker))),
            Errand::RefusedKeys(tell) => drop(tell.send(refused_keys(&worker))),
        }
    }
}

/// Keeps the bans of the process up to date: for one worker.
pub(super) async fn keep_bans(worker: Rc<Worker>) -> Infallible {
    loop {
        let counters = Rc::clone(&worker.plan().counters);
        counters.keep_bans(worker.shared.store.bans(), worker.shared.clock.now()).await;
        // Not held while it waits: a reload may have done with it.
        drop(counters);
        tokio::time::sleep(BANS_EVERY).await;
    }
}

fn talkers(limit: &str, worker: &Worker) -> Vec<Sketch> {
    let plan = worker.plan();
    let sketches =
        plan.audience_of(limit).map(|audience| audience.borrow_mut().sketches(worker.shared.clock.now()));
    sketches.into_iter().flatten().collect()
}

fn labels(limit: &str, owners: &[Fingerprint], worker: &Worker) -> Vec<(Fingerprint, String)> {
    let plan = worker.plan();
    let Some(audience) = plan.audience_of(limit) else { return Vec::new() };
    let audience = audience.borrow();
    let named = owners.iter().filter_map(|owner| Some((*owner, audience.label(*owner)?.to_owned())));
    named.collect()
}

fn refused_keys(worker: &Worker) -> Vec<(Arc<str>, [Union; 2])> {
    let (plan, now) = (worker.plan(), worker.shared.clock.now());
    let limits = plan.gateway.limits.iter().zip(&plan.audiences);
    let told = limits.filter_map(|(limit, audience)| {
        Some((Arc::clone(&limit.name), audience.borrow().refused_keys(now)?))
    });
    told.collect()
}

async fn key(errand: &KeyErrand, worker: &Worker) -> Result<Decisions, Unreachable> {
    let charges = |cost| charges(&errand.gateway, errand.limit, errand.owner, cost);
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    match errand.deed {
        Deed::Look(cost) => counters.look(&charges(cost), now).await,
        Deed::LookAtWhole => {
            let mut charges = charges(Cost::ONE);
            charges.iter_mut().for_each(|charge| charge.cost = charge.algorithm.whole());
            counters.look(&charges, now).await
        }
    }
}

async fn change(errand: &KeyErrand<Change>, worker: &Worker) -> Result<u64, Unreachable> {
    let charges = charges(&errand.gateway, errand.limit, errand.owner, Cost::ONE);
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    match errand.deed {
        Change::Reset => counters.reset(&charges, now).await.map(u64::from),
        Change::Grant(units) => counters.grant(&charges, units, now).await,
    }
}

async fn ban(banned: Banned, span: Option<Micros>, worker: &Worker) -> Result<(), BanFault> {
    let (counters, now) = (Rc::clone(&worker.plan().counters), worker.shared.clock.now());
    counters.ban(worker.shared.store.bans(), banned, span, now).await
}

fn charges(gateway: &Gateway, limit: LimitIndex, owner: Fingerprint, cost: Cost) -> Vec<Charge<'_>> {
    let limit = gateway.limit(limit);
    let group = match limit.mode {
        Mode::Enforce => Group::Enforced,
        Mode::Shadow => Group::Shadow(0),
    };
    limit.charges(owner, cost, group).collect()
}
