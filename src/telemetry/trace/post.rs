//! One export: a POST over HTTP/1.1, on a kept-alive connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, DATE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use tokio::time::timeout;

use crate::net::service_connection::{ServiceConnectError, ServiceConnection};
use crate::plan::Trace;

/// The timeout to connect, send, and read the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a response, which may report rejected spans and the reason; bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error(transparent)]
    Connect(#[from] ServiceConnectError),
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("its URL or fields make no request: {0}")]
    Request(#[from] http::Error),
    /// The batch may be sent again, after this time if the response has one.
    #[error("it answered {0}")]
    Busy(StatusCode, Option<Duration>),
    #[error("it answered {0}")]
    Status(StatusCode),
}

/// A connection to the collector.
pub(super) struct CollectorConnection(ServiceConnection);

impl CollectorConnection {
    /// Sends a batch on the connection that was `kept`, or on a new one. Returns the number of spans that the collector
    /// rejects.
    pub(super) async fn post(
        kept: &mut Option<Self>,
        trace: &Trace,
        body: Bytes,
    ) -> Result<u64, ExportError> {
        timeout(TIMEOUT, Self::exchange(kept, trace, body)).await.unwrap_or(Err(ExportError::Timeout))
    }

    /// A cancelled or failed exchange leaves no connection behind.
    async fn exchange(kept: &mut Option<Self>, trace: &Trace, body: Bytes) -> Result<u64, ExportError> {
        if let Some(mut connection) = kept.take()
            && connection.0.is_ready().await
        {
            // A kept connection that the collector has closed in the meantime is not a failure.
            match connection.send(trace, body.clone()).await {
                (_, Err(ExportError::Broken(_))) => {}
                (connection, sent) => {
                    *kept = connection;
                    return sent;
                }
            }
        }
        let (connection, sent) = Self::open(trace).await?.send(trace, body).await;
        *kept = connection;
        sent
    }

    async fn open(trace: &Trace) -> Result<Self, ExportError> {
        let server = &trace.collector;
        Ok(Self(ServiceConnection::open(&server.host, server.port, server.tls.as_ref()).await?))
    }

    /// Returns the collector's response, and the connection if it can be reused.
    async fn send(mut self, trace: &Trace, body: Bytes) -> (Option<Self>, Result<u64, ExportError>) {
        let asked = async { Ok::<_, ExportError>(self.0.send(request(trace, body)?).await?) };
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(fault) => return (None, Err(fault)),
        };
        let status = answer.status();
        let pause = pause(answer.headers());
        let said = read(answer.into_body()).await;
        let connection = said.is_some().then_some(self);
        let sent = match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(ExportError::Busy(status, pause)),
            status if status.is_success() => Ok(said.map_or(0, rejected)),
            status => Err(ExportError::Status(status)),
        };
        (connection, sent)
    }
}

fn request(trace: &Trace, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut request = Request::post(trace.path.as_str())
        .header(HOST, &*trace.collector.authority)
        .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(body))?;
    for (name, value) in &trace.headers {
        request.headers_mut().insert(name, value.clone());
    }
    Ok(request)
}

/// `None` if the body breaks off, or is longer than allowed.
async fn read(body: Incoming) -> Option<Bytes> {
    Some(Limited::new(body, MAX_ANSWER).collect().await.ok()?.to_bytes())
}

/// The number of spans that the collector reports as rejected; 0 if the response has no such number.
fn rejected(answer: Bytes) -> u64 {
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    partial.and_then(|partial| u64::try_from(partial.rejected_spans).ok()).unwrap_or(0)
}

/// `retry-after`: seconds, or a date, which counts from the answer's own.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let after = text(headers.get(RETRY_AFTER)?)?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let (then, now) = (date(&after)?, date(&text(headers.get(DATE)?)?)?);
    Some(then.duration_since(now).unwrap_or_default())
}
