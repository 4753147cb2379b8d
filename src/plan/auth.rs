//! `[auth.*]`: the consumer of a request, named by a credential.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::RequestCharges;
use super::{LimitIndex, Plan, Route};
use crate::route::RouteRequest;
use crate::route::consumers::{Consumer, Consumers};
use crate::route::credential::{Credential, CredentialSource, without_credentials};
use crate::route::key::KeySecret;

/// An `[auth.NAME]`: API keys.
#[derive(Clone, Debug)]
pub struct Auth {
    /// Its name.
    pub name: Arc<str>,
    /// Where requests carry the key.
    pub source: CredentialSource,
    /// The consumers by key.
    pub consumers: Arc<Consumers>,
    /// A hash of their file.
    pub version: [u8; 32],
    /// The value of `www-authenticate` for a request without a key.
    pub challenge: Box<str>,
    /// The same for a request with a wrong key.
    pub challenge_invalid: Box<str>,
    /// The limit that is charged for each wrong key. It counts by `ip` alone.
    pub failures: Option<LimitIndex>,
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
        }
    }

    /// For the access log.
    pub fn error(self) -> &'static str {
        match self {
            Self::Missing => "credential_missing",
            Self::Invalid => "credential_invalid",
            Self::Repeated => "credential_repeated",
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
    /// The route requires a credential, or the request carries a wrong one.
    pub fn authenticate<'p>(
        &'p self,
        route: &RouteAuth,
        request: &RouteRequest<'_>,
    ) -> Result<Option<NamedConsumer<'p>>, AuthFailure> {
        for &auth in &route.auths {
            let Auth { source, consumers, .. } = self.auth(auth);
            let fault = match source.find(request) {
                Credential::Missing => continue,
                Credential::Repeated => CredentialFault::Repeated,
                Credential::Single(key) => match consumers.find(&key) {
                    Some(consumer) => return Ok(Some(NamedConsumer { auth, consumer })),
                    None => CredentialFault::Invalid,
                },
            };
            return Err(AuthFailure { auth, fault });
        }
        match route.auths.first() {
            Some(&auth) if !route.optional => Err(AuthFailure { auth, fault: CredentialFault::Missing }),
            _ => Ok(None),
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

    /// The tiers of the consumers with these names; of several auths the first with the name counts. It reads all
    /// names: not for requests.
    pub fn tiers_of(&self, names: &HashSet<String>) -> HashMap<String, &str> {
        let mut tiers = HashMap::new();
        for consumer in self.auths.iter().rev().flat_map(|auth| auth.consumers.iter()) {
            if names.contains(consumer.name()) {
                tiers.insert(consumer.name().to_owned(), consumer.tier().unwrap_or_default());
            }
        }
        tiers
    }
}
