//! Whether a request is traced, and under which names.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::peer::ConnectionPeer;
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::limit::units::{Micros, Timestamp};
use crate::plan::Plan;
use crate::plan::log::Sample;
use crate::plan::trace::Trace;
use crate::telemetry::access_log::Record;
use crate::telemetry::trace::context::{Context, SpanId, TraceId};
use crate::telemetry::trace::span::{RequestSpan, bounded};

/// Requests a second of which a worker believes strangers that their trace is recorded. What more of them come are like
/// requests of no trace: else anybody could make the collector take whatever they send.
const MAX_BELIEVED: u32 = 100;

/// One worker's source of names and choices.
#[derive(Debug)]
pub(crate) struct Tracer {
    /// Keyed at random, so that no other worker makes the same names.
    names: RandomState,
    made: Cell<u64>,
    phase: Cell<u64>,
    /// The second in which strangers were believed last, and how often.
    believed: Cell<(u64, u32)>,
}

/// A request's place in a trace.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    context: Context,
    /// It came with a `traceparent` that is followed.
    pub(super) continued: bool,
    /// What is to be exported, if it is recorded.
    pub(super) span: Option<Box<RequestSpan>>,
}

impl Tracer {
    pub(crate) fn new() -> Self {
        let names = RandomState::new();
        let phase = Cell::new(names.hash_one("phase"));
        Self { names, made: Cell::new(0), phase, believed: Cell::default() }
    }

    /// Gives a request its place: in the trace that it names, or in a new one. Without a head, it names none.
    pub(crate) fn begin(
        &self,
        gateway: &Plan,
        trace: &Arc<Trace>,
        fields: Fields<'_>,
        peer: &ConnectionPeer,
        now: Timestamp,
    ) -> RequestTrace {
        let parent = parent(fields);
        let believed = || gateway.server.client.trusts(peer.address) || self.believes(now);
        let sampled = match &parent {
            Some(parent) => parent.sampled && (believed() || self.chooses(trace.sample)),
            None => self.chooses(trace.sample),
        };
        let context = Context {
            trace: parent.map_or_else(|| self.trace_id(), |parent| parent.trace),
            span: self.span_id(),
            sampled,
            random: parent.is_some_and(|parent| parent.random),
        };
        let span = sampled.then(|| {
            Box::new(RequestSpan {
                trace: Arc::clone(trace),
                context,
                parent: parent.map(|parent| parent.span),
                state: if parent.is_some() { state(fields) } else { String::new() },
                scheme: peer.scheme,
                pattern: String::new(),
                delay: None,
                forwarded: None,
                record: Record::default(),
            })
        });
        RequestTrace { context, continued: parent.is_some(), span }
    }

    fn chooses(&self, sample: Sample) -> bool {
        let mut phase = self.phase.get();
        let chosen = sample.chooses(&mut phase);
        self.phase.set(phase);
        chosen
    }

    /// Whether a stranger's word is taken once more in this second.
    fn believes(&self, now: Timestamp) -> bool {
        let second = now.0 / Micros::SECOND.0;
        let (last, count) = self.believed.get();
        let count = if last == second { count } else { 0 };
        self.believed.set((second, (count + 1).min(MAX_BELIEVED)));
        count < MAX_BELIEVED
    }

    fn trace_id(&self) -> TraceId {
        loop {
            let [high, low] = [self.number().to_be_bytes(), self.number().to_be_bytes()];
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(high.into_iter().chain(low)).for_each(|(to, from)| *to = from);
            if let Some(id) = TraceId::new(bytes) {
                return id;
            }
        }
    }

    pub(super) fn span_id(&self) -> SpanId {
        loop {
            if let Some(id) = SpanId::new(self.number().to_be_bytes()) {
                return id;
            }
        }
    }

    /// A number that is random to all who do not know the keys.
    fn number(&self) -> u64 {
        let made = self.made.get();
        self.made.set(made.wrapping_add(1));
        self.names.hash_one(made)
    }
}

/// Whom the request comes from; two that say so say nothing.
fn parent(fields: Fields<'_>) -> Option<Context> {
    let mut parents = fields.all_known(Name::Traceparent);
    let parent = parents.next()?;
    if parents.next().is_some() { None } else { Context::parse(parent) }
}

/// `tracestate`, its lines joined.
fn state(fields: Fields<'_>) -> String {
    let lines: Vec<_> = fields.all_known(Name::Tracestate).map(String::from_utf8_lossy).collect();
    bounded(&lines.join(",")).to_owned()
}

impl RequestTrace {
    /// Whether a span is to be exported.
    pub(crate) fn is_recorded(&self) -> bool {
        self.span.is_some()
    }

    /// Which trace it belongs to.
    pub(crate) fn id(&self) -> TraceId {
        self.context.trace
    }

    /// What the backend is to see: the span that the request is sent by.
    pub(crate) fn onward(&self) -> [u8; 55] {
        let way = self.span.as_ref().and_then(|span| span.forwarded.as_ref());
        Context { span: way.map_or(self.context.span, |way| way.span), ..self.context }.text()
    }
}
