//! A caller of Envoy's rate limit service.

use std::net::SocketAddr;

use http::Request;
use tollgate::rate_limit_service::{
    RateLimitDescriptor, RateLimitDescriptorEntry, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT,
    UInt64Value, framed, unframed,
};

use crate::harness::{Body, Http2};

/// A connection.
#[derive(Debug)]
pub(crate) struct RateLimitClient {
    pub(crate) http2: Http2,
    token: Option<&'static str>,
}

/// What a call came to: its message, or the status of gRPC.
pub(crate) type Called = Result<RateLimitResponse, u16>;

impl RateLimitClient {
    /// Without a token.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self { http2: Http2::connect(address), token: None }
    }

    /// With a token in each call.
    pub(crate) fn with_token(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Sends a call with this body.
    pub(crate) fn call(&self, path: &str, body: &[u8]) -> Result<Vec<u8>, u16> {
        self.http2.exchange(self.request(path), body).map_or(Err(0), |answer| result(&answer))
    }

    /// Sends a message.
    pub(crate) fn ask(&self, message: &RateLimitRequest) -> Called {
        self.all([message]).remove(0)
    }

    /// Sends messages at once.
    pub(crate) fn all<'m>(&self, messages: impl IntoIterator<Item = &'m RateLimitRequest>) -> Vec<Called> {
        let one = |message: &RateLimitRequest| {
            let mut body = Vec::new();
            framed(message, &mut body);
            (self.request(SHOULD_RATE_LIMIT), Body::from(&*body))
        };
        let answers = self.http2.all(messages.into_iter().map(one));
        let message = |body: Vec<u8>| unframed(&body).expect("one whole message");
        answers.into_iter().map(|answer| result(&answer.expect("an answer")).map(message)).collect()
    }

    fn request(&self, path: &str) -> Request<()> {
        let mut request = Request::post(format!("http://ratelimit{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = self.token {
            request = request.header("x-tollgate-token", token);
        }
        request.body(()).expect("a request")
    }
}

/// The message of an answer, or its status of gRPC.
fn result(answer: &crate::harness::clients::http2_client::Answer) -> Result<Vec<u8>, u16> {
    assert_eq!(answer.status, 200);
    let fields = answer.trailers.as_ref().unwrap_or(&answer.headers);
    let status = fields.get("grpc-status").expect("a status").to_str().expect("text");
    match status.parse().expect("a number") {
        0 => Ok(answer.body.clone()),
        status => Err(status),
    }
}

/// A descriptor of these entries; with `hits`, its own number.
pub(crate) fn descriptor(entries: &[(&str, &str)], hits: Option<u64>) -> RateLimitDescriptor {
    let entry = |(name, value): &(&str, &str)| RateLimitDescriptorEntry {
        key: (*name).into(),
        value: (*value).into(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        limit: None,
        hits_addend: hits.map(|value| UInt64Value { value }),
    }
}

/// A call about these descriptors.
pub(crate) fn message(domain: &str, descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: domain.into(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}
