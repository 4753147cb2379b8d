//! `type = "forward"`: a service decides about each request, in the way of Traefik's `forwardAuth` and nginx's
//! `auth_request`.
//!
//! It is asked with GET, with the fields of the request and without its body. A 2xx lets the request through; any other
//! answer goes to the client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::fetch::ServiceTarget;
use super::remembered::Remembered;
use crate::http1::fields::Fields;
use crate::http1::name::{claims_consumer, same_to_cgi};
use crate::limit::units::{Micros, Timestamp};
use crate::net::service_connection::{ServiceConnectError, ServiceConnection};
use crate::route::consumers::encoded;
use crate::route::identity::{GrantedField, Identity, MAX_NAME};

/// The maximum size of an answer that goes to the client, bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The maximum size of the fields of an answer that is remembered, bytes.
const MAX_REMEMBERED_FIELDS: usize = 8 << 10;
/// Connections that are kept for later requests.
const MAX_IDLE: usize = 64;
/// Fields of a request that concern its connection, its body or a copy of the response that the client has, and those that
/// the gateway writes.
const OWN_FIELDS: [&str; 21] = [
    "accept-ranges",
    "connection",
    "expect",
    "forwarded",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "x-real-ip",
];
/// Begins of the names of further ones.
const OWN_PREFIXES: [&str; 3] = ["content-", "x-forwarded-", "x-original-"];

/// What the file says of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSettings {
    /// Where it is asked.
    pub target: ServiceTarget,
    /// How long an answer may take, with the connection.
    pub timeout: Duration,
    /// How long a 2xx is remembered; zero: it is not.
    pub cache: Micros,
    /// Fields of the request that the answer depends on, beside the credentials.
    pub cache_by: Box<[HeaderName]>,
    /// Fields of a 2xx that the backend gets.
    pub headers: Box<[HeaderName]>,
    /// The field of a 2xx that names the consumer.
    pub name: Option<HeaderName>,
    /// The field of a 2xx that names its tier.
    pub tier: Option<HeaderName>,
    /// Whether requests pass while the service can not be reached.
    pub allows_on_error: bool,
}

/// A service that decides about requests.
#[derive(Debug)]
pub struct ForwardAuth {
    settings: ForwardSettings,
    remembered: Remembered<Identity>,
    idle: Mutex<Vec<ServiceConnection>>,
}

/// A request that the service is asked about.
#[derive(Clone, Copy, Debug)]
pub struct ForwardQuestion<'r> {
    /// Its method.
    pub method: &'r Method,
    /// Its host, without port.
    pub host: &'r str,
    /// Its path, as the client spelled it.
    pub path: &'r str,
    /// Its query.
    pub query: Option<&'r str>,
    /// Its fields.
    pub fields: Fields<'r>,
    /// Its client; `None`: it is not identified.
    pub client: Option<IpAddr>,
    /// Whether the client uses TLS.
    pub secure: bool,
    /// When it came.
    pub now: Timestamp,
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
    /// It passes. Without a name it is anonymous.
    Admitted(Arc<Identity>),
    /// The client gets this answer.
    Answered(Arc<ServiceAnswer>),
    /// The service could not be reached, or has sent no good answer.
    Failed,
}

/// Why there is no answer.
enum AskError {
    /// No connection, or no answer in time.
    Unreachable,
    /// The answer is of no use.
    Broken,
}

impl From<ServiceConnectError> for AskError {
    fn from(_: ServiceConnectError) -> Self {
        Self::Unreachable
    }
}

impl ForwardQuestion<'_> {
    fn has_credential(&self, settings: &ForwardSettings) -> bool {
        self.credentials(settings).next().is_some()
    }

    /// The fields that the answer depends on.
    fn credentials<'q>(
        &'q self,
        settings: &'q ForwardSettings,
    ) -> impl Iterator<Item = (&'q [u8], &'q [u8])> {
        let is_one = |name: &[u8]| {
            name.eq_ignore_ascii_case(b"authorization")
                || name.eq_ignore_ascii_case(b"cookie")
                || settings.cache_by.iter().any(|by| same_to_cgi(by.as_str().as_bytes(), name))
        };
        self.fields.iter().filter(move |field| is_one(field.name)).map(|field| (field.name, field.value))
    }

    /// A text that is equal only for requests with the same answer: each part follows its length.
    fn cache_key(&self, settings: &ForwardSettings) -> Vec<u8> {
        let mut key = Vec::new();
        let mut put = |part: &[u8]| {
            key.extend_from_slice(&(part.len() as u64).to_le_bytes());
            key.extend_from_slice(part);
        };
        put(self.method.as_str().as_bytes());
        put(self.host.as_bytes());
        put(self.path.as_bytes());
        put(if self.query.is_some() { b"?" } else { b"" });
        put(self.query.unwrap_or_default().as_bytes());
        put(if self.secure { b"https" } else { b"http" });
        for (name, value) in self.credentials(settings) {
            put(&name.to_ascii_lowercase());
            put(value);
        }
        key
    }
}

impl ForwardAuth {
    /// A service that was asked nothing yet. Answers are remembered by a hash keyed with `secret`.
    pub fn new(settings: ForwardSettings, secret: [u8; 16]) -> Self {
        Self { settings, remembered: Remembered::new(secret), idle: Mutex::default() }
    }

    /// What the file says of it.
    pub fn settings(&self) -> &ForwardSettings {
        &self.settings
    }

    /// The remembered outcome of an equal question.
    pub fn find(&self, question: &ForwardQuestion<'_>) -> Option<Arc<Identity>> {
        if self.settings.cache == Micros(0) {
            return None;
        }
        self.remembered.find(&question.cache_key(&self.settings), 0, question.now)
    }

    /// Whether a request has something that the service could refuse as a wrong credential.
    pub fn has_credential(&self, question: &ForwardQuestion<'_>) -> bool {
        question.has_credential(&self.settings)
    }

    /// Asks the service.
    pub async fn ask(&self, question: &ForwardQuestion<'_>) -> ForwardOutcome {
        let Ok(request) = self.request(question) else { return ForwardOutcome::Failed };
        let asked = timeout(self.settings.timeout, self.exchange(request)).await;
        match asked.unwrap_or(Err(AskError::Unreachable)) {
            Ok(answer) if answer.status.is_success() => self.admit(question, &answer),
            Ok(answer) if answer.status.is_informational() => ForwardOutcome::Failed,
            Ok(answer) => {
                let refuses = matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
                let refuses_credential = refuses && question.has_credential(&self.settings);
                ForwardOutcome::Answered(Arc::new(ServiceAnswer { refuses_credential, ..answer }))
            }
            Err(AskError::Unreachable) if self.settings.allows_on_error => {
                ForwardOutcome::Admitted(Arc::new(Identity::anonymous()))
            }
            Err(AskError::Unreachable | AskError::Broken) => ForwardOutcome::Failed,
        }
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
        let expires = question.now.plus(self.settings.cache);
        let identity = Arc::new(Identity {
            name: name.unwrap_or_default().into(),
            tier: tier.map(Into::into),
            claims: Box::default(),
            fields: fields.collect(),
            expires,
        });
        let size: usize = identity.fields.iter().map(|field| field.name.len() + field.value.len()).sum();
        if self.settings.cache > Micros(0) && size <= MAX_REMEMBERED_FIELDS {
            let key = question.cache_key(&self.settings);
            self.remembered.keep(&key, 0, Arc::clone(&identity), expires);
        }
        ForwardOutcome::Admitted(identity)
    }

    fn request(&self, question: &ForwardQuestion<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
        let target = &self.settings.target;
        let mut request = Request::get(target.path.as_str()).body(Full::default())?;
        let fields = request.headers_mut();
        fields.insert(HOST, HeaderValue::from_str(&target.authority)?);
        for field in question.fields.iter().filter(|field| self.passes(question, field.name)) {
            fields.append(HeaderName::from_bytes(field.name)?, HeaderValue::from_bytes(field.value)?);
        }
        let scheme = if question.secure { "https" } else { "http" };
        let uri = match question.query {
            Some(query) => format!("{}?{query}", question.path),
            None => question.path.to_owned(),
        };
        let url = format!("{scheme}://{}{uri}", question.host);
        for (name, value) in [
            ("x-forwarded-method", question.method.as_str()),
            ("x-forwarded-proto", scheme),
            ("x-forwarded-host", question.host),
            ("x-forwarded-uri", &uri),
            ("x-original-method", question.method.as_str()),
            ("x-original-uri", &uri),
            ("x-original-url", &url),
        ] {
            fields.insert(name, HeaderValue::from_str(value)?);
        }
        if let Some(client) = question.client {
            let client = HeaderValue::from_str(&client.to_string())?;
            fields.insert("x-forwarded-for", client.clone());
            fields.insert("x-real-ip", client);
        }
        Ok(request)
    }

    /// Whether the service gets a field of the request.
    fn passes(&self, question: &ForwardQuestion<'_>, name: &[u8]) -> bool {
        let lower = name.to_ascii_lowercase();
        let is_own = |own: &&str| same_to_cgi(own.as_bytes(), &lower);
        let hyphens: Vec<u8> = lower.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
        let is_named = || {
            let values =
                question.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"connection"));
            let mut items = values.flat_map(|field| field.value.split(|byte| *byte == b','));
            items.any(|item| item.trim_ascii().eq_ignore_ascii_case(name))
        };
        !(OWN_FIELDS.iter().any(is_own)
            || OWN_PREFIXES.iter().any(|prefix| hyphens.starts_with(prefix.as_bytes()))
            || self.settings.headers.iter().any(|own| same_to_cgi(own.as_str().as_bytes(), name))
            || claims_consumer(name)
            || is_named())
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<ServiceAnswer, AskError> {
        loop {
            let kept = self.idle.lock().pop();
            let Some(mut kept) = kept else { break };
            if kept.is_ready().await
                // A kept connection that the service has closed in the meantime is no failure.
                && let Ok(answer) = self.send(kept, request.clone()).await
            {
                return Ok(answer);
            }
        }
        let ServiceTarget { host, port, tls, .. } = &self.settings.target;
        let connection = ServiceConnection::open(host, *port, tls.as_ref()).await?;
        self.send(connection, request).await
    }

    async fn send(
        &self,
        mut connection: ServiceConnection,
        request: Request<Full<Bytes>>,
    ) -> Result<ServiceAnswer, AskError> {
        let answer = connection.send(request).await.map_err(|_| AskError::Broken)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|_| AskError::Broken)?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !head.status.is_informational() {
            idle.push(connection);
        }
        Ok(ServiceAnswer { status: head.status, fields: head.headers, body, refuses_credential: false })
    }
}
