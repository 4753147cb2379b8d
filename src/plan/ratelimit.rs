//! The rate-limit headers of responses: which ones, and the policies that they show.

use crate::labels::labels;

labels! {
    /// The rate-limit headers of responses.
    pub enum RatelimitHeaders {
        /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers.
        Standard = "standard",
        /// `x-ratelimit-limit`, `-remaining`, `-reset`.
        Legacy = "legacy",
        /// Both.
        Both = "both",
        /// `x-ratelimit-limit-requests`, `-remaining-tokens` and so on, as OpenAI's API has them.
        OpenAi = "openai",
        /// None.
        Off = "off",
    }
}

labels! {
    /// The policies that `ratelimit-policy` and `ratelimit` list.
    pub enum RatelimitPolicies {
        /// The binding one.
        Tightest = "tightest",
        /// Every enforced one.
        All = "all",
    }
}

impl RatelimitHeaders {
    /// Whether the standard headers are among them.
    pub fn has_standard(self) -> bool {
        matches!(self, Self::Standard | Self::Both)
    }

    /// Whether the `x-ratelimit-*` headers are among them.
    pub fn has_legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both)
    }
}
