//! What is left under a policy, for an answer in JSON.

use std::sync::Arc;

/// What is left under a policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicyNumbers {
    pub(crate) name: Arc<str>,
    pub(crate) quota: u64,
    pub(crate) remaining: u64,
    /// Seconds until more is left; of a refusal, until the same is admitted. `None`: not known.
    pub(crate) reset: Option<u64>,
}
