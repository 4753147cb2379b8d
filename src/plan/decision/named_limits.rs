//! The limits that an application names in a call, each with the values of its key.

use std::collections::HashSet;

use percent_encoding::percent_decode_str;

use super::call::{CallCharges, CallItem, NamedKey};
use crate::limit::units::Cost;
use crate::plan::{Limit, Plan};
use crate::route::RouteIndex;
use crate::route::descriptor::write_encoded;
use crate::route::key::{EVERYONE, KeyFault, KeySecret, LABEL_END, PathForm};
use crate::route::mask::{Masking, ShortIds};

/// A limit of a call.
#[derive(Clone, Debug)]
pub struct CalledLimit<'p> {
    /// The limit.
    pub limit: &'p Limit,
    /// The values of its key, in the order of its parts; [`EVERYONE`] if it has none.
    pub values: Vec<String>,
    /// The units of the call.
    pub cost: Cost,
    route: RouteIndex,
    place: usize,
}

impl<'p> CalledLimit<'p> {
    /// The limit with this name. `None`: there is none, or it cannot be asked.
    pub fn new(plan: &'p Plan, name: &str, cost: Cost) -> Option<Self> {
        let route = plan.named_limits()?;
        let mut limits = plan.route(route).limits.iter().map(|used| plan.limit(used.limit));
        let (place, limit) = limits.by_ref().enumerate().find(|(_, limit)| *limit.name == *name)?;
        Some(Self { limit, values: vec![EVERYONE.to_owned()], cost, route, place })
    }

    /// The limit, called for the key with these values.
    pub fn with_values(self, values: Vec<String>) -> Self {
        Self { values, ..self }
    }

    fn key(&self, plan: &Plan, secret: &KeySecret) -> Result<NamedKey, KeyFault> {
        let (limit, values, rule) = (self.limit, &self.values, &plan.server.client);
        let paths = PathForm { matching: plan.server.path_matching, merge_slashes: true };
        let key_hash = limit.key.owner_of(values, secret, rule, paths)?;
        let mode = limit.mode_of_values(values, rule, paths)?;
        let tier = limit.tier_value(values).and_then(|value| {
            limit.tier_of_value(value, |name| {
                plan.tiers_of(&HashSet::from([name.to_owned()])).get(name).copied()
            })
        });
        Ok(NamedKey { key_hash, tier, mode })
    }
}

impl<'p> CallCharges<'p> {
    /// The charges of these limits.
    ///
    /// # Errors
    ///
    /// A value cannot be one of its part.
    pub fn of_limits(
        plan: &'p Plan,
        limits: &[CalledLimit<'p>],
        secret: &KeySecret,
    ) -> Result<Self, KeyFault> {
        let mut charges = Self::default();
        for (item, called) in limits.iter().enumerate() {
            let CalledLimit { route, place, cost, .. } = *called;
            let call = CallItem { plan, item, route, cost, overriding: None };
            charges.add_key(call, place, called.key(plan, secret)?);
        }
        Ok(charges)
    }
}

/// The limits as text, in place of a path: `/per-client=192.0.2.7*2;monthly=acme`. Values that may be secret are masked.
pub fn write_limits(plan: &Plan, limits: &[CalledLimit<'_>], ids: &ShortIds) -> String {
    let mut text = String::from("/");
    for (index, CalledLimit { limit, values, cost, .. }) in limits.iter().enumerate() {
        if index > 0 {
            text.push(';');
        }
        write_encoded(&limit.name, &mut text);
        let label = limit.key.label_of(values, &plan.server.client, Masking::of(limit.reveal, ids));
        for (index, value) in label.split_terminator(LABEL_END).enumerate() {
            text.push(if index == 0 { '=' } else { ',' });
            // A path has no `#`: there begins what no server gets to see.
            write_encoded(&value.replace(" #", "~"), &mut text);
        }
        if *cost != Cost::ONE {
            text.push_str(&format!("*{}", cost.units()));
        }
    }
    text
}

/// The limits of a text of [`write_limits`]. Masked values stay masked. `None`: it is no such text, or the plan has not
/// all of the limits.
pub fn read_limits<'p>(plan: &'p Plan, text: &str) -> Option<Vec<CalledLimit<'p>>> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let one = |text: &str| {
        let (text, cost) = match text.split_once('*') {
            Some((text, cost)) => (text, Cost::new(cost.parse().ok()?)?),
            None => (text, Cost::ONE),
        };
        let (name, values) = text.split_once('=').map_or((text, None), |(name, values)| (name, Some(values)));
        let called = CalledLimit::new(plan, &decoded(name), cost)?;
        let Some(values) = values else { return Some(called) };
        Some(called.with_values(values.split(',').map(decoded).collect()))
    };
    text.strip_prefix('/')?.split(';').map(one).collect()
}
