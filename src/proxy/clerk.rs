//! What a worker does for the admin listener, between requests.

use std::rc::Rc;
use std::sync::Arc;

use super::worker::Worker;
use crate::gateway::Mode;
use crate::limit::units::{Cost, Fingerprint};
use crate::shared::desk::{Deed, Errand, Inbox, KeyErrand};
use crate::store::{Charge, Decisions, Group, Unreachable};
use crate::telemetry::distinct::Union;
use crate::telemetry::talkers::Sketch;

/// Does what comes, one after the other. Each is short: a call to a shared store has its time-out.
pub(super) async fn serve(mut inbox: Inbox, worker: Rc<Worker>) {
    while let Some(errand) = inbox.recv().await {
        match errand {
            // Whoever does not wait for the answer any more needs none.
            Errand::Key(errand, tell) => drop(tell.send(key(&errand, &worker).await)),
            Errand::Talkers(limit, tell) => drop(tell.send(talkers(&limit, &worker))),
            Errand::Labels(limit, owners, tell) => drop(tell.send(labels(&limit, &owners, &worker))),
            Errand::RefusedKeys(tell) => drop(tell.send(refused_keys(&worker))),
        }
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
    let limit = errand.gateway.limit(errand.limit);
    let group = match limit.mode {
        Mode::Enforce => Group::Enforced,
        Mode::Shadow => Group::Shadow(0),
    };
    let charges = |cost| limit.charges(errand.owner, cost, group).collect::<Vec<Charge<'_>>>();
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
