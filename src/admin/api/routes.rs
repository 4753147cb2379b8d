//! `GET routes`: the routes of the active plan.

use serde_json::{Value, json};

use crate::limit::units::Cost;
use crate::plan::{LimitUse, Plan, Route};

pub(super) fn get(plan: &Plan) -> Value {
    let routes: Vec<Value> = plan.routes.iter().map(|route| one(plan, route)).collect();
    json!({ "routes": routes })
}

fn one(plan: &Plan, route: &Route) -> Value {
    let conditions = &route.conditions;
    let texts = |list: Vec<String>| Value::from(list);
    let limits: Vec<Value> = route.limits.iter().map(|used| limit(plan, used)).collect();
    json!({
        "name": &*route.name,
        "hosts": texts(conditions.hosts.iter().map(ToString::to_string).collect()),
        "path": conditions.path.to_string(),
        "methods": texts(conditions.methods.iter().map(ToString::to_string).collect()),
        // Without values: they may be secrets.
        "headers": texts(conditions.headers.iter().map(|(name, _)| name.to_string()).collect()),
        "upstream": &*plan.upstream(route.upstream).name,
        "cost": units(route.cost),
        "auth": route.auth.iter().flat_map(|auth| &auth.auths).map(|auth| &*plan.auth(*auth).name).collect::<Vec<_>>(),
        "limits": limits,
    })
}

fn limit(gateway: &Plan, used: &LimitUse) -> Value {
    let limit = gateway.limit(used.limit);
    json!({ "name": &*limit.name, "mode": limit.mode.as_str(), "cost": units(used.cost) })
}

/// A cost as written in the config file.
pub(super) fn units(cost: Option<Cost>) -> u32 {
    cost.map_or(0, Cost::units)
}
