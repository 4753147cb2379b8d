//! One request's turn on its connection: what is known of it, and what is recorded when it is over, however it ends.

use std::net::IpAddr;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;
use smallvec::SmallVec;

use super::grpc;
use super::local_response::ResponseOptions;
use super::peer::ConnectionPeer;
use super::request_body::BodyOptions;
use super::tracer::RequestTrace;
use super::worker::{Worker, WorkerPlan};
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::limit::units::{Micros, Timestamp};
use crate::plan::RequestIds;
use crate::route::RouteIndex;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::RequestOutcome;
use crate::telemetry::refusal_samples;

/// One request's ctx. Dropped, it is counted and logged (`accounting.rs`).
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) worker: Rc<Worker>,
    /// The plan that was in force when it began.
    pub(crate) plan: Rc<WorkerPlan>,
    /// When its head had come.
    pub(crate) started: Timestamp,
    pub(crate) route: Option<RouteIndex>,
    /// The answer's; until there is one, that of a client that left.
    pub(crate) status: StatusCode,
    /// Body bytes that came.
    pub(crate) received: u64,
    /// Body bytes that went.
    pub(crate) sent: u64,
    /// Why tollgate itself answered, or why the answer is not whole; until there is one, that the client left.
    pub(crate) error: Option<&'static str>,
    /// What the limits made of it.
    pub(crate) fate: RequestOutcome,
    /// How long a leaky bucket has it wait in its queue.
    pub(crate) delay: Micros,
    /// What is told of it if it is refused or fails.
    pub(super) refusal_sample: RefusalSample,
    /// Who asks, as soon as that is known.
    pub(crate) client: Option<IpAddr>,
    /// `x-request-id`: ours, or what a trusted proxy sent.
    pub(crate) request_id: SmallVec<[u8; 64]>,
    /// What scripts of another site need to read the answer, as lines of its head.
    pub(crate) cors: BytesMut,
    /// The rest of the access record, if there is an access log.
    pub(crate) record: Option<Box<Record>>,
    /// Its place in a trace, if requests are traced.
    pub(crate) trace: Option<RequestTrace>,
    /// The log tells of this request even if it is an ordinary one.
    pub(super) sampled: bool,
    /// The form of its answer.
    pub(crate) form: ResponseOptions,
    /// How its body is taken, until it is.
    pub(crate) terms: BodyOptions,
}

/// What is to be told of a request if it is refused or fails.
#[derive(Debug, Default)]
pub(crate) enum RefusalSample {
    /// It was not asked yet whether anything is.
    #[default]
    Undecided,
    /// Nothing: there are enough of this second.
    Waived,
    /// This.
    Kept(Box<refusal_samples::SampledRefusal>),
}

impl RequestContext {
    pub(crate) fn begin(worker: &Rc<Worker>, peer: &ConnectionPeer) -> Self {
        Self {
            plan: worker.plan(),
            started: worker.shared.clock.now(),
            worker: Rc::clone(worker),
            route: None,
            status: client_gone_status(),
            received: 0,
            sent: 0,
            error: Some("client_gone"),
            fate: RequestOutcome::Admitted,
            delay: Micros(0),
            refusal_sample: RefusalSample::Undecided,
            client: None,
            request_id: SmallVec::from_slice(&worker.next_request_id()),
            cors: BytesMut::new(),
            record: None,
            trace: None,
            sampled: false,
            form: ResponseOptions::unread(peer.http2),
            terms: BodyOptions::default(),
        }
    }

    /// Takes from the head what outlives it. `may_keep`: the connection may stay open behind the answer.
    pub(crate) fn take_head(&mut self, peer: &ConnectionPeer, head: &RequestHead<'_>, may_keep: bool) {
        self.keep_request_id(peer, head);
        self.form = ResponseOptions {
            http_11: head.http_11,
            to_head: head.method == "HEAD",
            keep: may_keep && head.keep_alive,
            http2: peer.http2,
            // gRPC is a protocol over HTTP/2: over HTTP/1.1 its media type has no meaning here.
            grpc: peer.http2 && grpc::is_call(head),
        };
        self.terms = BodyOptions::of(head);
    }

    /// Takes the request id over that a trusted proxy has given the request.
    fn keep_request_id(&mut self, peer: &ConnectionPeer, head: &RequestHead<'_>) {
        let Some(sent) = head.fields.known(Name::XRequestId).filter(|sent| !sent.is_empty()) else { return };
        if self.plan.gateway.server.client.trusts(peer.address) {
            self.request_id = SmallVec::from_slice(sent);
        }
    }

    /// The `x-request-id` of an answer that the gateway makes itself; empty if that has none.
    pub(crate) fn own_request_id(&self) -> &[u8] {
        match self.plan.gateway.server.request_id {
            RequestIds::Own | RequestIds::All => &self.request_id,
            RequestIds::Off => &[],
        }
    }

    /// By ourselves, for this reason.
    pub(crate) fn answered(&mut self, status: StatusCode, error: Option<&'static str>) {
        self.status = status;
        self.error = error;
    }
}

/// nginx's number for a client that left before its answer; nothing is sent with it.
pub(crate) fn client_gone_status() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}
