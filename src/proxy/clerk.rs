//! What a worker does for the admin listener, between requests.

use std::rc::Rc;

use super::worker::Worker;
use crate::gateway::Mode;
use crate::limit::units::Cost;
use crate::shared::desk::{Deed, Errand, Inbox, KeyErrand};
use crate::store::{Charge, Decisions, Group, Unreachable};

/// Does what comes, one after the other. Each is short: a call to a shared store has its time-out.
pub(super) async fn serve(mut inbox: Inbox, worker: Rc<Worker>) {
    while let Some(errand) = inbox.recv().await {
        match errand {
            // Whoever does not wait for the answer any more needs none.
            Errand::Key(errand, tell) => drop(tell.send(key(&errand, &worker).await)),
        }
    }
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
