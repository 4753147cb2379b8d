//! The label of a decision: in metrics, in the access log, and in a replay of it.

use super::DecisionLabel;
use crate::limit::Verdict;
use crate::plan::Mode;
use crate::plan::admission::{Applicability, BindingLimit, LimitCheck};
use crate::store::Outcome;

impl DecisionLabel {
    /// The label that a limit's verdict is counted under; `None` if it neither charged nor refused. `admitted`: all
    /// enforced limits admit the request.
    pub fn of_check(used: &LimitCheck<'_>, outcome: &Outcome, admitted: bool) -> Option<Self> {
        let shadow = used.limit.mode == Mode::Shadow;
        let refused = if shadow { Self::ShadowLimited } else { Self::Limited };
        let delayed =
            || used.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
        let unasked = used.indices().any(|index| outcome.unasked.contains(index));
        match used.applicability {
            Applicability::Exempt => Some(Self::Exempt),
            Applicability::Missing | Applicability::Repeated => Some(refused),
            Applicability::Charged(..) if unasked => Some(Self::StoreError),
            Applicability::Charged(..) if used.denies(outcome) => Some(refused),
            Applicability::Charged(..) if !admitted || outcome.decisions.is_empty() => None,
            Applicability::Charged(..) if !shadow && delayed() => Some(Self::Delayed),
            Applicability::Charged(..) => Some(Self::Allowed),
            Applicability::Free | Applicability::Skipped => None,
        }
    }

    /// The label of the binding limit.
    pub fn of_binding(binding: &BindingLimit<'_>) -> Self {
        match binding.decision.verdict {
            _ if !binding.asked => Self::StoreError,
            Verdict::Allow => Self::Allowed,
            Verdict::Delay(_) => Self::Delayed,
            Verdict::Deny(_) => Self::Limited,
        }
    }
}
