//! What the auths of a running gateway have learned: credentials that were verified, the keys of issuers, the answers of
//! services and the connections to them. It survives a reload that does not change what it depends on.

use std::hash::Hasher as _;
use std::sync::Arc;

use parking_lot::Mutex;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::fetch::ServiceTarget;
use super::forward::ForwardAuth;
use super::forward::answers::AnswerCache;
use super::issuer::Issuer;
use super::method::AuthMethod;
use super::passwords::{PasswordCheck, PasswordVerifier};
use super::tokens::{TokenSettings, TokenVerification, TokenVerifier};
use crate::limit::units::Timestamp;
use crate::limit::wall_clock;
use crate::route::identity::Identity;

/// What one auth has learned.
#[derive(Clone, Debug)]
pub enum AuthState {
    /// `api-key`: nothing.
    ApiKeys,
    /// `jwt`.
    Tokens(Arc<TokenVerifier>),
    /// `basic`.
    Passwords(Arc<PasswordVerifier>),
    /// `forward`.
    Forward(Arc<ForwardAuth>),
}

/// How a credential is verified.
#[derive(Debug)]
pub enum CredentialVerification {
    /// It was verified before, and names this consumer.
    Remembered(Arc<Identity>),
    /// A token.
    Token(TokenVerification),
    /// A password.
    Password(PasswordCheck),
    /// The service is asked about the request.
    Forward(Arc<ForwardAuth>),
}

/// The states of all auths, by their names and settings.
#[derive(Debug)]
pub struct AuthRuntime {
    /// Keys the hashes of credentials.
    secret: [u8; 16],
    /// The answers of all services.
    answers: Arc<AnswerCache>,
    known: Mutex<KnownStates>,
}

#[derive(Debug, Default)]
struct KnownStates {
    /// How many states were made.
    made: u64,
    auths: Vec<(Arc<str>, AuthState)>,
}

impl AuthState {
    /// The issuer whose keys are fetched, if there is one.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        match self {
            Self::Tokens(tokens) => tokens.issuer(),
            Self::ApiKeys | Self::Passwords(_) | Self::Forward(_) => None,
        }
    }

    /// How a credential is verified at `now`; `None`: it is looked up, or a service is asked about its request.
    pub fn verification(&self, credential: &[u8], now: Timestamp) -> Option<CredentialVerification> {
        match self {
            Self::ApiKeys | Self::Forward(_) => None,
            Self::Tokens(tokens) => Some({
                let now = wall_clock::system().wall_time(now);
                match tokens.find(credential, now) {
                    Some(identity) => CredentialVerification::Remembered(identity),
                    None => CredentialVerification::Token(tokens.prepare(credential, now)),
                }
            }),
            Self::Passwords(passwords) => Some(match passwords.find(credential, now) {
                Some(identity) => CredentialVerification::Remembered(identity),
                None => CredentialVerification::Password(passwords.prepare(credential, now)),
            }),
        }
    }

    /// Whether it is that of an auth with this method.
    fn is_of(&self, method: &AuthMethod) -> bool {
        match (self, method) {
            (Self::ApiKeys, AuthMethod::ApiKeys(_)) => true,
            (Self::Tokens(tokens), AuthMethod::Tokens(settings)) => tokens.settings() == settings,
            (Self::Passwords(passwords), AuthMethod::Passwords(users)) => passwords.users() == users,
            (Self::Forward(forward), AuthMethod::Forward(settings)) => forward.settings() == settings,
            _ => false,
        }
    }
}

impl AuthRuntime {
    /// Without any state. `secret` keys the hashes of credentials.
    pub fn new(secret: [u8; 16]) -> Self {
        Self { secret, answers: Arc::default(), known: Mutex::default() }
    }

    /// The states of these auths, each by name and method, in their order. Those that are not known begin empty.
    pub fn states<'a>(
        &self,
        auths: impl IntoIterator<Item = (&'a Arc<str>, &'a AuthMethod)>,
    ) -> Box<[AuthState]> {
        let mut known = self.known.lock();
        auths.into_iter().map(|(name, method)| self.state(&mut known, name, method)).collect()
    }

    /// Forgets all states but those of these auths. Requests in flight may still use them.
    pub fn retain<'a>(&self, auths: impl IntoIterator<Item = (&'a Arc<str>, &'a AuthMethod)>) {
        let auths: Vec<_> = auths.into_iter().collect();
        let is_used = |(name, state): &(Arc<str>, AuthState)| {
            auths.iter().any(|(other, method)| name == *other && state.is_of(method))
        };
        self.known.lock().auths.retain(is_used);
    }

    fn state(&self, known: &mut KnownStates, name: &Arc<str>, method: &AuthMethod) -> AuthState {
        let found = known.auths.iter().find(|(other, state)| other == name && state.is_of(method));
        if let Some((_, state)) = found {
            return state.clone();
        }
        known.made += 1;
        let secret = self.secret(known.made);
        let state = match method {
            AuthMethod::ApiKeys(_) => AuthState::ApiKeys,
            AuthMethod::Tokens(settings) => {
                let issuer = known.issuer(settings);
                AuthState::Tokens(TokenVerifier::new(Arc::clone(settings), issuer, secret).into())
            }
            AuthMethod::Passwords(users) => {
                AuthState::Passwords(PasswordVerifier::new(Arc::clone(users), secret).into())
            }
            AuthMethod::Forward(settings) => {
                let answers = Arc::clone(&self.answers);
                AuthState::Forward(ForwardAuth::new(Arc::clone(settings), answers, secret).into())
            }
        };
        known.auths.push((Arc::clone(name), state.clone()));
        state
    }

    /// A secret of its own for each state: services share a table of answers, and never find those of another.
    fn secret(&self, number: u64) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(number);
        hasher.finish128().as_bytes()
    }
}

impl KnownStates {
    /// The issuer of these settings: one for all auths with its URL, also of a plan before.
    fn issuer(&self, settings: &TokenSettings) -> Option<Arc<Issuer>> {
        let url: &ServiceTarget = settings.issuer()?;
        let known =
            self.auths.iter().filter_map(|(_, state)| state.issuer()).find(|issuer| issuer.url() == url);
        Some(known.cloned().unwrap_or_else(|| Arc::new(Issuer::new(url.clone()))))
    }
}
