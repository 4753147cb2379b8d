//! The limits of a route: its own `limits`, and before them those of `[server]`, which are on every route.

use super::cost::COST;
use super::cost::{self, CostDraft};
use super::keys::{ANY, Schema, flag, keys};
use super::name::Directory;
use super::report::SourceSpan;
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::plan::{LimitIndex, LimitUse};

keys! {
    /// The limits of a route.
    pub(super) ROUTE_LIMITS: RouteLimitKeys = "limits of a route" {
        /// Limits that must all admit a request, by name, none twice. Default: none.
        limits = Schema::List(ANY, &Schema::Either(&[Schema::Text, Schema::Table(&LIMIT_USE)]));
        /// Whether the limits of [server] apply to this route.
        server_limits: bool = flag() => true;
    }
}

keys! {
    /// A limit with a cost of its own.
    pub(super) LIMIT_USE: LimitUseKeys = "an item of limits" {
        /// The name of a limit.
        name = Schema::Text, required "\"NAME\"";
        /// Units that a request spends here: a number or a table. Default: the route's cost.
        cost = Schema::Named(&COST);
    }
}

/// A limit as a route names it.
pub(super) struct RouteLimit {
    pub(super) limit_use: LimitUse,
    pub(super) span: SourceSpan,
    /// The position of its cost: here, on the route, or (the default) none.
    pub(super) cost_span: Option<SourceSpan>,
    /// Whether `[server]` names it, and the route does not.
    pub(super) is_of_server: bool,
}

/// A limit that `[server]` names.
#[derive(Clone, Copy)]
pub(super) struct ServerLimit {
    pub(super) limit: LimitIndex,
    pub(super) span: SourceSpan,
}

/// Reads `limits` of `[server]`: names, each once.
pub(super) fn read_server(value: &ConfigValue<'_>, names: &Directory<'_>) -> Option<Vec<ServerLimit>> {
    let message = "a limit of `[server]` is charged the `cost` of each route";
    let help = "write its name alone; a route with another cost names it: `{ name = \"NAME\", cost = 2 }`";
    read_names(value, names, "limits", (message, help))
}

/// Reads `connection_limits` of `[server]`: names, each once.
pub(super) fn read_of_connections(
    value: &ConfigValue<'_>,
    names: &Directory<'_>,
) -> Option<Vec<ServerLimit>> {
    let fault = ("a connection costs 1", "write the name of the limit alone");
    read_names(value, names, "connection_limits", fault)
}

/// `no_table` is what is wrong with a table in place of a name, and what to write.
fn read_names(
    value: &ConfigValue<'_>,
    names: &Directory<'_>,
    key: &str,
    no_table: (&str, &str),
) -> Option<Vec<ServerLimit>> {
    let mut limits: Vec<ServerLimit> = Vec::new();
    for item in value.list()? {
        if item.is_table() {
            item.fault(no_table.0, no_table.1);
            continue;
        }
        let Some(limit) = item.text().and_then(|name| names.find(&name)).map(LimitIndex) else { continue };
        if limits.iter().any(|other| other.limit == limit) {
            item.fault(format!("`{key}` names the same limit twice"), "leave one of the two out");
            continue;
        }
        limits.push(ServerLimit { limit, span: item.span() });
    }
    Some(limits)
}

/// The limits of a route, the server's first. `cost` is the route's. One that the route names, too, has the cost there.
/// With `server_limits = false` the route has its own alone.
pub(super) fn join(
    table: &mut ConfigTable<'_>,
    server: &[ServerLimit],
    own: Vec<RouteLimit>,
    cost: &CostDraft,
) -> Vec<RouteLimit> {
    let given = table.given("server_limits");
    let has_them = table.value(&ROUTE_LIMITS.server_limits);
    if let Some(span) = given
        && server.is_empty()
    {
        table.diagnostics().warn(
            span,
            "`server_limits` has no effect: `[server]` has no `limits`",
            "leave it out, or name limits of every route: `limits` in `[server]`",
        );
    }
    if !has_them {
        return own;
    }
    let mut own = own;
    let mut limits = Vec::with_capacity(server.len() + own.len());
    for ServerLimit { limit, span } in server {
        let named = own.iter().position(|used| used.limit_use.limit == *limit);
        limits.push(match named {
            Some(index) => own.remove(index),
            None => RouteLimit {
                limit_use: LimitUse { limit: *limit, cost: cost.rule.clone() },
                span: *span,
                cost_span: cost.span,
                is_of_server: true,
            },
        });
    }
    limits.append(&mut own);
    limits
}

/// Reads `limits` of a route, with its `cost`.
pub(super) fn uses(
    value: &ConfigValue<'_>,
    cost: &CostDraft,
    names: &Directory<'_>,
) -> Option<Vec<RouteLimit>> {
    let mut uses: Vec<RouteLimit> = Vec::new();
    for item in value.list()? {
        let Some(used) = one_use(&item, cost, names) else { continue };
        if uses.iter().any(|other| other.limit_use.limit == used.limit_use.limit) {
            let message = "this route names the same limit twice";
            value.diagnostics().fault(
                used.span,
                message,
                "leave one of the two out: a limit is charged once a request",
            );
            continue;
        }
        uses.push(used);
    }
    Some(uses)
}

fn one_use(value: &ConfigValue<'_>, route_cost: &CostDraft, names: &Directory<'_>) -> Option<RouteLimit> {
    let (limit, cost) = if value.is_text() {
        (names.find(&value.text()?), route_cost.clone())
    } else {
        let mut table = value.table_beside_text("an item of `limits`")?;
        let limit = table.require(&LIMIT_USE.name, |value| names.find(&value.text()?));
        let cost =
            table.optional(&LIMIT_USE.cost, |value| cost::read(&value)).unwrap_or_else(|| route_cost.clone());
        table.finish();
        (limit, cost)
    };
    let limit_use = LimitUse { limit: LimitIndex(limit?), cost: cost.rule };
    Some(RouteLimit { limit_use, span: value.span(), cost_span: cost.span, is_of_server: false })
}
