//! `POST explain`, and `tollgate explain --json`.
//!
//! Both have the same fields. Without a running gateway, those that need its counters are `null`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::keys::PolicyAllowance;

/// The request to explain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainQuestion {
    /// `None`: `GET`.
    pub method: Option<String>,
    /// A URL, or a path.
    pub url: String,
    /// Headers by name.
    pub headers: Option<BTreeMap<String, HeaderValues>>,
    /// The address that connects; `None`: 127.0.0.1.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub ip: Option<IpAddr>,
    /// The name of the listener that it comes at; `None`: the first one.
    pub listener: Option<String>,
}

/// The value of a header, or the values of one that is repeated.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "the value of a header is neither a string nor a list of strings")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum HeaderValues {
    /// One.
    One(String),
    /// One for each line.
    Several(Vec<String>),
}

/// Why a request gets its route and its limits, and what they decide.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainReport {
    /// The request: `GET api.example.com/search?q=1`.
    pub request: String,
    /// The client's address.
    pub client: String,
    /// The network that stands for it in keys.
    pub network: String,
    /// How the client was identified.
    pub identified: String,
    /// The consumer that its credential names.
    pub consumer: Option<String>,
    /// The tier of the consumer.
    pub tier: Option<String>,
    /// The auth that named the consumer.
    pub auth: Option<String>,
    /// Why auths in shadow would have refused the request.
    pub shadow: Option<String>,
    /// The outcome as a word; `None`: counters decide, and are not known.
    pub verdict: Option<String>,
    /// The status of the gateway's own response.
    pub status: Option<u16>,
    /// Why the gateway responds before any limit, or why the credential is not verified.
    pub reason: Option<String>,
    /// The limit that refuses or delays.
    pub limit: Option<String>,
    /// Its wait in milliseconds.
    pub wait_ms: Option<u64>,
    /// When the wait ends.
    pub until: Option<f64>,
    /// The route, if it has one.
    pub route: Option<ExplainedRoute>,
    /// The descriptors of a call; `None`: it is a request.
    pub descriptors: Option<Vec<ExplainedDescriptor>>,
    /// The limits of the route, in file order; of a call those of its descriptors.
    pub limits: Vec<ExplainedLimit>,
    /// Other routes by name, with the reason why each was not chosen.
    pub others: Vec<(String, String)>,
    /// The number of further routes.
    pub untold: usize,
}

/// A descriptor of a call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedDescriptor {
    /// Its entries: `generic_key=search,remote_address=192.0.2.7`.
    pub entries: String,
    /// Its effect as a word: `charged`, `asked`, `reported`, or `unlimited` without a rule.
    pub standing: String,
    /// The hits that it is charged.
    pub hits: u64,
    /// The name of its rule.
    pub rule: Option<String>,
    /// Other rules by name, with the reason why each was not chosen.
    pub others: Vec<(String, String)>,
    /// The number of further rules.
    pub untold: usize,
}

/// The route of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedRoute {
    /// Its name.
    pub name: String,
    /// The sets that it has keys of, in the order in which they are joined.
    pub sets: Vec<String>,
    /// Its conditions by name, and why each holds.
    pub conditions: Vec<(String, String)>,
    /// The upstream; `None`, like the next two: the gateway itself responds.
    pub upstream: Option<String>,
    /// The edits that make the target another one than the request's.
    pub rewritten_by: Option<Vec<String>>,
    /// The target for the backend.
    pub forwarded: Option<String>,
    /// The mirror of the route, if it has one.
    pub mirror: Option<ExplainedMirror>,
    /// The response of a route that has no upstream.
    pub answer: Option<ExplainedResponse>,
    /// The URL that a request without TLS is redirected to.
    pub redirect: Option<String>,
}

/// The mirror of a route, and whether it gets a copy of the request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedMirror {
    /// The upstream that gets the copies.
    pub upstream: String,
    /// The share of callers whose requests are copied, from 0 to 1.
    pub share: f64,
    /// Whether the caller is one of them.
    pub copied: bool,
}

/// The response of a route that redirects or answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedResponse {
    /// The status.
    pub status: u16,
    /// The location of a redirect.
    pub location: Option<String>,
    /// The media type of a body.
    pub content_type: Option<String>,
}

/// A limit on a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedLimit {
    /// Its name.
    pub name: String,
    /// The descriptor that it is a limit of, as an index; `None`: it is one of a request.
    pub descriptor: Option<usize>,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// The share of keys for which it refuses, if not all.
    pub trial: Option<f64>,
    /// Its effect as a word: `charged`, `free`, `exempt`, `skipped`, `missing` or `repeated`.
    pub standing: String,
    /// The exemption, or the part of the key that is missing or has several values.
    pub detail: Option<String>,
    /// The units charged on admission.
    pub cost: u32,
    /// The number in the request that the cost was measured by.
    pub measured: Option<String>,
    /// How the cost is settled after the response.
    pub settled_by: Option<String>,
    /// The tier whose numbers apply.
    pub tier: Option<String>,
    /// `true`: the numbers are those of an override of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<bool>,
    /// `id:` and 32 hexadecimal digits.
    pub id: Option<String>,
    /// The values of the key's parts.
    pub key: Option<Vec<String>>,
    /// The key's parts, each with its value.
    pub parts: Vec<(String, Option<String>)>,
    /// The rule for requests without the key.
    pub missing: Option<String>,
    /// `admitted`, `delayed`, `refused` or `banned`.
    pub verdict: Option<String>,
    /// The rule of the limit while the shared store is unreachable: `local`, `allow` or `deny`; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<String>,
    /// The end of the key's ban.
    pub banned_until: Option<f64>,
    /// Whose share of its places or its queue the request takes: `consumer = acme, weight 4, priority high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The rule of its bans, as a sentence.
    pub ban: Option<String>,
    /// One for each policy.
    pub policies: Vec<ExplainedPolicy>,
    /// The policies in words.
    pub allows: Vec<String>,
}

/// The allowance of a key under one policy, in units.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedPolicy {
    /// In short form: `10/s`.
    pub policy: String,
    /// The whole allowance.
    pub quota: u64,
    /// The units in use; `None`: nothing is charged, like the next.
    pub used: Option<u64>,
    /// The units that remain.
    pub remaining: Option<u64>,
    /// Milliseconds until a request of this cost is admitted; `None`: never, or unknown.
    pub next_ms: Option<u64>,
    /// Milliseconds until the whole allowance is there; `None`: never, or unknown.
    pub full_ms: Option<u64>,
}

impl From<PolicyAllowance> for ExplainedPolicy {
    fn from(PolicyAllowance { policy, quota, used, remaining, next_ms, full_ms }: PolicyAllowance) -> Self {
        Self { policy, quota, used: Some(used), remaining: Some(remaining), next_ms, full_ms }
    }
}
