//! One check of one server: the request, and whether the answer is good.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::http1::fields::Fields;
use crate::http1::response::{HeadEnd, MalformedResponse, ResponseHead};
use crate::http2::connection::StreamLost;
use crate::http2::head::{ReceivedHead, is_grpc};
use crate::net::Stream;
use crate::plan::health_check::{HealthCheck, HttpProbe, Probe};
use crate::plan::{Endpoint, Protocol, Upstream};
use crate::rate_limit_service::{
    HEALTH_CHECK, HealthCheckRequest, HealthCheckResponse, MessageFault, framed, unframed,
};
use crate::upstream::connect::{ConnectError, connect};
use crate::upstream::dns::HostAddress;
use crate::upstream::http2::{ClientStream, Http2Connection, NoAnswer};
use crate::upstream::{Failure, proxy_protocol};

/// Bytes of a response read at once.
const READ: usize = 4 << 10;
/// Bytes of the messages of a gRPC answer; the one that is expected has 7.
const MAX_MESSAGES: usize = 4 << 10;
/// Characters of a gRPC status in an error.
const MAX_SHOWN: usize = 16;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The names of the statuses of gRPC, by their numbers.
const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
/// The values of `grpc.health.v1.HealthCheckResponse.ServingStatus`, by their numbers.
const SERVING_STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: i32 = 1;

/// Why a health check failed, for logs and the dashboard.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error(transparent)]
    Undialled(#[from] ConnectError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    #[error("it closed the connection without an answer")]
    Closed,
    #[error("it does not speak HTTP/2")]
    NoHttp2,
    #[error("its answer is not HTTP")]
    Malformed,
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("its answer is not gRPC")]
    NotGrpc,
    #[error("it answered with gRPC status {0}")]
    GrpcStatus(String),
    #[error("its answer has no gRPC status")]
    NoGrpcStatus,
    #[error("its answer is not that of a gRPC health service: {0}")]
    Message(#[from] MessageFault),
    #[error("its answer is not that of a gRPC health service: more than {MAX_MESSAGES} bytes")]
    TooLong,
    #[error("it reports {0}")]
    NotServing(String),
}

impl From<io::Error> for CheckError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Unsupported => Self::NoHttp2,
            _ => Self::Broken(error),
        }
    }
}

impl From<MalformedResponse> for CheckError {
    fn from(_: MalformedResponse) -> Self {
        Self::Malformed
    }
}

impl From<NoAnswer> for CheckError {
    fn from(NoAnswer { failure, .. }: NoAnswer) -> Self {
        if failure == Failure::Protocol { Self::NoHttp2 } else { Self::Closed }
    }
}

impl From<StreamLost> for CheckError {
    fn from(_: StreamLost) -> Self {
        Self::Closed
    }
}

/// Checks one server.
pub(super) struct Prober {
    /// The server, at the port that is asked.
    endpoint: Endpoint,
    host_address: HostAddress,
    protocol: Protocol,
    /// The PROXY protocol header that begins each connection.
    proxy_header: Option<Box<[u8]>>,
    probe: Probe,
    timeout: Duration,
    /// The head of the request, byte for byte.
    head: Vec<u8>,
    /// Its body: the message of a gRPC call.
    body: Vec<u8>,
}

impl Prober {
    /// For a server of an upstream with this rule. `host_address`: where it is found.
    pub(super) fn new(
        upstream: &Upstream,
        server: &Endpoint,
        rule: &HealthCheck,
        host_address: HostAddress,
    ) -> Self {
        let endpoint = rule.port.map_or_else(|| server.clone(), |port| server.at_port(port));
        let host = rule.probe.host().or(upstream.host.as_ref());
        let host = host.map_or(endpoint.host_field().as_bytes(), HeaderValue::as_bytes);
        let (head, body) = request(&rule.probe, host);
        Self {
            endpoint,
            host_address,
            protocol: upstream.protocol,
            proxy_header: upstream.send_proxy_protocol.map(proxy_protocol::own_header),
            probe: rule.probe.clone(),
            timeout: rule.timeout,
            head,
            body,
        }
    }

    /// One check, on a connection of its own. `turn`: which of the server's addresses is asked.
    ///
    /// # Errors
    ///
    /// Why the check failed.
    pub(super) async fn check(&self, turn: usize) -> Result<(), CheckError> {
        let checked = tokio::time::timeout(self.timeout, self.ask(turn)).await;
        checked.unwrap_or(Err(CheckError::Timeout(self.timeout)))
    }

    async fn ask(&self, turn: usize) -> Result<(), CheckError> {
        let Self { endpoint, host_address, proxy_header, timeout, .. } = self;
        let (stream, address) =
            connect(endpoint, host_address, turn, proxy_header.as_deref(), *timeout).await?;
        match &self.probe {
            Probe::Tcp => Ok(()),
            Probe::Http(probe) if self.protocol == Protocol::Http1 => self.ask_http1(stream, probe).await,
            Probe::Http(probe) => {
                let mut stream = Http2Connection::open(stream, address, None, None, |_| {})?.stream();
                let (head, _) = stream.ask(&self.head, &self.body).await?;
                judge(&head.text, probe)
            }
            Probe::Grpc(_) => {
                let mut stream = Http2Connection::open(stream, address, None, None, |_| {})?.stream();
                let (head, _) = stream.ask(&self.head, &self.body).await?;
                read_call(&mut stream, &head).await
            }
        }
    }

    async fn ask_http1(&self, stream: Stream, probe: &HttpProbe) -> Result<(), CheckError> {
        let mut request = &*self.head;
        while !request.is_empty() {
            let sent = poll_fn(|context| stream.poll_write(context, request, &[])).await?;
            request.advance(sent);
        }
        let (mut answer, mut end) = (BytesMut::new(), HeadEnd::default());
        loop {
            while let Some(length) = end.advance(&answer)? {
                let head = answer.split_to(length);
                if !ResponseHead::parse(&head, false, &mut Vec::new())?.is_interim() {
                    return judge(&head, probe);
                }
                end = HeadEnd::default();
            }
            if poll_fn(|context| stream.poll_read(context, &mut answer, READ)).await? == 0 {
                return Err(CheckError::Closed);
            }
        }
    }
}

/// The head and the body of a check with this Host.
fn request(probe: &Probe, host: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (method, path, headers) = match probe {
        Probe::Tcp => return (Vec::new(), Vec::new()),
        Probe::Http(probe) => (&probe.method, &*probe.path, &probe.headers),
        Probe::Grpc(probe) => (&Method::POST, HEALTH_CHECK, &probe.headers),
    };
    let mut head = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let mut put = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    let is_given = |name: HeaderName| headers.iter().any(|(given, _)| *given == name);
    put(b"host", host);
    if !is_given(USER_AGENT) {
        put(b"user-agent", b"tollgate-health");
    }
    let mut body = Vec::new();
    match probe {
        Probe::Grpc(probe) => {
            put(b"content-type", b"application/grpc");
            framed(&HealthCheckRequest { service: probe.service.as_bytes().to_vec() }, &mut body);
        }
        _ if is_given(ACCEPT) => {}
        _ => put(b"accept", b"*/*"),
    }
    headers.iter().for_each(|(name, value)| put(name.as_str().as_bytes(), value.as_bytes()));
    // RFC 9110 §8.6: of methods whose requests have a body as a rule.
    if body.is_empty() && [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        put(b"content-length", b"0");
    }
    put(b"connection", b"close");
    head.extend_from_slice(b"\r\n");
    (head, body)
}

/// Whether the head of an answer is good. A gRPC server answers with 200 and a status of its own what it does not know.
fn judge(head: &[u8], probe: &HttpProbe) -> Result<(), CheckError> {
    let mut spans = Vec::new();
    let parsed = ResponseHead::parse(head, probe.method == Method::HEAD, &mut spans)?;
    if !probe.statuses.contains(parsed.status) {
        return Err(CheckError::Status(parsed.status));
    }
    judge_grpc_statuses(Fields::new(head, &spans).all(&GRPC_STATUS).iter())
}

/// Reads the answer of a gRPC health service: one message, and the status in the head or in the trailers.
async fn read_call(stream: &mut ClientStream, head: &ReceivedHead) -> Result<(), CheckError> {
    let mut spans = Vec::new();
    let parsed = ResponseHead::parse(&head.text, false, &mut spans)?;
    let fields = Fields::new(&head.text, &spans);
    if parsed.status != StatusCode::OK {
        return Err(CheckError::Status(parsed.status));
    }
    if !fields.first(&CONTENT_TYPE).is_some_and(is_grpc) {
        return Err(CheckError::NotGrpc);
    }
    judge_grpc_statuses(fields.all(&GRPC_STATUS).iter())?;
    let mut messages = BytesMut::new();
    while poll_fn(|context| stream.poll_body(context, &mut messages)).await? > 0 {
        if messages.len() > MAX_MESSAGES {
            return Err(CheckError::TooLong);
        }
    }
    let trailers = stream.trailers().unwrap_or_default();
    // Names are lower case, and a blank stands after the colon.
    let lines = (*trailers).split(|byte| *byte == b'\n');
    let mut statuses = lines.filter_map(|line| line.strip_prefix(b"grpc-status: ")).map(<[u8]>::trim_ascii);
    judge_grpc_statuses(statuses.clone())?;
    if statuses.next().is_none() && fields.first(&GRPC_STATUS).is_none() {
        return Err(CheckError::NoGrpcStatus);
    }
    match unframed::<HealthCheckResponse>(&messages)?.status {
        SERVING => Ok(()),
        other => Err(CheckError::NotServing(numbered(&other.to_string(), &SERVING_STATUSES))),
    }
}

/// All statuses of gRPC in an answer have to be 0.
fn judge_grpc_statuses<'s>(mut statuses: impl Iterator<Item = &'s [u8]>) -> Result<(), CheckError> {
    statuses.find(|status| *status != b"0").map_or(Ok(()), |status| {
        let shown = status.iter().filter(|byte| byte.is_ascii_graphic()).take(MAX_SHOWN);
        let shown: String = shown.map(|byte| char::from(*byte)).collect();
        Err(CheckError::GrpcStatus(numbered(&shown, &GRPC_STATUSES)))
    })
}

/// `12 (UNIMPLEMENTED)`.
fn numbered(number: &str, names: &[&str]) -> String {
    let name = number.parse::<usize>().ok().and_then(|number| names.get(number));
    name.map_or_else(|| number.to_owned(), |name| format!("{number} ({name})"))
}
