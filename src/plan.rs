//! The compiled plan: the meaning of `gateway.toml`. `config` builds it, `proxy` runs it.
//!
//! Names are indices here, and texts are types. For example, `limits = ["per-client"]` of a route is a [`LimitUse`] with the
//! index of that limit and the cost of a request, and `rate = "10/s"` of the limit is an algorithm whose parameters are
//! units and microseconds. [`decision`] is the one machine that decides a request by all this.
//!
//! It is data: a reload replaces it as a whole, and nothing in it ever changes. What is learned while it runs is elsewhere:
//! counters in the store, credentials in [`AuthRuntime`](crate::auth::runtime::AuthRuntime).

pub mod action;
pub mod admin;
pub mod admission;
mod assemble;
pub mod auth;
mod batch;
pub mod certificates;
pub mod compression;
pub mod connections;
pub mod cors;
pub mod cost;
pub mod decision;
pub mod decisions;
pub mod descriptors;
pub mod early_response;
pub mod health_check;
mod key_share;
mod limit;
pub mod log;
pub mod loop_mark;
pub mod mirror;
mod overridden;
mod peer;
pub mod policy;
mod ratelimit;
mod reject;
pub mod reject_reason;
pub mod requirement;
pub mod reservation;
pub mod resolve;
pub mod seen_request;
mod server;
pub mod split;
pub mod split_cookie;
mod statuses;
pub mod sticky;
pub mod target;
pub mod template;
mod trace;
pub mod trial;
mod upstream;

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use crate::acme::settings::AcmeSettings;
use crate::http1::head_writer::HeaderPair;
use crate::labels::labels;
use crate::limit::Algorithm;
use crate::limit::fair_queue::Priority;
use crate::limit::units::Micros;
use crate::measure::JsonPointer;
use crate::route::client::AddressRules;
use crate::route::content::DEFAULT_MAX_CONTENT;
use crate::route::exemptions::Exemptions;
use crate::route::key::{Key, Part};
use crate::route::pattern::PathMatcher;
use crate::route::tier_map::TierMap;
use crate::route::{Conditions, MatchedRequest, RouteIndex, RouteRequest, RouteTable};
use crate::store::redis::settings as redis;
use crate::store::usage::UsageSettings;
use crate::store::{OnError, ParamsId, SharedKeyInfo};
use action::{ErrorPages, RouteAction};
use admin::Admin;
use assemble::Derived;
use compression::Compression;
use cost::CostRule;
use decisions::DecisionService;
use descriptors::DescriptorRules;
use log::Log;
use mirror::Mirror;
use overridden::OverriddenPolicies;
use target::TargetTemplate;
use template::HeaderTemplate;
use trial::Trial;

pub use assemble::PlanSections;
pub use batch::BatchRule;
pub use limit::{BanCounter, KeyBan, LimitBan};
pub use ratelimit::{RatelimitHeaders, RatelimitPolicies};
pub use reject::Reject;
pub use server::{Listener, ListenerRole, ListenerTls, RequestIds, Server};
pub use statuses::StatusSet;
pub use trace::Trace;
pub use upstream::{
    Affinity, Backend, Balance, BreakerRule, Eject, Endpoint, MaxConnections, Protocol, ProxyProtocolVersion,
    Retry, Upstream,
};

/// The whole plan. Indices inside it are always valid.
#[derive(Debug)]
pub struct Plan {
    /// `[server]`.
    pub server: Server,
    /// `[admin]`, if any.
    pub admin: Option<Admin>,
    /// `[decisions]`, if any.
    pub decisions: Option<DecisionService>,
    /// `[acme]`, if any.
    pub acme: Option<Arc<AcmeSettings>>,
    /// `[store]`.
    pub store: StoreSettings,
    /// `[log]`.
    pub log: Log,
    /// `[trace]`, if any: without it no request is traced.
    pub trace: Option<Arc<Trace>>,
    /// `[limits.*]` in file order.
    pub limits: Vec<Limit>,
    /// `[auth.*]` in file order.
    pub auths: Vec<auth::Auth>,
    /// `[upstreams.*]` in file order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// `[[routes]]` in file order, and then those of [`RouteAction::Decide`], which take no request.
    pub routes: Vec<Route>,
    /// `[[descriptors]]`.
    pub descriptors: DescriptorRules,
    /// The routes' conditions, compiled for lookup.
    pub table: RouteTable,
    /// `[errors]`.
    pub errors: ErrorPages,
    derived: Derived,
    overridden: OverriddenPolicies,
}

/// A limit's index in [`Plan::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitIndex(pub usize);

/// A tier's index in [`Limit::tiers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TierIndex(pub usize);

/// An upstream's index in [`Plan::upstreams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamIndex(pub usize);

/// `[store]`.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The hard bound on entries of the memory store.
    pub max_keys: usize,
    /// `backend = "redis"`: the shared store. While it is unavailable, the memory store goes on counting.
    pub shared: Option<Arc<redis::RedisSettings>>,
    /// `secret`, if it is written: of the names of shared counters, and of cookies that name servers and upstreams.
    pub secret: Option<redis::RedisPassword>,
    /// `snapshot`: the file that the counters in memory are written to, if any.
    pub snapshot: Option<SnapshotSettings>,
}

/// Where and how often the counters in memory are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// `snapshot`.
    pub file: PathBuf,
    /// `snapshot_interval`: 1 s to an hour.
    pub interval: Micros,
}

/// `[limits.NAME]`.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity for bans, overrides and the share of the store: [`policy::limit_identity`].
    pub identity: u128,
    /// One per rate; at least one.
    pub policies: Vec<Policy>,
    /// The policies of consumers' tiers, by name.
    pub tiers: Vec<Tier>,
    /// Where the tier of a request stands, if it is not that of its consumer.
    pub mapped_tier: Option<MappedTier>,
    /// The ban of keys that are refused too often, if any.
    pub ban: Option<LimitBan>,
    /// The key that is limited.
    pub key: Key,
    /// The key among whose values the places and the queue are divided, if they are.
    pub share_by: Option<Key>,
    /// The requests that are exempt.
    pub exempt: Exemptions,
    /// Refuse, or only count.
    pub mode: Mode,
    /// The share of keys for which it is enforced, if not all.
    pub trial: Option<Trial>,
    /// The rule for when a shared store is unavailable.
    pub on_error: OnError,
    /// The form of a refusal, if not the default.
    pub reject: Option<Arc<Reject>>,
    /// The most that is added to `retry-after` of a refusal, at random.
    pub retry_jitter: Option<Micros>,
    /// The most entries of the memory store that its counters hold together, if they have a bound of their own.
    pub max_keys: Option<NonZeroU64>,
    /// Whether admin views show key values unmasked.
    pub reveal: bool,
    /// Charged before a credential is looked at or a service is asked, apart from the other limits.
    pub before_auth: bool,
    /// The names of consumers and their units are kept, window by window.
    pub usage: Option<UsageSettings>,
}

/// `tier` of a limit: the tier of a request by a part of it.
#[derive(Clone, Debug)]
pub struct MappedTier {
    /// The name of the map.
    pub name: Arc<str>,
    /// The tiers.
    pub map: Arc<TierMap>,
    /// The part whose value is looked up.
    pub part: Part,
}

/// The policies of a limit for the consumers of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: Box<str>,
    /// One per rate; none if the tier is unlimited. Those with a period of the limit have the identities of the limit's: a
    /// consumer that moves to another tier keeps its counters, which are converted.
    pub policies: Vec<Policy>,
    /// The weight of its consumers, where the limit divides by weight.
    pub weight: NonZeroU32,
}

/// One rate of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name in responses: the limit's, or with several rates `NAME:RATE` (`per-client:100/min`).
    pub name: Arc<str>,
    /// Names limit, algorithm, key and the policy's index: a reload keeps its counters while this is unchanged.
    pub shared_key: SharedKeyInfo,
    /// The algorithm with its parameters.
    pub algorithm: Algorithm,
    /// The id of its parameters in the store.
    pub params: ParamsId,
    /// `ratelimit-policy` and `ratelimit` (draft-ietf-httpapi-ratelimit-headers), up to the remaining number.
    pub standard: HeaderPair,
    /// `x-ratelimit-limit` and `x-ratelimit-remaining`, up to the same.
    pub legacy: HeaderPair,
}

labels! {
    /// Refuse, or only count.
    pub enum Mode {
        /// Refuse.
        Enforce = "enforce",
        /// Decide, count, log, but forward.
        Shadow = "shadow",
    }
}

/// `[[routes]]`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// The names of the sets that it has keys of, in the order in which they are joined.
    pub sets: Vec<Arc<str>>,
    /// The conditions under which it matches.
    pub conditions: Conditions,
    /// What it does with an admitted request.
    pub action: RouteAction,
    /// The route's cost.
    pub cost: CostRule,
    /// The limits that apply, in file order.
    pub limits: Vec<LimitUse>,
    /// From the end of the request to the response head.
    pub timeout: Duration,
    /// Maximum silence within a response body.
    pub read_timeout: Duration,
    /// Maximum silence of an upgraded connection, in both directions.
    pub tunnel_timeout: Duration,
    /// The longest time of an exchange, the tunnel included; `None`: no bound.
    pub max_duration: Option<Duration>,
    /// Maximum bytes of a request body; `None`: no limit.
    pub max_body_bytes: Option<u64>,
    /// The change of the path before forwarding; `None`: it is forwarded as the client spelled it.
    pub path_edit: Option<PathEdit>,
    /// The copies of its requests for another upstream; `None`: there are none.
    pub mirror: Option<Box<Mirror>>,
    /// Edits of the request's headers.
    pub request_headers: HeaderEdits,
    /// Edits of the response's headers.
    pub response_headers: HeaderEdits,
    /// The redirect of some requests, before they are charged; `None`: all are served.
    pub redirect: Option<Redirect>,
    /// The sites with scripts that may read responses; `None`: left to the backend.
    pub cors: Option<Box<cors::Cors>>,
    /// Which responses of its upstream are compressed; `None`: none.
    pub compression: Option<Arc<Compression>>,
    /// The form of a refusal; overrides the limit's.
    pub reject: Option<Arc<Reject>>,
    /// The clients that may send requests.
    pub addresses: AddressRules,
    /// Whether the backend gets the client's certificate (RFC 9440).
    pub forward_client_cert: bool,
    /// The credentials that it asks for; `None`: none.
    pub auth: Option<auth::RouteAuth>,
    /// What a JSON list in the body is.
    pub batch: BatchRule,
    /// Whether one of its limits counts by a value in the body, or by calls.
    pub reads_body: bool,
    /// The maximum size of a body that is read for that, bytes.
    pub max_key_body: usize,
    /// The members of JSON bodies that they count by.
    pub json_pointers: Vec<JsonPointer>,
    /// Whether some of them are charged before a credential is looked at.
    pub limits_before_auth: bool,
    /// Whether some of them count by the upstream.
    pub counts_by_upstream: bool,
    /// Which of the requests that wait for a place are first.
    pub priority: Priority,
}

impl Route {
    /// The limits of calls about requests that others forward: it takes no request itself.
    pub fn of_calls(name: Arc<str>, cost: CostRule, limits: Vec<LimitUse>) -> Self {
        let conditions = Conditions {
            hosts: Vec::new(),
            path: PathMatcher::root(),
            methods: Vec::new(),
            values: Vec::new(),
            merge_slashes: true,
        };
        Self { cost, limits, ..Self::bare(name, conditions, RouteAction::Decide) }
    }

    /// A route to the first upstream with nothing beside its conditions, for tests.
    #[cfg(test)]
    pub fn plain(name: &str, conditions: Conditions) -> Self {
        Self::bare(name.into(), conditions, RouteAction::Forward(UpstreamIndex(0)))
    }

    /// A route with nothing beside its conditions.
    fn bare(name: Arc<str>, conditions: Conditions, action: RouteAction) -> Self {
        let minute = Duration::from_secs(60);
        Self {
            name,
            sets: Vec::new(),
            conditions,
            action,
            cost: CostRule::Free,
            limits: Vec::new(),
            timeout: minute,
            read_timeout: minute,
            tunnel_timeout: minute,
            max_duration: None,
            max_body_bytes: None,
            path_edit: None,
            mirror: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            redirect: None,
            cors: None,
            compression: None,
            reject: None,
            addresses: AddressRules::default(),
            forward_client_cert: false,
            auth: None,
            batch: BatchRule::default(),
            reads_body: false,
            max_key_body: DEFAULT_MAX_CONTENT,
            json_pointers: Vec::new(),
            limits_before_auth: false,
            counts_by_upstream: false,
            priority: Priority::default(),
        }
    }
}

/// A change of the path before a request is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEdit {
    /// `strip_prefix`: these segments are removed from its front.
    StripPrefix(Box<str>),
    /// `rewrite`: it is replaced.
    Rewrite(TargetTemplate),
}

/// A redirect of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Requests without TLS are redirected to https.
    Https,
}

/// A limit as a route uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// The limit.
    pub limit: LimitIndex,
    /// The cost of a request for this limit.
    pub cost: CostRule,
}

/// Edits of headers: first removed, then set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Replaced by this single value.
    pub set: Vec<(HeaderName, HeaderTemplate)>,
    /// Removed.
    pub remove: Vec<HeaderName>,
}

impl HeaderEdits {
    /// Whether this header is removed or set.
    #[inline]
    pub fn touches(&self, name: &[u8]) -> bool {
        // Most routes edit nothing.
        !(self.remove.is_empty() && self.set.is_empty()) && self.has(name)
    }

    /// Sets these headers, too, but for those that are edited already.
    pub fn set_others(&mut self, others: &[(HeaderName, HeaderTemplate)]) {
        let others = others.iter().filter(|(name, _)| !self.touches(name.as_str().as_bytes()));
        let others: Vec<_> = others.cloned().collect();
        self.set.extend(others);
    }

    #[inline(never)]
    fn has(&self, name: &[u8]) -> bool {
        let is_same = |edited: &HeaderName| edited.as_str().as_bytes().eq_ignore_ascii_case(name);
        self.remove.iter().any(is_same) || self.set.iter().any(|(edited, _)| is_same(edited))
    }
}

impl Plan {
    /// The route at `index`.
    pub fn route(&self, index: RouteIndex) -> &Route {
        &self.routes[index.0]
    }

    /// The routes with a regular expression, in the order in which these are tried.
    pub fn regex_routes(&self) -> impl Iterator<Item = (RouteIndex, &Route)> {
        let routes = (0..).map(RouteIndex).zip(&self.routes);
        routes.filter(|(_, route)| route.conditions.path.is_regex())
    }

    /// The routes that take requests.
    pub fn taking_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| !matches!(route.action, RouteAction::Decide))
    }

    /// The limit at `index`.
    pub fn limit(&self, index: LimitIndex) -> &Limit {
        &self.limits[index.0]
    }

    /// The limit of this name.
    pub fn limit_named(&self, name: &str) -> Option<LimitIndex> {
        self.limits.iter().position(|limit| *limit.name == *name).map(LimitIndex)
    }

    /// The upstream at `index`.
    pub fn upstream(&self, index: UpstreamIndex) -> &Arc<Upstream> {
        &self.upstreams[index.0]
    }
}

impl Route {
    /// Whether it requires more of a consumer than a credential.
    #[inline]
    pub fn requires(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| !auth.requirements.is_empty())
    }

    /// A request that the route matched.
    #[inline]
    pub fn matched<'r>(&'r self, request: &'r RouteRequest<'r>) -> MatchedRequest<'r> {
        request.matched_by(&self.name, self.conditions.merge_slashes)
    }

    /// The form of a refusal by `limit` on this route, if not the default: the route's setting overrides the limit's.
    pub fn reject_of<'p>(&'p self, limit: &'p Limit) -> Option<&'p Reject> {
        self.reject.as_deref().or(limit.reject.as_deref())
    }
}
