//! The record of a request for the access log: begun with the head, and filled in as more becomes known.

use std::net::IpAddr;

use http::{Method, Version};

use super::log_capture;
use super::request_context::RequestContext;
use crate::http1::fields::Fields;
use crate::http1::request::RequestHead;
use crate::limit::units::Timestamp;
use crate::limit::wall_clock;
use crate::plan::log::AccessLog;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::worker::tracer::RequestTrace;
use crate::telemetry::access_log::Record;

impl RequestContext {
    /// Begins the access record, unless there is no access log, the request is not traced, and no request failed
    /// recently. Without a head, the request was refused unread.
    pub(crate) fn open_record(&mut self, peer: &ConnectionPeer, head: Option<&RequestHead<'_>>) {
        let plan = &self.plan;
        if let Some(trace) = &plan.trace {
            let fields = head.map_or(Fields::NONE, |head| head.fields);
            self.log.trace = Some(self.worker.tracer.begin(
                plan,
                trace,
                fields,
                (peer.address, peer.scheme),
                self.started,
            ));
        }
        let logged = plan.log.access != AccessLog::Off;
        let traced = self.log.trace.as_ref().is_some_and(RequestTrace::is_recorded);
        if !logged && !traced && !self.worker.is_troubled(self.started) {
            return;
        }
        self.log.sampled = logged && self.worker.recorder.chooses(plan.log.sample);
        let mut record = self.worker.recorder.take();
        let client = plan.server.client.client(peer.address).address;
        begin(&mut record, self.started, head, client, peer.version);
        String::from_utf8_lossy(&self.request_id).as_ref().clone_into(&mut record.request_id);
        if let Some(head) = head {
            log_capture::note_request(&mut record, plan, head);
        }
        record.trace_id = self.log.trace.as_ref().map(RequestTrace::id);
        self.log.record = Some(record);
    }

    /// Notes the client and the host.
    pub(crate) fn identify(&mut self, client: IpAddr, host: &str) {
        self.client = Some(client);
        if let Some(record) = &mut self.log.record {
            record.client = client;
            host.clone_into(&mut record.request.host);
        }
    }

    /// Cuts credentials out of the logged path.
    pub(crate) fn cut_credentials(&mut self) {
        // Most plans have no auth.
        if !self.plan.auths.is_empty()
            && self.plan.hides_queries()
            && let Some(record) = &mut self.log.record
        {
            self.plan.cut_credentials(&mut record.request.path);
        }
    }
}

/// Begins the record of a request; the rest is filled in as it becomes known. A request refused unread has neither
/// method nor target: the record says `-`.
fn begin(
    record: &mut Record,
    started: Timestamp,
    head: Option<&RequestHead<'_>>,
    client: IpAddr,
    version: Version,
) {
    *record = std::mem::take(record).emptied();
    record.time = wall_clock::system().wall_time(started);
    record.client = client;
    record.request.method = head.map_or_else(no_method, |head| head.method.clone());
    record.request.version = match head {
        _ if version >= Version::HTTP_2 => version,
        Some(head) if !head.http_11 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    head.map_or("-", |head| head.target.path_and_query()).clone_into(&mut record.request.path);
}

fn no_method() -> Method {
    Method::from_bytes(b"-").unwrap_or_default()
}
