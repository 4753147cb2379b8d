//! `[auth.*]`: the consumer of a request, named by a credential.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::RequestCharges;
use super::{LimitIndex, Plan, Route};
use crate::auth::forward::{ForwardAuth, ServiceAnswer};
use crate::auth::jwt::{self, TokenFault};
use crate::auth::password_lanes::LaneTurn;
use crate::auth::passwords::{PasswordCheck, PasswordVerifier, WrongPassword};
use crate::auth::tokens::{TokenVerification, TokenVerifier};
use crate::limit::units::Timestamp;
use crate::route::RouteRequest;
use crate::route::consumers::{Consumer, Consumers};
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
}

/// How a credential is checked.
#[derive(Clone, Debug)]
pub enum AuthMethod {
    /// `api-key`: it is looked up.
    ApiKeys(ApiKeys),
    /// `jwt`: its signature is verified.
    Tokens(Arc<TokenVerifier>),
    /// `basic`: the hash of its password is computed.
    Passwords(Arc<PasswordVerifier>),
    /// `forward`: a service decides.
    Forward(Arc<ForwardAuth>),
}

/// API keys of a file.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// The consumers by key.
    pub consumers: Arc<Consumers>,
    /// A hash of their file.
    pub version: [u8; 32],
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
    pub fn forward(&self) -> Option<&Arc<ForwardAuth>> {
        match &self.method {
            AuthMethod::Forward(forward) => Some(forward),
            _ => None,
        }
    }

    /// The verifier of its passwords, if it is of this type.
    pub fn passwords(&self) -> Option<&Arc<PasswordVerifier>> {
        match &self.method {
            AuthMethod::Passwords(passwords) => Some(passwords),
            _ => None,
        }
    }

    /// The verifier of its tokens, if it is of this type.
    pub fn tokens(&self) -> Option<&Arc<TokenVerifier>> {
        match &self.method {
            AuthMethod::Tokens(tokens) => Some(tokens),
            _ => None,
        }
    }
}

impl AuthMethod {
    /// The consumer of a credential that was verified before, and is remembered. `None`: it has to be verified.
    fn remembered(&self, credential: &[u8], now: Timestamp) -> Option<Arc<Identity>> {
        match self {
            Self::ApiKeys(_) | Self::Forward(_) => None,
            Self::Tokens(tokens) => tokens.find(credential, now),
            Self::Passwords(passwords) => passwords.find(credential, now),
        }
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
}

/// The result of verifying a request's credential, which the caller of [`Plan::authenticate`] keeps for as long as the
/// request lasts.
#[derive(Debug)]
pub struct VerifiedCredential {
    /// When the request came.
    now: Timestamp,
    /// No credential is looked up or verified.
    is_withheld: bool,
    /// Empty until it is known.
    result: OnceCell<(AuthIndex, Result<Arc<Identity>, VerificationFault>)>,
    /// The client's next password is checked once this one was charged.
    turn: RefCell<Option<LaneTurn>>,
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

/// A credential to verify.
#[derive(Debug)]
pub enum CredentialVerification {
    /// A request that the service of this auth is asked about.
    Forward(Arc<ForwardAuth>),
    /// A token.
    Token(TokenVerification),
    /// A password.
    Password(PasswordCheck),
}

impl VerifiedCredential {
    /// Nothing is known of the credential of a request that came at `now`.
    pub fn unknown(now: Timestamp) -> Self {
        Self { now, is_withheld: false, result: OnceCell::new(), turn: RefCell::default() }
    }

    /// Nothing may become known of the credential, not even whether an API key is known.
    pub fn withheld(now: Timestamp) -> Self {
        Self { is_withheld: true, ..Self::unknown(now) }
    }

    /// When the request came.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Tells the result for this auth. Only the first counts.
    pub fn set(&self, auth: AuthIndex, result: Result<Arc<Identity>, VerificationFault>) {
        self.result.get_or_init(|| (auth, result));
    }

    /// Whether there is a result.
    pub fn is_known(&self) -> bool {
        self.result.get().is_some()
    }

    /// The answer of a service that has refused the request.
    pub fn answer(&self) -> Option<Arc<ServiceAnswer>> {
        match self.result.get() {
            Some((_, Err(VerificationFault::Answered(answer)))) => Some(Arc::clone(answer)),
            _ => None,
        }
    }

    /// Why the credential was refused, if it was.
    pub fn fault(&self) -> Option<VerificationFault> {
        self.result.get().and_then(|(_, result)| result.as_ref().err().cloned())
    }

    /// Fields for the backend that the service has answered with.
    pub fn fields(&self) -> &[GrantedField] {
        let identity = self.result.get().and_then(|(_, result)| result.as_ref().ok());
        identity.map_or(&[], |identity| &identity.fields)
    }

    /// The result for the auth of a service, without looking at what is remembered.
    fn decided(&self, auth: AuthIndex) -> Option<Result<&Identity, CredentialFault>> {
        let (known, result) = self.result.get()?;
        (*known == auth).then(|| match result {
            Ok(identity) => Ok(&**identity),
            Err(VerificationFault::Answered(_)) => Err(CredentialFault::Answered),
            Err(_) => Err(CredentialFault::Invalid),
        })
    }

    /// Keeps the client's turn until [`Self::end_turn`].
    pub fn hold_turn(&self, turn: LaneTurn) {
        self.turn.replace(Some(turn));
    }

    /// Ends the client's turn, if it has one.
    pub fn end_turn(&self) {
        self.turn.take();
    }

    /// The result for this auth. What was verified before is remembered.
    fn get(&self, auth: AuthIndex, method: &AuthMethod, credential: &[u8]) -> Option<Option<&Identity>> {
        if self.result.get().is_none() {
            self.set(auth, Ok(method.remembered(credential, self.now)?));
        }
        let (known, result) = self.result.get()?;
        (*known == auth).then(|| result.as_ref().ok().map(|identity| &**identity))
    }
}

/// Why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unauthenticated {
    /// It is refused.
    Failure(AuthFailure),
    /// Its credential has to be verified: see [`VerifiedCredential`].
    Unverified(AuthIndex),
}

/// Why a request has no consumer on a route that requires one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthFailure {
    /// The auth that decided; without a credential, the route's first.
    pub auth: AuthIndex,
    /// The fault of the credential.
    pub fault: CredentialFault,
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
}

/// A consumer, and the auth that named it.
#[derive(Clone, Copy, Debug)]
pub struct NamedConsumer<'p> {
    /// The auth.
    pub auth: AuthIndex,
    /// The consumer.
    pub consumer: Consumer<'p>,
}

/// What an access log tells of a request's credential: the log never has the credential itself.
#[derive(Clone, Copy, Debug)]
pub enum LoggedCredential<'p, 's> {
    /// Nothing: the request counts as anonymous.
    Unknown,
    /// The consumer, as each auth that has one of this name names it.
    Consumer(&'s [NamedConsumer<'p>]),
    /// It was refused; by this auth, if that is known.
    Refused(CredentialFault, Option<AuthIndex>),
}

impl<'p> LoggedCredential<'p, '_> {
    /// The consumer on a route that asks for a credential; `None`: it is anonymous, or not known to the route.
    ///
    /// # Errors
    ///
    /// The credential was refused.
    pub fn authenticate(self, route: &RouteAuth) -> Result<Option<NamedConsumer<'p>>, AuthFailure> {
        match (self, route.auths.first()) {
            (Self::Consumer(named), _) => {
                Ok(named.iter().find(|named| route.auths.contains(&named.auth)).copied())
            }
            (Self::Refused(fault, auth), Some(&first)) => {
                let auth = auth.filter(|auth| route.auths.contains(auth)).unwrap_or(first);
                Err(AuthFailure { auth, fault })
            }
            (Self::Refused(..) | Self::Unknown, _) => Ok(None),
        }
    }
}

impl CredentialFault {
    /// For the client.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Missing => "this route requires a credential",
            Self::Invalid => "the credential is not known",
            Self::Repeated => "there are several different credentials",
            Self::Answered => "the service has refused the request",
        }
    }

    /// For the access log.
    pub fn error(self) -> &'static str {
        match self {
            Self::Missing => "credential_missing",
            Self::Invalid => "credential_invalid",
            Self::Repeated => "credential_repeated",
            Self::Answered => "forward_auth",
        }
    }
}

impl Plan {
    /// The auth at `index`.
    pub fn auth(&self, index: AuthIndex) -> &Auth {
        &self.auths[index.0]
    }

    /// The consumer of a request; `None`: it is anonymous, which the route allows.
    ///
    /// # Errors
    ///
    /// The route requires a credential, the request carries a wrong one, or one that has to be verified first.
    pub fn authenticate<'p>(
        &'p self,
        route: &RouteAuth,
        request: &RouteRequest<'_>,
        verified: &'p VerifiedCredential,
    ) -> Result<Option<NamedConsumer<'p>>, Unauthenticated> {
        let failed = |auth, fault| Err(Unauthenticated::Failure(AuthFailure { auth, fault }));
        for &index in &route.auths {
            let auth = self.auth(index);
            if let AuthMethod::Forward(_) = auth.method {
                return match verified.decided(index) {
                    None => Err(Unauthenticated::Unverified(index)),
                    Some(Err(fault)) => failed(index, fault),
                    Some(Ok(identity)) if identity.name.is_empty() => Ok(None),
                    Some(Ok(identity)) => {
                        Ok(Some(NamedConsumer { auth: index, consumer: Consumer::verified(identity) }))
                    }
                };
            }
            let credential = match auth.source.find(request) {
                Credential::Missing => continue,
                Credential::Repeated => return failed(index, CredentialFault::Repeated),
                Credential::Single(credential) => credential,
            };
            if self.is_for_another(route, index, &credential) {
                continue;
            }
            if verified.is_withheld {
                return Err(Unauthenticated::Unverified(index));
            }
            let consumer = match &auth.method {
                AuthMethod::ApiKeys(keys) => keys.consumers.find(&credential),
                method => match verified.get(index, method, &credential) {
                    None => return Err(Unauthenticated::Unverified(index)),
                    Some(identity) => identity.map(Consumer::verified),
                },
            };
            return match consumer {
                Some(consumer) => Ok(Some(NamedConsumer { auth: index, consumer })),
                None => failed(index, CredentialFault::Invalid),
            };
        }
        match route.auths.first() {
            Some(&auth) if !route.optional => failed(auth, CredentialFault::Missing),
            _ => Ok(None),
        }
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

    /// Prepares to verify the credential of a request for this auth; `None`: it has none, or the auth verifies none.
    pub fn verification(
        &self,
        index: AuthIndex,
        request: &RouteRequest<'_>,
        now: Timestamp,
    ) -> Option<CredentialVerification> {
        let auth = self.auth(index);
        if let AuthMethod::Forward(forward) = &auth.method {
            return Some(CredentialVerification::Forward(Arc::clone(forward)));
        }
        let Credential::Single(credential) = auth.source.find(request) else { return None };
        match &auth.method {
            AuthMethod::ApiKeys(_) | AuthMethod::Forward(_) => None,
            AuthMethod::Tokens(tokens) => {
                Some(CredentialVerification::Token(tokens.prepare(&credential, now)))
            }
            AuthMethod::Passwords(passwords) => {
                Some(CredentialVerification::Password(passwords.prepare(&credential, now)))
            }
        }
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

    /// The `www-authenticate` header lines of a refusal.
    pub fn challenges(&self, route: &RouteAuth, failure: AuthFailure) -> String {
        let mut lines = String::new();
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
