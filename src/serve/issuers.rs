//! The issuers of tokens whose keys the control thread fetches.

use std::sync::{Arc, Weak};

use crate::auth::issuer::Issuer;
use crate::plan::Plan;
use crate::plan::auth::{Auth, AuthMethod};

/// The issuers of the active plan.
#[derive(Debug, Default)]
pub(super) struct Issuers(Vec<Weak<Issuer>>);

impl Issuers {
    /// Begins to fetch the keys of issuers that are new in `plan`. Needs the control thread's runtime around it.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        self.0.retain(|issuer| issuer.strong_count() > 0);
        for issuer in plan.auths.iter().filter_map(|auth| auth.tokens()?.issuer()) {
            if !self.0.iter().any(|known| known.as_ptr() == Arc::as_ptr(issuer)) {
                self.0.push(Arc::downgrade(issuer));
                tokio::spawn(Issuer::keep_fetching(Arc::downgrade(issuer)));
            }
        }
    }
}

/// Issuers that are in `last`, too, keep the keys that were fetched, and files of users that have not changed the passwords
/// that were good lately.
pub(super) fn keep(plan: &mut Plan, last: &Plan) {
    keep_passwords(plan, last);
    let known: Vec<_> = last.auths.iter().filter_map(|auth| auth.tokens()?.issuer()).collect();
    for auth in &mut plan.auths {
        // A plan that is not in force yet has the only reference.
        if let AuthMethod::Tokens(tokens) = &mut auth.method
            && let Some(tokens) = Arc::get_mut(tokens)
        {
            known.iter().for_each(|issuer| tokens.adopt_issuer(issuer));
        }
    }
}

fn keep_passwords(plan: &mut Plan, last: &Plan) {
    for auth in &mut plan.auths {
        let known = last.auths.iter().find(|known| known.name == auth.name).and_then(Auth::passwords);
        if let (AuthMethod::Passwords(passwords), Some(known)) = (&mut auth.method, known)
            && passwords.users() == known.users()
        {
            *passwords = Arc::clone(known);
        }
    }
}
