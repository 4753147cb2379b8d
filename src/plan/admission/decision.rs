//! The decision on admission, and what a refusal tells the client.

use http::StatusCode;
use smallvec::SmallVec;

use crate::limit::Decision;
use crate::limit::units::{Cost, Micros, Timestamp};
use crate::plan::{Limit, Policy};
use crate::route::content::UnreadableBody;
use crate::store::bans::BanCause;

/// The admission of a request.
#[derive(Debug)]
pub struct Admission<'a> {
    /// Admit, delay, or refuse.
    pub decision: AdmissionDecision<'a>,
    /// The binding policy: the refusing one with the longest wait, else the one with the least `remaining ÷ cost`.
    /// `None` if no enforced limit applied.
    pub tightest: Option<BindingLimit<'a>>,
}

/// The refusal of a request because of a ban.
#[derive(Debug)]
pub struct BanRefusal<'a> {
    /// The limit's index on the route.
    pub index: usize,
    /// The refusal.
    pub refusal: Refusal<'a>,
    /// The numbers in the response: nothing remains until the ban is over.
    pub tightest: BindingLimit<'a>,
}

/// Admit, delay, or refuse.
#[derive(Debug)]
pub enum AdmissionDecision<'a> {
    /// Forward, after this delay (zero: now).
    Admit(Micros),
    /// Refuse.
    Refuse(Refusal<'a>),
}

/// The limits that refuse, and the wait.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The limit with the longest wait.
    pub limit: &'a Limit,
    /// The wait after which the same request is admitted; `None`: waiting cannot help.
    pub wait: Option<Micros>,
    /// Added to the wait that the client is told, so that clients refused together do not return together.
    pub jitter: Micros,
    /// The names of all policies that refuse, longest wait first.
    pub violated: SmallVec<[&'a str; 2]>,
    /// The cause.
    pub why: RefusalCause,
}

/// Why a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The allowance is used up, or is less than the cost.
    Over {
        /// The request's cost.
        cost: Cost,
        /// The units that are left.
        left: u64,
    },
    /// Too many requests are in flight: a place becomes free when one of them ends.
    InFlight,
    /// The backend has as many requests in flight as it works on: of a limit whose maximum is found.
    Overloaded,
    /// The key of `share_by` has more than its share of the places, or of the queue, while others wait.
    OverShare,
    /// A part of the limit's key is missing: the request was not counted.
    Missing,
    /// A part of the limit's key has several values: the request is malformed, and was not counted.
    Repeated,
    /// The body, which the limit's key reads, cannot be read: the request was not counted.
    Unreadable(UnreadableBody),
    /// The key is banned: nothing was charged.
    Banned {
        /// The end of the ban.
        until: Timestamp,
        /// The time until then.
        rest: Micros,
        /// Its cause.
        cause: BanCause,
    },
}

/// The rate-limit numbers of a response.
#[derive(Clone, Copy, Debug)]
pub struct BindingLimit<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The limit it belongs to.
    pub limit: &'a Limit,
    /// Its decision.
    pub decision: Decision,
    /// The request's cost for it.
    pub cost: Cost,
    /// The store decided; otherwise it was unavailable, and this process decided.
    pub asked: bool,
    /// The call of a batch that has its key; else 0.
    pub call: u8,
}

impl BanRefusal<'_> {
    /// A counter of the request admits it only after this wait, which may be longer than the ban.
    #[must_use]
    pub fn not_before(mut self, wait: Micros) -> Self {
        self.refusal.wait = self.refusal.wait.map(|rest| rest.max(wait));
        self
    }
}

impl Refusal<'_> {
    /// `retry-after`: whole seconds, rounded up, at least 1, with the jitter; `None` if waiting cannot help.
    pub fn retry_after(&self) -> Option<u64> {
        let told = |wait: Micros| Micros(wait.0.saturating_add(self.jitter.0));
        self.wait.map(|wait| told(wait).seconds_rounded_up().max(1))
    }

    /// The same with the limit's `retry_jitter`, of which `draw` chooses a part: a number from 0 to its argument.
    #[must_use]
    pub fn spread(mut self, draw: impl FnOnce(u64) -> u64) -> Self {
        let most = match (self.why, self.limit.retry_jitter) {
            // Its wait is an estimate: clients refused together must not return together.
            (RefusalCause::Overloaded | RefusalCause::OverShare, None) => self.wait,
            (_, most) => most,
        };
        if let (Some(_), Some(most)) = (self.wait, most) {
            self.jitter = Micros(draw(most.0));
        }
        self
    }

    /// The status of the response, unless the limit has its own.
    pub fn status(&self) -> StatusCode {
        match self.why {
            RefusalCause::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

impl BindingLimit<'_> {
    /// Less `remaining ÷ cost`, compared without dividing. A request that costs nothing yet will cost a unit.
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        let cost = |limit: &Self| u128::from(limit.cost.units().max(1));
        u128::from(self.decision.remaining) * cost(other) < u128::from(other.decision.remaining) * cost(self)
    }
}
