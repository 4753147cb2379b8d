//! Policies with numbers that other proxies send (`override = true`): each is made once for a plan.

use std::collections::HashMap;
use std::rc::Rc;

use crate::limit::units::Rate;
use crate::plan::{LimitIndex, Plan, Policy};
use crate::store::Counters;

/// How many are kept. Beyond them all are made again.
const MAX: usize = 1_000;

/// The policies of a plan with other numbers.
#[derive(Debug, Default)]
pub(crate) struct OverridingPolicies(HashMap<(LimitIndex, Rate), Rc<Policy>>);

impl OverridingPolicies {
    /// The policy of a limit with this rate. `None`: the limit can have no other.
    pub(crate) fn get(
        &mut self,
        plan: &Plan,
        index: LimitIndex,
        rate: Rate,
        counters: &Counters,
    ) -> Option<Rc<Policy>> {
        if let Some(known) = self.0.get(&(index, rate)) {
            return Some(Rc::clone(known));
        }
        let limit = plan.limit(index);
        let policy = Rc::new(limit.with_rate(rate)?);
        limit.registrations_of(&policy).for_each(|one| counters.register(&one));
        if self.0.len() >= MAX {
            self.0.clear();
        }
        self.0.insert((index, rate), Rc::clone(&policy));
        Some(policy)
    }
}
