//! Notes what refuses nothing, but would have: limits and auths in shadow.

use std::rc::Rc;

use super::request_context::RequestContext;
use crate::plan::Limit;
use crate::plan::auth::{AuthFailure, NamedConsumer};
use crate::telemetry::metrics::AuthResult;

impl RequestContext {
    /// Notes a limit in shadow that would have refused the request.
    #[cold]
    pub(super) fn note_shadow(&mut self, limit: &Limit) {
        self.add_shadow(&[&limit.name]);
    }

    /// Counts a request that an auth in shadow would have refused, and notes it for the log: `auth.NAME:ERROR`.
    #[cold]
    pub(super) fn refused_in_shadow(
        &mut self,
        consumer: Option<NamedConsumer<'_>>,
        AuthFailure { auth, fault }: AuthFailure,
    ) {
        if let Some(named) = consumer {
            self.note_consumer(named.consumer);
        }
        self.plan.metrics.auth(auth, AuthResult::ShadowRefused);
        let plan = Rc::clone(&self.plan);
        self.add_shadow(&["auth.", &plan.auth(auth).name, ":", fault.error()]);
    }

    fn add_shadow(&mut self, parts: &[&str]) {
        if let Some(record) = &mut self.log.record {
            let shadow = &mut record.decision.shadow;
            if !shadow.is_empty() {
                shadow.push(',');
            }
            shadow.extend(parts.iter().copied());
        }
    }
}
