//! One request's turn on its connection: what is known of it, and what is recorded when it is over, however it ends.

use std::net::IpAddr;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;
use smallvec::SmallVec;

use super::peer::Peer;
use super::recorder;
use super::tracer::Traced;
use super::worker::{Plan, Worker};
use crate::gateway::RequestIds;
use crate::gateway::log::AccessLog;
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::limit::units::{Micros, Timestamp};
use crate::route::RouteIndex;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::Fate;
use crate::telemetry::refusals;

/// One request's turn. Dropped, it is counted and logged (`accounting.rs`).
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) worker: Rc<Worker>,
    /// The plan that was in force when it began.
    pub(crate) plan: Rc<Plan>,
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
    pub(crate) fate: Fate,
    /// How long a leaky bucket has it wait in its queue.
    pub(crate) delay: Micros,
    /// What is told of it if it is refused or fails.
    pub(super) testimony: Testimony,
    /// Who asks, as soon as that is known.
    pub(crate) client: Option<IpAddr>,
    /// `x-request-id`: ours, or what a trusted proxy sent.
    pub(crate) request_id: SmallVec<[u8; 64]>,
    /// What scripts of another site need to read the answer, as lines of its head.
    pub(crate) cors: BytesMut,
    /// The rest of the access record, if there is an access log.
    pub(crate) record: Option<Box<Record>>,
    /// Its place in a trace, if requests are traced.
    pub(crate) trace: Option<Traced>,
    /// The log tells of this request even if it is an ordinary one.
    pub(super) sampled: bool,
}

/// What is to be told of a request if it is refused or fails.
#[derive(Debug, Default)]
pub(crate) enum Testimony {
    /// It was not asked yet whether anything is.
    #[default]
    Open,
    /// Nothing: there are enough of this second.
    Waived,
    /// This.
    Kept(Box<refusals::Refusal>),
}

impl Turn {
    pub(crate) fn begin(worker: &Rc<Worker>) -> Self {
        Self {
            plan: worker.plan(),
            started: worker.shared.clock.now(),
            worker: Rc::clone(worker),
            route: None,
            status: client_gone_status(),
            received: 0,
            sent: 0,
            error: Some("client_gone"),
            fate: Fate::Admitted,
            delay: Micros(0),
            testimony: Testimony::Open,
            client: None,
            request_id: SmallVec::from_slice(&worker.next_request_id()),
            cors: BytesMut::new(),
            record: None,
            trace: None,
            sampled: false,
        }
    }

    /// Takes the request id over that a trusted proxy has given the request.
    pub(crate) fn keep_request_id(&mut self, peer: &Peer, head: &RequestHead<'_>) {
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

    /// Begins the access record, unless there is no access log, the request is not traced, and there is no trouble that is to be told
    /// of. Without a head, it was refused unread.
    pub(crate) fn open_record(&mut self, peer: &Peer, head: Option<&RequestHead<'_>>) {
        let gateway = &self.plan.gateway;
        if let Some(trace) = &gateway.trace {
            let fields = head.map_or(Fields::NONE, |head| head.fields);
            self.trace = Some(self.worker.tracer.begin(gateway, trace, fields, peer, self.started));
        }
        let logged = gateway.log.access != AccessLog::Off;
        let traced = self.trace.as_ref().is_some_and(Traced::is_recorded);
        if !logged && !traced && !self.worker.is_troubled(self.started) {
            return;
        }
        self.sampled = logged && self.worker.recorder.chooses(gateway.log.sample);
        let mut record = self.worker.recorder.take();
        let client = gateway.server.client.client(peer.address).address;
        recorder::begin(&mut record, self.started, head, client, peer.http2);
        String::from_utf8_lossy(&self.request_id).as_ref().clone_into(&mut record.request_id);
        if let (AccessLog::Combined, Some(head)) = (&gateway.log.access, head) {
            recorder::note_agent(&mut record, head);
        }
        record.trace_id = self.trace.as_ref().map(Traced::id);
        self.record = Some(record);
    }

    /// By ourselves, for this reason.
    pub(crate) fn answered(&mut self, status: StatusCode, error: Option<&'static str>) {
        self.status = status;
        self.error = error;
    }

    /// What became of it in the end. A refusal stays one if the client did not wait for it. A backend's 5xx is a failure: to the
    /// client there is no difference.
    pub(super) fn fate(&self) -> Fate {
        let failed = self.error.is_some() || self.status.is_server_error();
        match self.fate {
            Fate::Admitted | Fate::Delayed if failed => Fate::Failed,
            fate => fate,
        }
    }
}

/// nginx's number for a client that left before its answer; nothing is sent with it.
pub(crate) fn client_gone_status() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}
