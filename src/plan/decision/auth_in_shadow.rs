//! Auths in shadow: a request that they would refuse goes on.

use super::{DecisionObserver, Need, RequestDecision};
use crate::plan::Mode;
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialFault};
use crate::plan::reject_reason::RejectReason;
use crate::store::Known;

impl<'p> RequestDecision<'p, '_> {
    /// Whether the auths of the route refuse no request.
    pub(super) fn is_in_shadow(&self) -> bool {
        self.request.route.auth.as_ref().is_some_and(|auth| auth.mode == Mode::Shadow)
    }

    /// The auths would have refused the request, which goes on as that of its consumer, or as anonymous.
    #[cold]
    pub(super) fn refused_in_shadow(
        &mut self,
        failure: AuthFailure,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.request.shadow_failure = Some(failure);
        self.body_or_limits(known, observer)
    }

    /// The credential cannot be verified at the moment.
    #[cold]
    pub fn unverified(
        &mut self,
        auth: AuthIndex,
        reason: RejectReason,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        if self.is_in_shadow() {
            let failure = AuthFailure { auth, fault: CredentialFault::Unverified };
            return self.refused_in_shadow(failure, known, observer);
        }
        self.reject(reason)
    }
}
