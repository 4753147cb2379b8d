//! Decides whether a request is traced, and assigns its ids.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::limit::units::{Micros, Timestamp};
use crate::plan::log::Sample;
use crate::plan::{Plan, Trace};
use crate::telemetry::access_log::Record;
use crate::telemetry::trace::context::{Context, SpanId, TraceId};
use crate::telemetry::trace::span::{RequestSpan, bounded};

/// Requests a second for which a worker follows an untrusted client's `sampled` flag. Further ones are treated like
/// requests without a trace: otherwise any client could make the collector receive everything it sends.
const MAX_BELIEVED: u32 = 100;

/// One worker's source of ids and sampling decisions.
#[derive(Debug)]
pub(crate) struct Tracer {
    /// Keyed at random, so that no other worker generates the same ids.
    names: RandomState,
    made: Cell<u64>,
    phase: Cell<u64>,
    /// The second in which untrusted flags were last followed, and how often.
    believed: Cell<(u64, u32)>,
}

/// A request's place in a trace.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    context: Context,
    /// The request has a `traceparent` that is followed.
    pub(crate) continued: bool,
    /// The span to be exported, if the trace is recorded.
    pub(crate) span: Option<Box<RequestSpan>>,
}

impl Tracer {
    pub(crate) fn new() -> Self {
        let names = RandomState::new();
        let phase = Cell::new(names.hash_one("phase"));
        Self { names, made: Cell::new(0), phase, believed: Cell::default() }
    }

    /// Places a request in the trace that it names, or in a new one. Without a head, it names none.
    pub(crate) fn begin(
        &self,
        plan: &Plan,
        trace: &Arc<Trace>,
        fields: Fields<'_>,
        (peer, scheme): (IpAddr, &'static str),
        now: Timestamp,
    ) -> RequestTrace {
        let parent = parent(fields);
        let believed = || plan.server.client.trusts(peer) || self.believes(now);
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
                scheme,
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

    /// Whether an untrusted client's flag is followed once more in this second.
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

    pub(crate) fn span_id(&self) -> SpanId {
        loop {
            if let Some(id) = SpanId::new(self.number().to_be_bytes()) {
                return id;
            }
        }
    }

    /// A number that is random without knowledge of the keys.
    fn number(&self) -> u64 {
        let made = self.made.get();
        self.made.set(made.wrapping_add(1));
        self.names.hash_one(made)
    }
}

/// The parent span; a request with two `traceparent` headers has none.
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

    /// The trace's id.
    pub(crate) fn id(&self) -> TraceId {
        self.context.trace
    }

    /// The `traceparent` for the backend: the span that the request is sent by.
    pub(crate) fn onward(&self) -> [u8; 55] {
        let way = self.span.as_ref().and_then(|span| span.forwarded.as_ref());
        Context { span: way.map_or(self.context.span, |way| way.span), ..self.context }.text()
    }
}
