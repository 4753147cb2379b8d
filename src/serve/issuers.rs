//! The issuers of tokens whose keys the control thread fetches.

use std::sync::{Arc, Weak};

use crate::auth::issuer::Issuer;
use crate::auth::runtime::AuthState;

/// The issuers of the active plan.
#[derive(Debug, Default)]
pub(super) struct Issuers(Vec<Weak<Issuer>>);

impl Issuers {
    /// Begins to fetch the keys of issuers that are new among these. Needs the control thread's runtime around it.
    pub(super) fn adopt(&mut self, auths: &[AuthState]) {
        self.0.retain(|issuer| issuer.strong_count() > 0);
        for issuer in auths.iter().filter_map(AuthState::issuer) {
            if !self.0.iter().any(|known| known.as_ptr() == Arc::as_ptr(issuer)) {
                self.0.push(Arc::downgrade(issuer));
                tokio::spawn(Issuer::keep_fetching(Arc::downgrade(issuer)));
            }
        }
    }
}
