//! What the limits of a request rule: by what the process knows, and by what the store decides.

use crate::plan::Mode;
use crate::plan::admission::{Admission, AdmissionDecision, BanRefusal, LimitCheck, Refusal, RequestCharges};
use crate::plan::decision::RequestVerdict;
use crate::plan::reject_reason::RejectReason;
use crate::store::{Known, Outcome};

/// What the limits of a phase rule.
#[derive(Debug)]
pub enum Ruling<'p> {
    /// A ban refuses the request. `begun`: this refusal has begun it, so that the limits were asked.
    Banned {
        /// The refusal.
        ban: BanRefusal<'p>,
        /// Whether this refusal has begun the ban.
        begun: bool,
    },
    /// A part of a key is missing, has several values, or is in a body that cannot be read: no limit was asked.
    Unkeyed(Refusal<'p>),
    /// A limit with `on_error = "deny"` could not be checked.
    Unavailable,
    /// The limits decide.
    Decided(Admission<'p>),
}

impl<'p> Ruling<'p> {
    /// Whether the limits admit the request.
    #[inline]
    pub fn admits(&self) -> bool {
        matches!(self, Self::Decided(Admission { decision: AdmissionDecision::Admit(_), .. }))
    }

    /// What follows for the request.
    #[inline]
    pub fn verdict(self) -> RequestVerdict<'p> {
        match self {
            Self::Banned { ban: BanRefusal { refusal, tightest, .. }, .. } => {
                RequestVerdict::Refused(refusal, Some(tightest))
            }
            Self::Unkeyed(refusal) => RequestVerdict::Refused(refusal, None),
            Self::Unavailable => RequestVerdict::Early(RejectReason::unavailable().into()),
            Self::Decided(Admission { decision, tightest }) => match decision {
                AdmissionDecision::Admit(delay) => RequestVerdict::Admitted(delay, tightest),
                AdmissionDecision::Refuse(refusal) => RequestVerdict::Refused(refusal, tightest),
            },
        }
    }
}

impl<'p> RequestCharges<'p> {
    /// What is ruled without the store: by a ban, or since a part of a key is missing. `None`: the store has to be asked.
    #[inline]
    pub fn rule_unasked(&self, known: Known<'_>) -> Option<Ruling<'p>> {
        if !known.bans.is_empty()
            && let Some(ruling) = self.ban(known)
        {
            return Some(ruling);
        }
        self.missing().map(Ruling::Unkeyed)
    }

    /// The ban that refuses the request. One that this request begins counts from the decision, which comes after the wait
    /// for a place.
    #[cold]
    pub(super) fn ban(&self, known: Known<'_>) -> Option<Ruling<'p>> {
        let ban = self.banned(known.bans, known.now)?.not_before(known.wait(&self.charges));
        Some(Ruling::Banned { ban, begun: false })
    }

    /// Whether an automatic ban of a shadow limit is in force.
    #[inline]
    pub fn is_banned_in_shadow(&self, check: &LimitCheck<'_>, known: Known<'_>) -> bool {
        let may_be = check.mode == Mode::Shadow && check.limit.ban.is_some() && !check.shares_address;
        if !may_be || known.bans.is_empty() {
            return false;
        }
        let key_hash = self.key_hash(check);
        key_hash.is_some_and(|key_hash| {
            known.bans.until(check.limit.banned_in_shadow(key_hash), known.now).is_some()
        })
    }

    /// What is ruled by the store's decision.
    #[inline]
    pub fn rule(&self, outcome: &Outcome, known: Known<'_>) -> Ruling<'p> {
        if outcome.banned
            && let Some(ban) = self.ban_of_store(outcome, known)
        {
            return Ruling::Banned { ban, begun: !outcome.decisions.is_empty() };
        }
        match outcome.unavailable {
            true => Ruling::Unavailable,
            false => Ruling::Decided(self.decide(outcome)),
        }
    }

    /// The refusal because of a ban that the store has told of.
    #[cold]
    fn ban_of_store(&self, outcome: &Outcome, known: Known<'_>) -> Option<BanRefusal<'p>> {
        let ban = self.banned(known.bans, known.now);
        let ban = ban.map(|ban| ban.not_before(known.wait(&self.charges)));
        ban.or_else(|| outcome.decisions.is_empty().then(|| self.banned_until_known(known.now)).flatten())
    }
}
