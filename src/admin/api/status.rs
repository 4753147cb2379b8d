//! `GET status`: the state of the process.

use super::values::moment;
use super::{certificates, problems};
use crate::admin_api::status::{LoadedFile, ReloadReport, StatusReport, StoreReport};
use crate::plan::Plan;
use crate::shared::control::Reload;
use crate::shared::{Life, Shared};

/// The maximum number of characters of an error.
const MAX_DETAIL: usize = 500;

pub(super) async fn get(shared: &Shared) -> StatusReport {
    let config_status = shared.control.config_status.borrow().clone();
    let plan = shared.plan.load();
    let store = shared.store.shared();
    let (bans, shadow_bans) = bans(shared, &plan);
    StatusReport {
        time: moment(shared.clock.now()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: moment(shared.control.started),
        workers: plan.server.workers,
        life: life(shared).to_owned(),
        last_reload: config_status.last.as_ref().map(last_reload),
        config: LoadedFile {
            file: config_status.file,
            version: config_status.version,
            loaded: moment(config_status.loaded),
        },
        store: StoreReport {
            backend: if store.is_some() { "redis" } else { "memory" }.to_owned(),
            up: store.as_ref().is_none_or(|store| store.health().is_up()),
            max_keys: store.is_none().then_some(plan.store.max_keys as u64),
        },
        bans: bans as u64,
        shadow_bans: shadow_bans as u64,
        certificates: certificates::get(&plan, shared.clock.wall_now()),
        problems: problems::get(shared).await,
    }
}

/// The number of active bans of the present limits: those that refuse, and those in shadow.
fn bans(shared: &Shared, plan: &Plan) -> (usize, usize) {
    let counts = shared.store.bans().counts(shared.clock.now());
    let of_limits = plan.limits.iter().map(|limit| limit.ban_counts(&counts));
    of_limits.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// The name of the process's phase.
pub(super) fn life(shared: &Shared) -> &'static str {
    match *shared.life.borrow() {
        Life::Running => "serving",
        Life::Draining => "draining",
    }
}

fn last_reload(reload: &Reload) -> ReloadReport {
    let (result, detail) = match &reload.result {
        Ok(_) => ("success", None),
        Err(faults) => ("failure", faults.first()),
    };
    let detail = detail.map(|detail| detail.chars().take(MAX_DETAIL).collect::<String>());
    ReloadReport { time: moment(reload.time), result: result.to_owned(), detail }
}
