//! What is asked before a credential is checked that takes work to check: the limit on wrong credentials bounds that work.

use super::{DecisionObserver, FailureKind, LimitPhase, Need, RequestDecision};
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialFault};
use crate::plan::reject_reason::RejectReason;
use crate::store::{Decisions, Known, OnError, Unreachable};

/// What is needed before a credential is checked that takes work to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeCheck {
    /// Nothing: it is checked.
    Check,
    /// What the store would decide on a wrong one, without charging: [`RequestDecision::looked`].
    Look,
    /// It is not checked.
    Refuse(Need),
}

impl<'p> RequestDecision<'p, '_> {
    /// To check the credential for this auth takes work, which the limit on wrong credentials bounds.
    pub fn before_check(
        &mut self,
        auth: AuthIndex,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> BeforeCheck {
        if self.is_in_shadow() {
            return BeforeCheck::Check;
        }
        let failure = AuthFailure { auth, fault: CredentialFault::Invalid };
        let Some(charges) = self.failure_charges(failure) else { return BeforeCheck::Check };
        self.phase = LimitPhase::Failures(failure, FailureKind::Unchecked);
        self.request.charges = charges;
        self.request.charges.override_numbers(self.plan, known);
        match self.request.charges.rule_unasked(known) {
            Some(ruling) => BeforeCheck::Refuse(self.ruled_unasked(ruling, known, observer)),
            None => BeforeCheck::Look,
        }
    }

    /// What the store would decide on a wrong credential.
    pub fn looked(&mut self, decisions: Result<Decisions, Unreachable>) -> BeforeCheck {
        let charges = &self.request.charges;
        match decisions {
            Ok(decisions) => match charges.admits(&decisions.into()) {
                true => BeforeCheck::Check,
                false => BeforeCheck::Refuse(Need::Store),
            },
            Err(Unreachable) if charges.checks.iter().any(|check| check.limit.on_error == OnError::Deny) => {
                BeforeCheck::Refuse(self.reject(RejectReason::unavailable()))
            }
            Err(Unreachable) => BeforeCheck::Check,
        }
    }
}
