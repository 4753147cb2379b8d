//! `GET status`: the state of the process.

use serde_json::{Value, json};

use super::problems;
use super::values::moment;
use crate::plan::Plan;
use crate::shared::control::Reload;
use crate::shared::{Life, Shared};

/// The maximum number of characters of an error.
const MAX_DETAIL: usize = 500;

pub(super) fn get(shared: &Shared) -> Value {
    let config_status = shared.control.config_status.borrow().clone();
    let plan = shared.plan.load();
    let store = shared.store.shared();
    let (bans, shadow_bans) = bans(shared, &plan);
    json!({
        "time": moment(shared.clock.now()),
        "version": env!("CARGO_PKG_VERSION"),
        "started": moment(shared.control.started),
        "workers": plan.server.workers,
        "life": life(shared),
        "config": { "file": config_status.file, "version": config_status.version, "loaded": moment(config_status.loaded) },
        "last_reload": config_status.last.as_ref().map(last_reload),
        "store": {
            "backend": if store.is_some() { "redis" } else { "memory" },
            "up": store.as_ref().is_none_or(|store| store.health().is_up()),
            "max_keys": if store.is_some() { Value::Null } else { json!(plan.store.max_keys) },
        },
        "bans": bans, "shadow_bans": shadow_bans,
        "problems": problems::get(shared),
    })
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

fn last_reload(reload: &Reload) -> Value {
    let (result, detail) = match &reload.result {
        Ok(_) => ("success", None),
        Err(faults) => ("failure", faults.first()),
    };
    let detail = detail.map(|detail| detail.chars().take(MAX_DETAIL).collect::<String>());
    json!({ "time": moment(reload.time), "result": result, "detail": detail })
}
