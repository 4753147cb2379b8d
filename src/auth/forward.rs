//! `type = "forward"`: a service decides about each request, in the way of Traefik's `forwardAuth` and nginx's
//! `auth_request`.
//!
//! It is asked with GET, about the request that the backend would get, with its fields and without its body. A 2xx lets
//! the request through; any other answer goes to the client.

pub mod answers;
pub mod question;
pub mod sign_in;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::Mutex;
use siphasher::sip128::SipHasher24;
use tokio::time::timeout;

use self::answers::AnswerCache;
use self::question::ForwardQuestion;
use self::sign_in::SignIn;
use super::fetch::ServiceTarget;
use super::remembered::Remembered;
use crate::http1::name::Name;
use crate::http1::syntax::items;
use crate::limit::units::Micros;
use crate::net::service_connection::{ServiceConnectError, ServiceConnection};
use crate::route::consumers::encoded;
use crate::route::identity::{GrantedField, Identity, MAX_NAME};

/// The maximum size of an answer that goes to the client, bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The maximum size of the fields of an answer that is remembered, bytes.
const MAX_REMEMBERED_FIELDS: usize = 8 << 10;
/// Connections that are kept for later requests.
const MAX_IDLE: usize = 64;
/// How long a redirect of the same credential is no further failure: a page loads its parts with one credential.
const SAME_CREDENTIAL: Micros = Micros(10_000_000);

/// What the file says of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSettings {
    /// Where it is asked.
    pub target: ServiceTarget,
    /// How long an answer may take, with the connection.
    pub timeout: Duration,
    /// The maximum number of questions at once.
    pub max_in_flight: usize,
    /// How long a 2xx is remembered; zero: it is not.
    pub cache: Micros,
    /// Fields of the request that the answer depends on, beside the credentials.
    pub cache_by: Box<[HeaderName]>,
    /// The cookies that are credentials; `None`: any is, in a request that is answered with 401 or 403.
    pub credential_cookies: Option<Box<[String]>>,
    /// Fields of a 2xx that the backend gets.
    pub headers: Box<[HeaderName]>,
    /// The field of a 2xx that names the consumer.
    pub name: Option<HeaderName>,
    /// The field of a 2xx that names its tier.
    pub tier: Option<HeaderName>,
    /// Where browsers log in that are answered with 401.
    pub sign_in: Option<SignIn>,
    /// Whether the client gets the cookies of a 2xx.
    pub sets_cookies: bool,
    /// Whether requests pass while the service cannot be reached.
    pub allows_on_error: bool,
}

/// A service that decides about requests.
#[derive(Debug)]
pub struct ForwardAuth {
    settings: Arc<ForwardSettings>,
    /// Keys the hashes of questions, identities and credentials.
    secret: [u8; 16],
    answers: Arc<AnswerCache>,
    /// Credentials of requests that were redirected lately.
    redirected: Remembered<()>,
    in_flight: AtomicUsize,
    idle: Mutex<Vec<ServiceConnection>>,
}

/// What the service answers to the client.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, without those of the connection.
    pub fields: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The request had a credential, which the service refuses.
    pub refuses_credential: bool,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardOutcome {
    /// It passes. Without a name it is anonymous. The client gets these values of `set-cookie`.
    Admitted(Arc<Identity>, Vec<HeaderValue>),
    /// The client gets this answer.
    Answered(Arc<ServiceAnswer>),
    /// The service could not be reached, is asked too much at once, or has sent no good answer.
    Failed,
}

/// Why there is no answer.
enum AskError {
    /// No connection, or no answer in time.
    Unreachable,
    /// The answer is of no use.
    Broken,
}

/// A place among the questions at once, given back when it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<ServiceConnectError> for AskError {
    fn from(_: ServiceConnectError) -> Self {
        Self::Unreachable
    }
}

impl ForwardAuth {
    /// A service that was asked nothing yet. Its answers are remembered in `answers`, by hashes keyed with `secret`.
    pub fn new(settings: Arc<ForwardSettings>, answers: Arc<AnswerCache>, secret: [u8; 16]) -> Self {
        let (redirected, in_flight) = (Remembered::new(secret), AtomicUsize::new(0));
        Self { settings, secret, answers, redirected, in_flight, idle: Mutex::default() }
    }

    /// What the file says of it.
    pub fn settings(&self) -> &Arc<ForwardSettings> {
        &self.settings
    }

    /// The remembered outcome of an equal question.
    pub fn find(&self, question: &ForwardQuestion<'_>) -> Option<Arc<Identity>> {
        if self.settings.cache == Micros(0) {
            return None;
        }
        self.answers.find(self.hash(&question.cache_key(&self.settings)), question.now)
    }

    /// Whether a request has something that the service could refuse as a wrong credential.
    pub fn has_credential(&self, question: &ForwardQuestion<'_>) -> bool {
        question.has_credential(&self.settings)
    }

    /// Asks the service. What exceeds the questions that it may be asked at once is never admitted.
    pub async fn ask(&self, question: &ForwardQuestion<'_>) -> ForwardOutcome {
        let Some(_place) = self.place() else { return ForwardOutcome::Failed };
        let Ok(request) = question.request(&self.settings) else { return ForwardOutcome::Failed };
        let asked = timeout(self.settings.timeout, self.exchange(request)).await;
        match asked.unwrap_or(Err(AskError::Unreachable)) {
            Ok(answer) if answer.status.is_success() => self.admit(question, &answer),
            Ok(answer) if answer.status.is_informational() => ForwardOutcome::Failed,
            Ok(answer) => {
                let refuses_credential = self.refuses_credential(question, answer.status);
                let answer = self.to_sign_in(question, answer);
                ForwardOutcome::Answered(Arc::new(ServiceAnswer { refuses_credential, ..answer }))
            }
            Err(AskError::Unreachable) if self.settings.allows_on_error => {
                ForwardOutcome::Admitted(Arc::new(Identity::anonymous()), Vec::new())
            }
            Err(AskError::Unreachable | AskError::Broken) => ForwardOutcome::Failed,
        }
    }

    fn place(&self) -> Option<Place<'_>> {
        let place = Place(&self.in_flight);
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        (before < self.settings.max_in_flight).then_some(place)
    }

    /// Whether an answer with this status refuses a credential of the request.
    fn refuses_credential(&self, question: &ForwardQuestion<'_>, status: StatusCode) -> bool {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.has_credential(question),
            // So services refuse browsers, also those that come for the first time.
            StatusCode::FOUND | StatusCode::SEE_OTHER | StatusCode::TEMPORARY_REDIRECT => {
                let credential = question.named_credential(&self.settings);
                let expires = question.now.plus(SAME_CREDENTIAL);
                credential
                    .is_some_and(|credential| self.redirected.is_new(&credential, question.now, expires))
            }
            _ => false,
        }
    }

    /// The answer, or for a browser without a session a redirect to where it logs in.
    fn to_sign_in(&self, question: &ForwardQuestion<'_>, answer: ServiceAnswer) -> ServiceAnswer {
        let is_for_page = answer.status == StatusCode::UNAUTHORIZED && question.asks_for_page();
        let Some(sign_in) = self.settings.sign_in.as_ref().filter(|_| is_for_page) else { return answer };
        let Ok(location) = HeaderValue::try_from(sign_in.location(&question.url())) else { return answer };
        let mut fields = HeaderMap::new();
        fields.insert(LOCATION, location);
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for cookie in answer.fields.get_all(SET_COOKIE) {
            fields.append(SET_COOKIE, cookie.clone());
        }
        ServiceAnswer { status: StatusCode::FOUND, fields, body: Bytes::new(), ..answer }
    }

    fn admit(&self, question: &ForwardQuestion<'_>, answer: &ServiceAnswer) -> ForwardOutcome {
        let text = |name: &Option<HeaderName>| {
            let value = answer.fields.get(name.as_ref()?)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|text| !text.is_empty())
        };
        let (name, tier) = (text(&self.settings.name), text(&self.settings.tier));
        let is_long =
            |text: &Option<String>| text.as_ref().is_some_and(|text| encoded(text).len() > MAX_NAME);
        if is_long(&name) || is_long(&tier) {
            tracing::warn!(url = %self.settings.target, "the service names a consumer with more than 256 bytes");
            return ForwardOutcome::Failed;
        }
        let fields = self.settings.headers.iter().flat_map(|name| {
            let field = |value: &HeaderValue| GrantedField {
                name: name.as_str().into(),
                value: value.as_bytes().into(),
            };
            answer.fields.get_all(name).iter().map(field)
        });
        let identity = Arc::new(Identity {
            name: name.unwrap_or_default().into(),
            tier: tier.map(Into::into),
            fields: fields.collect(),
            ..Identity::anonymous()
        });
        let cookies = answer.fields.get_all(SET_COOKIE).iter().cloned().collect::<Vec<_>>();
        if self.settings.cache > Micros(0) && cookies.is_empty() {
            self.remember(question, &identity);
        }
        let cookies = if self.settings.sets_cookies { cookies } else { Vec::new() };
        ForwardOutcome::Admitted(identity, cookies)
    }

    fn remember(&self, question: &ForwardQuestion<'_>, identity: &Arc<Identity>) {
        let size: usize = identity.fields.iter().map(|field| field.name.len() + field.value.len()).sum();
        if size <= MAX_REMEMBERED_FIELDS {
            let key = self.hash(&question.cache_key(&self.settings));
            let expires = question.now.plus(self.settings.cache);
            self.answers.keep(key, self.hash(&content(identity)), identity, expires);
        }
    }

    fn hash(&self, text: &[u8]) -> u128 {
        SipHasher24::new_with_key(&self.secret).hash(text).as_u128()
    }

    /// Asks on a kept connection. If the service has closed it meanwhile, asks once more, on a new one.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<ServiceAnswer, AskError> {
        while let Some(mut kept) = self.kept() {
            if kept.is_ready().await {
                match self.send(kept, request.clone()).await {
                    Err(SendError::Head) => break,
                    answer => return answer.map_err(AskError::from),
                }
            }
        }
        let ServiceTarget { host, port, tls, .. } = &self.settings.target;
        let connection = ServiceConnection::open(host, *port, tls.as_ref()).await?;
        Ok(self.send(connection, request).await?)
    }

    fn kept(&self) -> Option<ServiceConnection> {
        self.idle.lock().pop()
    }

    async fn send(
        &self,
        mut connection: ServiceConnection,
        request: Request<Full<Bytes>>,
    ) -> Result<ServiceAnswer, SendError> {
        let answer = connection.send(request).await.map_err(|_| SendError::Head)?;
        let (mut head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|_| SendError::Body)?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !head.status.is_informational() {
            idle.push(connection);
        }
        drop_hop_by_hop(&mut head.headers);
        Ok(ServiceAnswer { status: head.status, fields: head.headers, body, refuses_credential: false })
    }
}

/// Where an answer broke off.
enum SendError {
    /// Before its head was whole: a kept connection may have been closed.
    Head,
    /// Behind its head.
    Body,
}

impl From<SendError> for AskError {
    fn from(_: SendError) -> Self {
        Self::Broken
    }
}

/// Removes the fields that concern the connection to the service, and those that `connection` names (RFC 9110 §7.6.1).
fn drop_hop_by_hop(fields: &mut HeaderMap) {
    let lists: Vec<HeaderValue> = fields.get_all(CONNECTION).iter().cloned().collect();
    for name in lists.iter().flat_map(|list| items(list.as_bytes())) {
        if let Ok(name) = HeaderName::from_bytes(name) {
            fields.remove(name);
        }
    }
    let names: Vec<HeaderName> =
        fields.keys().filter(|name| Name::of(name.as_str().as_bytes()).is_hop_by_hop()).cloned().collect();
    names.iter().for_each(|name| drop(fields.remove(name)));
}

/// A text that is equal only for equal identities: each part follows its length.
fn content(identity: &Identity) -> Vec<u8> {
    let mut text = Vec::new();
    let mut put = |part: &[u8]| {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    };
    put(identity.name.as_bytes());
    put(if identity.tier.is_some() { b"1" } else { b"" });
    put(identity.tier.as_deref().unwrap_or_default().as_bytes());
    for GrantedField { name, value } in &identity.fields {
        put(name.as_bytes());
        put(value);
    }
    text
}
