//! The context of one request: its data, recorded when the request ends for any reason.

use std::net::IpAddr;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;
use smallvec::SmallVec;

use super::noted_values::NotedValues;
use super::policy_numbers::PolicyNumbers;
use super::settlement::Settlement;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::limit::units::{Micros, Timestamp};
use crate::plan::RequestIds;
use crate::plan::auth::CredentialFault;
use crate::plan::template::TemplateValues;
use crate::proxy::session::grpc;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::session::request_body::BodyOptions;
use crate::proxy::session::response_options::ResponseOptions;
use crate::proxy::worker::tracer::RequestTrace;
use crate::proxy::worker::{Worker, WorkerPlan};
use crate::route::RouteIndex;
use crate::route::client::AddressRefusal;
use crate::store::Places;
use crate::telemetry::access_log::{Record, RecordedResponse};
use crate::telemetry::metrics::RequestOutcome;
use crate::telemetry::refusal_samples;

/// The context of one request. When it is dropped, the request is counted and logged (`accounting.rs`).
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) worker: Rc<Worker>,
    /// The plan that was active when the request began.
    pub(crate) plan: Rc<WorkerPlan>,
    /// When the request head was complete.
    pub(crate) started: Timestamp,
    pub(crate) route: Option<RouteIndex>,
    /// The client's address, once known.
    pub(crate) client: Option<IpAddr>,
    /// `x-request-id`: generated, or sent by a trusted proxy.
    pub(crate) request_id: SmallVec<[u8; 64]>,
    /// Values of its head that templates of the file may name; `None`: there are no templates.
    pub(crate) noted: Option<Box<NotedValues>>,
    /// Body bytes received.
    pub(crate) received: u64,
    /// How its body is read, until it is read.
    pub(crate) body_options: BodyOptions,
    /// The form of its response.
    pub(crate) options: ResponseOptions,
    /// Its response so far. Until there is one, its status and error are those of a client that left.
    pub(crate) response: RecordedResponse,
    /// Header lines that the response gets from the gateway.
    pub(crate) lines: ResponseLines,
    /// What the limits decided, and what ends with the request.
    pub(crate) limits: RequestLimits,
    /// What is logged of it.
    pub(crate) log: RequestLog,
    /// What is left under each policy, if an answer tells; empty until the limits have ruled.
    pub(crate) policies: Option<Vec<PolicyNumbers>>,
    /// It is counted and logged at its end: not if it only looks.
    pub(crate) is_counted: bool,
}

/// Header lines that a request's response gets from the gateway, whoever answers.
#[derive(Debug, Default)]
pub(crate) struct ResponseLines {
    /// The CORS headers that scripts of another site need to read the response.
    pub(crate) cors: BytesMut,
    /// The cookies of the service that has admitted the request.
    pub(crate) cookies: Box<[u8]>,
    /// The standard rate-limit headers, if they list every policy.
    pub(crate) ratelimit: Option<Box<str>>,
}

/// A request under its limits.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    /// Their decision.
    pub(crate) outcome: RequestOutcome,
    /// All limits have admitted the request, and any delay is over.
    pub(crate) admitted: bool,
    /// How long the request waits for a place and in a leaky bucket.
    pub(crate) delay: Micros,
    /// Its places under concurrency limits.
    pub(crate) places: Option<Box<Places>>,
    /// Its costs that are settled when the response has ended.
    pub(crate) settlement: Option<Box<Settlement>>,
}

/// The logs of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    /// The rest of the access record, if there is an access log.
    pub(crate) record: Option<Box<Record>>,
    /// The request is logged even if it is neither refused nor failed.
    pub(crate) sampled: bool,
    /// The request's place in a trace, if requests are traced.
    pub(crate) trace: Option<RequestTrace>,
    /// The sample to record if the request is refused or fails.
    pub(crate) refusal: RefusalSample,
}

/// The data recorded of a request that is refused or fails.
#[derive(Debug, Default)]
pub(crate) enum RefusalSample {
    /// Not decided yet.
    #[default]
    Undecided,
    /// None: enough samples of this second are kept.
    Waived,
    /// A sample is kept.
    Kept(Box<refusal_samples::SampledRefusal>),
}

impl RequestContext {
    /// The context of a request whose head was complete at `started`.
    pub(crate) fn begin(worker: &Rc<Worker>, peer: &ConnectionPeer, started: Timestamp) -> Self {
        Self {
            plan: worker.plan(),
            started,
            worker: Rc::clone(worker),
            route: None,
            client: None,
            request_id: SmallVec::from_slice(&worker.next_request_id()),
            noted: None,
            received: 0,
            body_options: BodyOptions::default(),
            options: ResponseOptions::unread(peer.version),
            response: RecordedResponse {
                status: client_gone_status(),
                bytes_out: 0,
                error: Some("client_gone"),
            },
            lines: ResponseLines::default(),
            limits: RequestLimits {
                outcome: RequestOutcome::Admitted,
                admitted: false,
                delay: Micros(0),
                places: None,
                settlement: None,
            },
            log: RequestLog::default(),
            policies: None,
            is_counted: true,
        }
    }

    /// Copies the data of the head that outlive it. `may_keep`: the connection may stay open after the response.
    pub(crate) fn take_head(&mut self, peer: &ConnectionPeer, head: &RequestHead<'_>, may_keep: bool) {
        self.keep_request_id(peer, head);
        self.options = ResponseOptions {
            http_11: head.http_11,
            to_head: head.method == "HEAD",
            keep: may_keep && head.keep_alive,
            version: peer.version,
            // gRPC is a protocol over HTTP/2: over HTTP/1.1 its media type has no meaning here.
            grpc: peer.is_multiplexed() && grpc::is_call(head),
            // No other head of HTTP/2 has `upgrade`.
            connect: peer.is_multiplexed() && head.upgrade,
            http3_port: peer.http3_port,
            as_forbidden: false,
        };
        self.body_options = BodyOptions::of(head);
    }

    /// Keeps the request id that a trusted proxy has given the request.
    fn keep_request_id(&mut self, peer: &ConnectionPeer, head: &RequestHead<'_>) {
        let Some(sent) = head.fields.known(Name::XRequestId).filter(|sent| !sent.is_empty()) else { return };
        if self.plan.server.client.trusts(peer.address) {
            self.request_id = SmallVec::from_slice(sent);
        }
    }

    /// The `x-request-id` of a local response; empty if it has none.
    pub(crate) fn own_request_id(&self) -> &[u8] {
        match self.plan.server.request_id {
            RequestIds::Own | RequestIds::All => &self.request_id,
            RequestIds::Off => &[],
        }
    }

    /// The values of the request for templates.
    pub(crate) fn template_values(&self) -> TemplateValues<'_> {
        NotedValues::values(self.noted.as_deref(), &self.request_id, self.client)
    }

    /// Whether a client that has got this many bytes of the backend's body has got a terminal event of the stream.
    pub(crate) fn has_terminal_event(&self, delivered: u64) -> bool {
        self.limits.settlement.as_ref().is_some_and(|settlement| settlement.has_ended(delivered))
    }

    /// Notes that the gateway itself responded, for this reason.
    pub(crate) fn answered(&mut self, status: StatusCode, error: Option<&'static str>) {
        self.response.status = status;
        self.response.error = error;
    }

    /// The refusal that is of no limit, by the gateway's own error; or else a failure.
    #[cold]
    pub(crate) fn rejection(&self) -> RequestOutcome {
        let credential = [CredentialFault::Missing, CredentialFault::Invalid].map(CredentialFault::error);
        let address = [AddressRefusal::Denied, AddressRefusal::NotAllowed].map(AddressRefusal::error);
        let service = CredentialFault::Answered.error();
        match self.response.error {
            Some(error) if error == service && self.response.status == StatusCode::FORBIDDEN => {
                RequestOutcome::Forbidden
            }
            // A service that fails is not a refusal.
            Some(error) if error == service && !self.response.status.is_server_error() => {
                RequestOutcome::Unauthenticated
            }
            Some(error) if credential.contains(&error) => RequestOutcome::Unauthenticated,
            Some(error) if address.contains(&error) || error == CredentialFault::Insufficient.error() => {
                RequestOutcome::Forbidden
            }
            // Where the response of the backend had begun, its status stands.
            Some("body_too_large") if self.response.status == StatusCode::PAYLOAD_TOO_LARGE => {
                RequestOutcome::TooLarge
            }
            _ => RequestOutcome::Failed,
        }
    }
}

/// nginx's status for a client that left before its response; nothing is sent with it.
pub(crate) fn client_gone_status() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}
