//! One key of one limit: its state, and the changes to it. Every change returns the same body as a later `GET`.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;

use super::limits::algorithm;
use super::policies::{PolicyState, verdict};
use super::values::moment;
use super::{
    ApiError, ApiRequest, ApiResult, decoded, good, key_hash, key_id, limit_named, override_report, top_keys,
};
use crate::admin_api::keys::{KeyState, UnitsRequest};
use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::plan::{Limit, LimitIndex, Plan, Policy, Route, TierIndex};
use crate::route::key::{KeyFault, PathForm};
use crate::route::mask::Masking;
use crate::shared::Shared;
use crate::shared::worker_commands::{KeyCommand, LimitKeys};
use crate::store::bans::Banned;
use crate::store::overrides::KeyOfLimit;
use crate::store::usage::{UsageConsumer, UsageEntry, UsageTotals};
use crate::store::{KeyOperation, OperationFault, OperationResult};

/// The key named in a request.
pub(super) struct KeyRef {
    pub(super) plan: Arc<Plan>,
    pub(super) index: LimitIndex,
    pub(super) key_hash: Fingerprint,
    /// The values that named it; `None`: it was named by its id.
    values: Option<Vec<String>>,
}

/// The owner of the key with these values.
fn owner_of(
    shared: &Shared,
    plan: &Plan,
    index: LimitIndex,
    values: &[String],
) -> Result<Fingerprint, KeyFault> {
    let key = &plan.limit(index).key;
    key.owner_of(values, &shared.secret(plan), &plan.server.client, path_form(plan, index))
}

impl KeyRef {
    /// Finds the key by limit and key as given in a path.
    pub(super) fn find(shared: &Shared, limit: &str, key: &str) -> Result<Self, ApiError> {
        let plan = shared.plan.load_full();
        let index = limit_named(&plan, limit)?;
        if let Some(id) = decoded(key)?.strip_prefix("id:") {
            return Ok(Self { key_hash: key_hash(id)?, plan, index, values: None });
        }
        let values = key.split(',').map(decoded).collect::<Result<Vec<_>, _>>()?;
        let key_hash = owner_of(shared, &plan, index, &values);
        let key_hash = key_hash.map_err(|fault| ApiError::bad(format!("{fault}: {}", fault.help)))?;
        Ok(Self { plan, index, key_hash, values: Some(values) })
    }

    pub(super) fn limit(&self) -> &Limit {
        self.plan.limit(self.index)
    }

    pub(super) fn banned(&self) -> Banned {
        self.limit().banned(self.key_hash)
    }

    /// `GET`, and the response to every change.
    pub(super) async fn look(&self, asked: &ApiRequest<'_>) -> Result<KeyState, ApiError> {
        let shared = asked.shared;
        let tier = self.tier(shared).await;
        let state =
            PolicyState::look(shared, &self.plan, (self.index, tier), self.key_hash, Cost::ONE).await?;
        let (limit, now) = (self.limit(), shared.clock.now());
        let ban = limit.ban_of(shared.store.bans(), self.key_hash, now);
        let until = ban.map(|one| one.ban.until);
        let is_refused = ban.is_some_and(|one| !one.in_shadow);
        let (label, top_key) = top_keys::followed(shared, limit, self.key_hash).await.unzip();
        let named = || shared.store.bans().label(self.banned()).map(|label| top_keys::values(&label));
        // A request that named the key by its values contains them.
        let key = self.values.clone().or(label).or_else(named);
        Ok(KeyState {
            limit: limit.name.to_string(),
            mode: limit.mode.as_str().to_owned(),
            algorithm: algorithm(limit).to_owned(),
            id: key_id(self.key_hash),
            key,
            tier: limit.tier_name(tier).map(str::to_owned),
            verdict: if is_refused { "banned" } else { verdict(state.verdict()) }.to_owned(),
            policies: state.allowances(self.policies(shared, tier).iter().map(|policy| &policy.algorithm)),
            overridden: override_report::of(limit, KeyOfLimit::new(limit.identity, self.key_hash), shared),
            banned_until: until.map(moment),
            ban_cause: ban.map(|one| limit.ban_cause(one.ban.cause).to_string()),
            ban_in_shadow: ban.map(|one| one.in_shadow),
            requests: top_key.map(|top_key| top_key.requests),
            admitted: top_key.map(|top_key| top_key.admitted),
            refused: top_key.map(|top_key| top_key.refused),
            units: top_key.filter(|_| limit.settles()).map(|top_key| top_key.units),
            ..KeyState::default()
        })
    }

    /// `DELETE`.
    pub(super) async fn reset(&self, asked: &ApiRequest<'_>) -> ApiResult {
        self.only_counters()?;
        let changed = self.execute(asked, KeyOperation::Reset).await?.changed;
        self.log(asked, "resets");
        self.changed(asked, changed).await
    }

    /// `POST grant`.
    pub(super) async fn grant(&self, asked: &ApiRequest<'_>) -> ApiResult {
        self.only_counters()?;
        let units = units(asked, "given back")?;
        let result = self.execute(asked, KeyOperation::Grant(units)).await?;
        let granted = result.units.first().copied().unwrap_or_default();
        self.record_usage(asked.shared, -granted.cast_signed()).await;
        self.log(asked, &format!("gives {granted} of {} units back to", units.units()));
        let state = self.look(asked).await?;
        good(KeyState { changed: Some(result.changed), granted: Some(granted), ..state })
    }

    /// Places are given back by the requests that hold them, and by nothing else.
    fn only_counters(&self) -> Result<(), ApiError> {
        if self.limit().is_concurrency() {
            let message = "the limit counts requests in flight: a place is free when its request ends";
            return Err(ApiError::new(StatusCode::CONFLICT, message.to_owned()));
        }
        Ok(())
    }

    /// The response to a change: the key as it is now, and whether anything changed.
    pub(super) async fn changed(&self, asked: &ApiRequest<'_>, changed: bool) -> ApiResult {
        good(KeyState { changed: Some(changed), ..self.look(asked).await? })
    }

    /// The key's text in lists, if known: its values, masked where they may be secrets.
    pub(super) async fn label(&self, shared: &Shared) -> Option<String> {
        let (limit, rule) = (self.limit(), &self.plan.server.client);
        match &self.values {
            Some(values) => {
                let ids = shared.short_ids(&self.plan);
                Some(limit.key.label_of(values, rule, Masking::of(limit.reveal, &ids)))
            }
            None => top_keys::labels(shared, limit, LimitKeys::Counted, Arc::new([self.key_hash]))
                .await
                .remove(&self.key_hash),
        }
    }

    /// Adds units to the usage of the consumer in the present window.
    pub(super) async fn record_usage(&self, shared: &Shared, units: i64) {
        let Some(usage) = self.limit().usage.as_ref().filter(|_| units != 0) else { return };
        let values = match &self.values {
            Some(values) => Some(values.clone()),
            None => self.label(shared).await.map(|label| top_keys::values(&label)),
        };
        // The key is the consumer alone. The label of a request without one is its address, which has another owner, and so
        // has a name that labels don't show whole.
        let is_owner = |values: &[String]| {
            owner_of(shared, &self.plan, self.index, values).is_ok_and(|owner| owner == self.key_hash)
        };
        let consumer = match values.as_deref() {
            Some(values @ [name, ..]) if is_owner(values) => UsageConsumer::Named(name),
            Some([address, ..]) if is_address(address) => UsageConsumer::Anonymous,
            _ => UsageConsumer::Other,
        };
        let (span, change) = (usage.span_at(shared.clock.now()), UsageTotals::units(units));
        shared.store.usage().record(UsageEntry { series: usage.id(), span, consumer, change });
    }

    /// The tier of the consumer that the key names, if the limit has tiers. It reads all names of consumers.
    pub(super) async fn tier(&self, shared: &Shared) -> Option<TierIndex> {
        let limit = self.limit();
        if limit.tiers.is_empty() {
            return None;
        }
        let values = match &self.values {
            Some(values) => values.clone(),
            None => top_keys::values(&self.label(shared).await?),
        };
        let value = limit.tier_value(&values)?;
        limit.tier_of_value(value, |name| {
            self.plan.tiers_of(&HashSet::from([name.to_owned()])).get(name).copied()
        })
    }

    /// Its policies: those of its override, or of its tier.
    fn policies(&self, shared: &Shared, tier: Option<TierIndex>) -> &[Policy] {
        let known = shared.store.known(shared.clock.now());
        let overridden = self.plan.overridden(self.limit(), self.key_hash, known);
        overridden.unwrap_or_else(|| self.limit().policies_of(tier))
    }

    /// The end of its ban, if it is banned, or would be.
    pub(super) fn ban_ends(&self, shared: &Shared) -> Option<Timestamp> {
        let ban = self.limit().ban_of(shared.store.bans(), self.key_hash, shared.clock.now());
        ban.map(|one| one.ban.until)
    }

    /// Executes an operation on its counters.
    pub(super) async fn execute(
        &self,
        asked: &ApiRequest<'_>,
        operation: KeyOperation,
    ) -> Result<OperationResult, OperationFault> {
        let (plan, tier) = (Arc::clone(&self.plan), self.tier(asked.shared).await);
        let cost = Some(Cost::ONE);
        let (limit, key_hash) = (self.index, self.key_hash);
        let command = KeyCommand { plan, limit, tier, key_hash, cost, operation, in_process: false };
        asked.shared.worker_commands.execute(command).await
    }

    /// Logs a change. Without the key's values: they may be secrets.
    pub(super) fn log(&self, asked: &ApiRequest<'_>, does: &str) {
        let (id, limit) = (key_id(self.key_hash), &self.limit().name);
        tracing::info!("{} {does} {id} of limit `{limit}` at the admin listener", asked.caller);
    }
}

/// `units` of a body; `are` is what becomes of them.
pub(super) fn units(asked: &ApiRequest<'_>, are: &str) -> Result<Cost, ApiError> {
    let help = format!("`units` is how many are {are}: a whole number, 1 to {}", Cost::MAX);
    let UnitsRequest { units } = asked.body(&help)?;
    Cost::new(units).ok_or_else(|| ApiError::bad(help))
}

/// The path form of the limit's keys. If `//` equals `/` for some of its routes and not for others, it does not here.
fn path_form(plan: &Plan, limit: LimitIndex) -> PathForm {
    let uses = |route: &&Route| route.limits.iter().any(|used| used.limit == limit);
    let merge_slashes = plan.routes.iter().filter(uses).all(|route| route.conditions.merge_slashes);
    PathForm { matching: plan.server.path_matching, merge_slashes }
}

/// Whether the text is an address or a network.
fn is_address(text: &str) -> bool {
    text.split('/').next().is_some_and(|address| address.parse::<IpAddr>().is_ok())
}
