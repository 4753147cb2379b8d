//! The automatic bans that a reload ends. A limit that is enforced from now on, or for more keys than before, begins
//! without the bans of its time in shadow; one that is in shadow from now on keeps none of those that were in force.
//! Bans by hand stay.

use std::sync::Arc;

use crate::plan::{Limit, LimitIndex, Plan};
use crate::shared::Shared;
use crate::shared::control::EndedBans;
use crate::shared::worker_commands::{EndedBanKeys, WorkerCommand};

/// Ends the bans of limits whose mode differs between two plans, the second of which is in force. A shared store learns of
/// it by a worker.
pub(super) fn end_bans(shared: &Shared, last: &Plan, next: &Arc<Plan>) -> Vec<EndedBans> {
    let mut ended = Vec::new();
    for (index, limit) in next.limits.iter().enumerate() {
        let Some(in_shadow) =
            last.limit_named(&limit.name).and_then(|before| turn(last.limit(before), limit))
        else {
            continue;
        };
        let identity = if in_shadow { limit.shadow_identity() } else { limit.identity };
        let key_hashes = shared.store.bans().end_automatic(identity);
        if key_hashes.is_empty() {
            continue;
        }
        let count = key_hashes.len();
        let keys = EndedBanKeys { plan: Arc::clone(next), limit: LimitIndex(index), in_shadow, key_hashes };
        let told = shared.worker_commands.tell_one(WorkerCommand::EndBans(keys));
        log(limit, count, in_shadow, told);
        ended.push(EndedBans { limit: Arc::clone(&limit.name), count, in_shadow });
    }
    ended
}

/// Which bans of a limit end: those in shadow (true), those in force (false), or none.
fn turn(last: &Limit, next: &Limit) -> Option<bool> {
    let (before, after) = (last.enforced_share(), next.enforced_share());
    match () {
        // Its bans have other names.
        () if last.identity != next.identity => None,
        () if after > before => Some(true),
        () if after <= 0.0 && before > 0.0 => Some(false),
        () => None,
    }
}

fn log(limit: &Limit, count: usize, in_shadow: bool, told: bool) {
    let bans = if count == 1 { "1 ban has".to_owned() } else { format!("{count} bans have") };
    let why = match in_shadow {
        true => "begun in shadow: the limit is enforced now",
        false => "in force before: the limit is in shadow now",
    };
    tracing::info!("limit `{}`: {bans} ended, {why}", limit.name);
    if !told {
        tracing::warn!("limit `{}`: no worker could reset the counters of these bans", limit.name);
    }
}
