//! `[auth.*]`: the consumer of a request, named by a credential.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;

use super::admission::RequestCharges;
use super::requirement::ConsumerRequirement;
use super::{LimitIndex, Mode, Plan, Route};
use crate::auth::forward::{ForwardSettings, ServiceAnswer};
use crate::auth::htpasswd::Users;
use crate::auth::jwt::{self, TokenFault};
use crate::auth::method::{ApiKeys, AuthMethod};
use crate::auth::passwords::WrongPassword;
use crate::auth::runtime::{AuthState, CredentialVerification};
use crate::auth::tokens::TokenSettings;
use crate::limit::units::Timestamp;
use crate::route::RouteRequest;
use crate::route::consumers::Consumer;
use crate::route::credential::{Credential, CredentialSource, without_credentials};
use crate::route::identity::{GrantedField, Identity};
use crate::route::key::KeySecret;

/// An `[auth.NAME]`.
#[derive(Clone, Debug)]
pub struct Auth {
    /// Its name.
    pub name: Arc<str>,
    /// Where requests carry the credential.
    pub source: CredentialSource,
    /// How a credential is checked.
    pub method: AuthMethod,
    /// The value of `www-authenticate` for a request without a credential.
    pub challenge: Box<str>,
    /// The same for a request with a wrong one.
    pub challenge_invalid: Box<str>,
    /// The limit that is charged for each wrong credential. It counts by `ip` alone.
    pub failures: Option<LimitIndex>,
    /// Whether it refuses requests, or only tells which it would refuse.
    pub mode: Mode,
}

impl Auth {
    /// Its API keys, if it is of this type.
    pub fn api_keys(&self) -> Option<&ApiKeys> {
        match &self.method {
            AuthMethod::ApiKeys(keys) => Some(keys),
            _ => None,
        }
    }

    /// Its consumers, if they are known beforehand.
    pub fn consumers(&self) -> impl Iterator<Item = Consumer<'_>> {
        self.api_keys().into_iter().flat_map(|keys| keys.consumers.iter())
    }

    /// The service that decides, if it is of this type.
    pub fn forward(&self) -> Option<&Arc<ForwardSettings>> {
        match &self.method {
            AuthMethod::Forward(settings) => Some(settings),
            _ => None,
        }
    }

    /// Its users with their passwords, if it is of this type.
    pub fn passwords(&self) -> Option<&Arc<Users>> {
        match &self.method {
            AuthMethod::Passwords(users) => Some(users),
            _ => None,
        }
    }

    /// How its tokens are verified, if it is of this type.
    pub fn tokens(&self) -> Option<&Arc<TokenSettings>> {
        match &self.method {
            AuthMethod::Tokens(settings) => Some(settings),
            _ => None,
        }
    }
}

impl Auth {
    /// Writes the challenge to a token that does not suffice (RFC 6750 §3.1); other credentials have none.
    fn write_insufficient(&self, route: &RouteAuth, lines: &mut String) {
        if !self.challenge.starts_with("Bearer ") {
            return;
        }
        lines.extend(["www-authenticate: ", &self.challenge, ", error=\"insufficient_scope\""]);
        let scopes: Vec<_> = route.requirements.iter().filter_map(ConsumerRequirement::scope).collect();
        if !scopes.is_empty() {
            lines.extend([", scope=\"", &scopes.join(" "), "\""]);
        }
        lines.push_str("\r\n");
    }
}

/// An auth's index in [`Plan::auths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuthIndex(pub usize);

/// How a route asks for credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAuth {
    /// At least one; no two have the same source. The first whose credential a request carries decides.
    pub auths: SmallVec<[AuthIndex; 2]>,
    /// A request without a credential is admitted as anonymous.
    pub optional: bool,
    /// Whether the backend gets the credential.
    pub forwards_credentials: bool,
    /// That of all its auths. In shadow no request is refused: one that would be is admitted as anonymous.
    pub mode: Mode,
    /// What a consumer must be or have: all of these.
    pub requirements: Box<[ConsumerRequirement]>,
}

impl RouteAuth {
    /// The first requirement that the consumer does not meet. A requirement is met by no anonymous request.
    pub fn unmet(&self, consumer: Option<NamedConsumer<'_>>) -> Option<&ConsumerRequirement> {
        self.requirements.iter().find(|required| {
            !consumer.is_some_and(|NamedConsumer { consumer, .. }| required.is_met_by(consumer))
        })
    }

    /// The refusal of a consumer that is not what the route requires. A log does not tell the claims of a token: where it has
    /// not told of a refusal, the token had them.
    pub(super) fn insufficient(
        &self,
        consumer: Option<NamedConsumer<'_>>,
        is_logged: bool,
    ) -> Option<AuthFailure> {
        if is_logged && consumer.is_none_or(|named| named.consumer.is_verified()) {
            return None;
        }
        self.unmet(consumer)?;
        let auth = consumer.map_or_else(|| self.auths.first().copied(), |named| Some(named.auth))?;
        Some(AuthFailure { auth, fault: CredentialFault::Insufficient })
    }
}

/// What is known of a request's credential before anything is verified.
#[derive(Clone, Copy, Debug)]
pub enum CredentialCheck<'p> {
    /// The consumer that it names; `None`: the request is anonymous, which the route allows.
    Known(Option<NamedConsumer<'p>>),
    /// The request is refused.
    Refused(AuthFailure),
    /// The credential for this auth has to be verified, or its service asked.
    Pending(AuthIndex),
}

/// Why a credential was refused after it was verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationFault {
    /// The service has refused the request with this answer.
    #[error("the service has answered {}", .0.status)]
    Answered(Arc<ServiceAnswer>),
    /// That of a token.
    #[error("{0}")]
    Token(TokenFault),
    /// That of a password.
    #[error(transparent)]
    Password(#[from] WrongPassword),
}

impl VerificationFault {
    /// What it means for the request.
    pub fn credential_fault(&self) -> CredentialFault {
        match self {
            Self::Answered(_) => CredentialFault::Answered,
            Self::Token(_) | Self::Password(_) => CredentialFault::Invalid,
        }
    }
}

/// Why a request has no consumer on a route that requires one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthFailure {
    /// The auth that decided; without a credential, the route's first.
    pub auth: AuthIndex,
    /// The fault of the credential.
    pub fault: CredentialFault,
}

impl AuthFailure {
    /// The status of the refusal.
    pub fn status(self) -> StatusCode {
        match self.fault {
            CredentialFault::Repeated => StatusCode::BAD_REQUEST,
            CredentialFault::Insufficient => StatusCode::FORBIDDEN,
            CredentialFault::Missing | CredentialFault::Invalid | CredentialFault::Answered => {
                StatusCode::UNAUTHORIZED
            }
            CredentialFault::Unverified => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The fault of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialFault {
    /// There is none.
    Missing,
    /// It names no consumer.
    Invalid,
    /// There are several that differ.
    Repeated,
    /// The service has answered the request.
    Answered,
    /// Its consumer is not what the route requires.
    Insufficient,
    /// It cannot be verified at the moment.
    Unverified,
}

/// A consumer, and the auth that named it.
#[derive(Clone, Copy, Debug)]
pub struct NamedConsumer<'p> {
    /// The auth.
    pub auth: AuthIndex,
    /// The consumer.
    pub consumer: Consumer<'p>,
}

/// What a request's credential has told.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerIdentity<'p> {
    /// The consumer that it names; `None`: the request is anonymous.
    pub consumer: Option<NamedConsumer<'p>>,
    /// Further fields for the backend, from the service that has let the request through.
    pub granted: &'p [GrantedField],
}

impl CredentialFault {
    /// For the client.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Missing => "this route requires a credential",
            Self::Invalid => "the credential is not known",
            Self::Repeated => "there are several different credentials",
            Self::Answered => "the service has refused the request",
            Self::Insufficient => "the credential does not suffice for this route",
            Self::Unverified => "the credential cannot be verified at the moment",
        }
    }

    /// For the access log.
    pub fn error(self) -> &'static str {
        match self {
            Self::Missing => "credential_missing",
            Self::Invalid => "credential_invalid",
            Self::Repeated => "credential_repeated",
            Self::Answered => "forward_auth",
            Self::Insufficient => "insufficient_scope",
            Self::Unverified => "credential_unverified",
        }
    }
}

impl Plan {
    /// The auth at `index`.
    pub fn auth(&self, index: AuthIndex) -> &Auth {
        &self.auths[index.0]
    }

    /// The names and the methods of all auths, in file order.
    pub fn auth_methods(&self) -> impl Iterator<Item = (&Arc<str>, &AuthMethod)> {
        self.auths.iter().map(|auth| (&auth.name, &auth.method))
    }

    /// Looks for the credential of a request: the first auth of the route whose credential it carries decides.
    pub fn check_credential(&self, route: &RouteAuth, request: &RouteRequest<'_>) -> CredentialCheck<'_> {
        let refused = |auth, fault| CredentialCheck::Refused(AuthFailure { auth, fault });
        for &index in &route.auths {
            let auth = self.auth(index);
            if let AuthMethod::Forward(_) = auth.method {
                return CredentialCheck::Pending(index);
            }
            let credential = match auth.source.find(request) {
                Credential::Missing => continue,
                Credential::Repeated => return refused(index, CredentialFault::Repeated),
                Credential::Single(credential) => credential,
            };
            if self.is_for_another(route, index, &credential) {
                continue;
            }
            let AuthMethod::ApiKeys(keys) = &auth.method else { return CredentialCheck::Pending(index) };
            return match keys.consumers.find(&credential) {
                Some(consumer) => CredentialCheck::Known(Some(NamedConsumer { auth: index, consumer })),
                None => refused(index, CredentialFault::Invalid),
            };
        }
        match route.auths.first() {
            Some(&auth) if !route.optional => refused(auth, CredentialFault::Missing),
            _ => CredentialCheck::Known(None),
        }
    }

    /// The consumer that this auth has verified; `None`: a service admits the request without naming one.
    pub fn verified<'i>(&self, auth: AuthIndex, identity: &'i Identity) -> Option<NamedConsumer<'i>> {
        let is_anonymous = identity.name.is_empty() && self.auth(auth).forward().is_some();
        (!is_anonymous).then(|| NamedConsumer { auth, consumer: Consumer::verified(identity) })
    }

    /// Whether a credential is for another auth of the route that reads the same place: of API keys and tokens, a token is
    /// for the latter.
    fn is_for_another(&self, route: &RouteAuth, index: AuthIndex, credential: &[u8]) -> bool {
        let auth = self.auth(index);
        let mut others = route.auths.iter().filter(|other| **other != index).map(|other| self.auth(*other));
        let is_compact = jwt::is_compact(credential);
        others.any(|other| {
            other.source == auth.source
                && match (&auth.method, &other.method) {
                    (AuthMethod::ApiKeys(_), AuthMethod::Tokens(_)) => is_compact,
                    (AuthMethod::Tokens(_), AuthMethod::ApiKeys(_)) => !is_compact,
                    _ => false,
                }
        })
    }

    /// How the credential of a request for this auth is verified at `now`, by what the auth has learned; `None`: it has
    /// none, or the auth verifies none.
    pub fn verification(
        &self,
        (index, state): (AuthIndex, &AuthState),
        request: &RouteRequest<'_>,
        now: Timestamp,
    ) -> Option<CredentialVerification> {
        if let AuthState::Forward(service) = state {
            return Some(CredentialVerification::Forward(Arc::clone(service)));
        }
        let Credential::Single(credential) = self.auth(index).source.find(request) else { return None };
        state.verification(&credential, now)
    }

    /// The charges of a wrong credential; `None`: none is charged.
    pub fn failure_charges<'p>(
        &'p self,
        failure: AuthFailure,
        route: &'p Route,
        request: &RouteRequest<'_>,
        secret: &KeySecret,
    ) -> Option<RequestCharges<'p>> {
        let limit = self.auth(failure.auth).failures.filter(|_| failure.fault == CredentialFault::Invalid)?;
        Some(RequestCharges::of_failure(self.limit(limit), route, request, secret))
    }

    /// The limits on wrong credentials of a route's auths, each once.
    pub fn failure_limits(&self, route: &Route) -> impl Iterator<Item = LimitIndex> {
        let auths = route.auth.iter().flat_map(|auth| &auth.auths);
        let mut limits: SmallVec<[LimitIndex; 2]> = SmallVec::new();
        for limit in auths.filter_map(|auth| self.auth(*auth).failures) {
            if !limits.contains(&limit) {
                limits.push(limit);
            }
        }
        limits.into_iter()
    }

    /// What a limit counts that is for wrong credentials alone: `wrong API keys`. `None`: it counts requests.
    pub fn failures_of(&self, limit: LimitIndex) -> Option<&'static str> {
        let mut auths = self.auths.iter().filter(|auth| auth.failures == Some(limit));
        let first = auths.next()?.method.failures();
        let counts_requests = |route: &Route| route.limits.iter().any(|used| used.limit == limit);
        if self.routes.iter().any(counts_requests) {
            return None;
        }
        Some(if auths.all(|auth| auth.method.failures() == first) { first } else { "wrong credentials" })
    }

    /// The `www-authenticate` header lines of a refusal.
    pub fn challenges(&self, route: &RouteAuth, failure: AuthFailure) -> String {
        let mut lines = String::new();
        if failure.fault == CredentialFault::Insufficient {
            self.auth(failure.auth).write_insufficient(route, &mut lines);
            return lines;
        }
        for &index in &route.auths {
            let auth = self.auth(index);
            let is_it = index == failure.auth && failure.fault == CredentialFault::Invalid;
            let challenge = if is_it { &auth.challenge_invalid } else { &auth.challenge };
            lines.extend(["www-authenticate: ", challenge, "\r\n"]);
        }
        lines
    }

    /// Whether some auth reads its credential from the query: then paths are not logged as they came.
    pub fn hides_queries(&self) -> bool {
        self.auths.iter().any(|auth| matches!(auth.source, CredentialSource::Query(_)))
    }

    /// Cuts all credentials out of the query of a path or a URL.
    pub fn cut_credentials(&self, path: &mut String) {
        let Some((before, query)) = path.split_once('?') else { return };
        if let Some(rest) = without_credentials(query, self.auths.iter().map(|auth| &auth.source)) {
            let mark = if rest.is_empty() { "" } else { "?" };
            *path = format!("{before}{mark}{rest}");
        }
    }

    /// The places of credentials that the backend does not get, in the URL that `referer` names: those of all auths but the
    /// ones whose credentials the route forwards.
    pub fn hidden_sources<'p>(
        auths: &'p [Auth],
        route: Option<&'p RouteAuth>,
    ) -> impl Iterator<Item = &'p CredentialSource> + Clone {
        let shown = route.filter(|route| route.forwards_credentials).map_or(&[][..], |route| &route.auths);
        let hidden = auths.iter().enumerate().filter(|(index, _)| !shown.contains(&AuthIndex(*index)));
        hidden.map(|(_, auth)| &auth.source)
    }

    /// The tiers of the consumers with these names; of several auths the first with the name counts. It reads all
    /// names: not for requests.
    pub fn tiers_of(&self, names: &HashSet<String>) -> HashMap<String, &str> {
        let mut tiers = HashMap::new();
        for consumer in self.auths.iter().rev().flat_map(Auth::consumers) {
            if names.contains(consumer.name()) {
                tiers.insert(consumer.name().to_owned(), consumer.tier().unwrap_or_default());
            }
        }
        tiers
    }
}
