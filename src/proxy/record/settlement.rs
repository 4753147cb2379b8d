//! Costs that were reserved on admission, and that are settled when the response has ended: once, before the client
//! gets the last byte of it.

use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderName, StatusCode, header};
use smallvec::SmallVec;

use super::usage::ReservedUsage;
use crate::http1::fields::Fields;
use crate::http1::syntax::split_field;
use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::measure::{BodyFormat, BodyScanner, Reading, number};
use crate::plan::cost::{self, Settle, SettleSource, SettledCost};
use crate::plan::reservation::{Reservation, ReservedCharge};
use crate::plan::resolve::RoutedRequest;
use crate::plan::{LimitIndex, TierIndex};
use crate::proxy::worker::{Worker, WorkerPlan};
use crate::store::{Charge, Correction, Group, Outcome};
use crate::telemetry::metrics::{SettledUnits, SettlementResult};

/// Bytes of a body that wait to be scanned.
const MAX_UNSCANNED: usize = 64 << 10;

/// The form of a response's body.
pub(crate) fn body_format(fields: Fields<'_>) -> BodyFormat {
    BodyFormat::of(fields.first(&header::CONTENT_TYPE).unwrap_or_default())
}

/// The reserved costs of one request. Dropped, they are settled by what is known.
#[derive(Debug)]
pub(crate) struct Settlement {
    worker: Rc<Worker>,
    /// The plan that has admitted the request.
    plan: Rc<WorkerPlan>,
    /// How the costs are found; usually one for all limits.
    rules: SmallVec<[RuleProgress; 1]>,
    reserved: SmallVec<[ReservedLimit; 1]>,
    progress: Progress,
    /// When the request was forwarded.
    forwarded: Timestamp,
    status: Option<StatusCode>,
    format: BodyFormat,
    /// The body's `content-encoding`.
    coding: Vec<u8>,
    /// Bytes of the response's body.
    bytes: u64,
    /// A copy of those that are not scanned yet: they are on their way to the client first.
    unscanned: Vec<u8>,
    /// The number of bytes with which an event stream had its first terminal event, or the data of one, or lines their last.
    ended_at: Option<u64>,
    settled: Option<SettledUnits>,
}

/// How far the request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has not been forwarded, or has reached no backend: it costs nothing.
    Unanswered,
    /// It has reached a backend, and was not answered: the backend may have worked on it.
    Lost,
    /// It is with a backend, or its response is on its way.
    Answering,
}

/// A rule, and the values found so far.
#[derive(Debug)]
struct RuleProgress {
    cost: Arc<SettledCost>,
    reserved: u32,
    /// In the order of its sources.
    readings: SmallVec<[Reading; 4]>,
    /// From the first bytes of a body on.
    scanner: Option<Box<BodyScanner>>,
    /// The cost, if a terminal event has ended its measurement.
    ended: Option<(u32, SettlementResult)>,
}

/// What is known of a response that has ended.
struct SettledResponse {
    status: Option<StatusCode>,
    format: BodyFormat,
    bytes: u64,
    /// In ms.
    duration: u64,
    complete: bool,
}

/// A limit that was charged the reservation.
#[derive(Debug)]
struct ReservedLimit {
    limit: LimitIndex,
    tier: Option<TierIndex>,
    /// The owner of its counters.
    key_hash: Option<Fingerprint>,
    /// The index of its rule.
    rule: usize,
    charges: SmallVec<[ReservedPolicy; 1]>,
    usage: Option<ReservedUsage>,
}

/// A policy that was charged the reservation. Outlives the charge.
#[derive(Debug)]
struct ReservedPolicy {
    /// The policy's index in the limit.
    policy: usize,
    key: Fingerprint,
    group: Group,
    counted_at: Timestamp,
    shared: bool,
}

impl ReservedPolicy {
    fn of(reserved: &ReservedCharge<'_>) -> Self {
        let &ReservedCharge { policy, charge: Charge { key, group, .. }, counted_at, shared } = reserved;
        Self { policy, key, group, counted_at, shared }
    }
}

impl Settlement {
    /// The reservations of an admitted request; `None`: there are none.
    #[inline]
    pub(crate) fn begin(
        worker: &Rc<Worker>,
        plan: &Rc<WorkerPlan>,
        routed: &RoutedRequest<'_, '_>,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Box<Self>> {
        let settles = routed.route.limits.iter().any(|limit_use| limit_use.cost.settled().is_some());
        if settles { Self::begin_some(worker, plan, routed, outcome, now) } else { None }
    }

    #[cold]
    fn begin_some(
        worker: &Rc<Worker>,
        plan: &Rc<WorkerPlan>,
        routed: &RoutedRequest<'_, '_>,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Box<Self>> {
        let mut settlement = Box::new(Self {
            worker: Rc::clone(worker),
            plan: Rc::clone(plan),
            rules: SmallVec::new(),
            reserved: SmallVec::new(),
            progress: Progress::Unanswered,
            forwarded: now,
            status: None,
            format: BodyFormat::default(),
            coding: Vec::new(),
            bytes: 0,
            unscanned: Vec::new(),
            ended_at: None,
            settled: None,
        });
        for reservation in routed.charges.reservations(routed.route, outcome, now) {
            let Reservation { limit, tier, key_hash, cost, reserved, charges } = reservation;
            let rule = settlement.rule(cost, reserved);
            let usage = ReservedUsage::of((plan.limit(limit), tier), &charges, routed, now);
            settlement.reserved.push(ReservedLimit {
                limit,
                tier,
                key_hash,
                rule,
                charges: charges.iter().map(ReservedPolicy::of).collect(),
                usage,
            });
        }
        (!settlement.reserved.is_empty()).then_some(settlement)
    }

    /// The index of a rule, which is added unless it is there.
    fn rule(&mut self, cost: &Arc<SettledCost>, reserved: u32) -> usize {
        if let Some(index) = self.rules.iter().position(|rule| rule.cost == *cost) {
            return index;
        }
        let sources = if let Settle::Values { sources, .. } = &cost.settle { sources.len() } else { 0 };
        let readings = SmallVec::from_elem(Reading::Absent, sources);
        self.rules.push(RuleProgress {
            cost: Arc::clone(cost),
            reserved,
            readings,
            scanner: None,
            ended: None,
        });
        self.rules.len() - 1
    }

    /// Whether a value is looked for in trailers.
    pub(crate) fn reads_trailers(&self) -> bool {
        self.rules.iter().any(RuleProgress::reads_trailers)
    }

    /// The request is on its way to a backend.
    pub(crate) fn forward(&mut self, at: Timestamp) {
        (self.forwarded, self.progress) = (at, Progress::Answering);
    }

    /// The backend answers with this head.
    pub(crate) fn head(&mut self, status: StatusCode, fields: Fields<'_>) {
        self.status = Some(status);
        self.format = body_format(fields);
        self.coding = fields.all(&header::CONTENT_ENCODING).iter().collect::<Vec<_>>().join(&b","[..]);
        for rule in &mut self.rules {
            let Settle::Values { sources, .. } = &rule.cost.settle else { continue };
            for (source, reading) in sources.iter().zip(&mut rule.readings) {
                // The trailers of a gRPC call without messages are in its head.
                if let SettleSource::Header(name) | SettleSource::Trailer(name) = source {
                    *reading = cost::header(fields, name);
                }
            }
        }
    }

    /// Bytes of the body, before they are sent on.
    pub(crate) fn body(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if bytes.is_empty() || !self.rules.iter().any(|rule| rule.reads_body(self.format)) {
            return;
        }
        if self.format != BodyFormat::Document {
            return self.scan_stream(bytes);
        }
        self.unscanned.extend_from_slice(bytes);
        if self.unscanned.len() >= MAX_UNSCANNED {
            self.scan();
        }
    }

    /// Looks for values in events and lines before they are sent on: a client may leave at a terminal event, and what it
    /// has cost is settled before its next request.
    fn scan_stream(&mut self, bytes: &[u8]) {
        let format = self.format;
        let reading = |rule: &&mut RuleProgress| rule.ended.is_none() && rule.reads_body(format);
        let mut any = false;
        for rule in self.rules.iter_mut().filter(reading) {
            rule.scan(bytes, format, &self.coding);
            any |= rule.scanner.as_ref().is_some_and(|scanner| scanner.has_ended());
        }
        let is_at_end = self.rules.iter().any(RuleProgress::is_at_end);
        self.ended_at = is_at_end.then(|| self.ended_at.unwrap_or(self.bytes));
        if any {
            self.end_measurements();
        }
    }

    /// A terminal event has passed: the costs that are read from events are known, but for those of trailers.
    #[cold]
    fn end_measurements(&mut self) {
        let response = self.response(true);
        for rule in self.rules.iter_mut().filter(|rule| rule.ended.is_none() && !rule.reads_trailers()) {
            if rule.scanner.as_ref().is_some_and(|scanner| scanner.has_ended()) {
                rule.ended = Some(rule.result(&response));
            }
        }
        if self.rules.iter().all(|rule| rule.ended.is_some()) {
            self.settle(true);
        }
    }

    /// Whether a client that has got this many bytes of the body, and leaves, has got a terminal event, or the last line.
    pub(crate) fn has_ended(&self, sent: u64) -> bool {
        self.ended_at.is_some_and(|ended_at| sent >= ended_at)
    }

    /// Looks for values in the bytes of a document so far. Called when they are on their way to the client, and at the end.
    pub(crate) fn scan(&mut self) {
        if self.unscanned.is_empty() {
            return;
        }
        for rule in self.rules.iter_mut().filter(|rule| rule.reads_body(self.format)) {
            rule.scan(&self.unscanned, self.format, &self.coding);
        }
        self.unscanned.clear();
    }

    /// The response is complete, with these trailer lines: the costs are settled.
    pub(crate) fn finish(&mut self, trailers: &[u8]) {
        for rule in &mut self.rules {
            let Settle::Values { sources, .. } = &rule.cost.settle else { continue };
            for (source, reading) in sources.iter().zip(&mut rule.readings) {
                if let SettleSource::Trailer(name) = source
                    && let Some(found) = trailer(trailers, name)
                {
                    *reading = found;
                }
            }
        }
        self.settle(true);
    }

    /// An upgraded connection has ended, on which the backend has sent this many bytes.
    pub(crate) fn finish_tunnel(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.settle(true);
    }

    /// A backend that may have worked on the request has not answered it: nothing is measured.
    pub(crate) fn lose(&mut self) {
        self.progress = Progress::Lost;
        self.settle(false);
    }

    /// The request has reached no backend: everything is given back.
    pub(crate) fn give_back(&mut self) {
        self.progress = Progress::Unanswered;
        self.settle(false);
    }

    /// The request is over: its costs are settled, if they were not. Returns those of the first limit.
    pub(crate) fn end(&mut self) -> Option<SettledUnits> {
        self.settle(false);
        self.settled
    }

    /// What is known of the response now.
    fn response(&self, complete: bool) -> SettledResponse {
        let now = self.worker.shared.clock.now();
        SettledResponse {
            status: self.status,
            format: self.format,
            bytes: self.bytes,
            duration: now.since(self.forwarded).0.div_ceil(1_000),
            complete,
        }
    }

    fn settle(&mut self, complete: bool) {
        if self.settled.is_some() {
            return;
        }
        self.scan();
        let now = self.worker.shared.clock.now();
        let response = self.response(complete);
        let results: SmallVec<[SettledUnits; 1]> = self
            .rules
            .iter_mut()
            .map(|rule| {
                let reserved = rule.reserved;
                let (units, result) = match self.progress {
                    Progress::Unanswered => (0, SettlementResult::NoAnswer),
                    Progress::Lost => (rule.missing(), SettlementResult::Incomplete),
                    Progress::Answering => rule.ended.unwrap_or_else(|| rule.result(&response)),
                };
                SettledUnits { reserved, units, result }
            })
            .collect();
        self.settled = results.first().copied();
        for reserved in &self.reserved {
            let Some(settled) = results.get(reserved.rule) else { continue };
            self.plan.metrics.settled(reserved.limit, *settled);
            if let (Some(key_hash), Some(key_stats)) =
                (reserved.key_hash, self.plan.key_stats.get(reserved.limit.0))
            {
                key_stats.borrow_mut().settled(key_hash, settled.units, now);
            }
            let difference = i64::from(settled.units) - i64::from(settled.reserved);
            if difference != 0 {
                reserved.correct(&self.plan, difference, now);
                if let Some(usage) = &reserved.usage {
                    usage.record(self.worker.shared.store.usage(), difference);
                }
            }
        }
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        self.settle(false);
    }
}

impl ReservedLimit {
    fn correct(&self, plan: &WorkerPlan, difference: i64, now: Timestamp) {
        let (limit, known) = (plan.limit(self.limit), plan.counters.known(now));
        let overridden = self.key_hash.and_then(|key_hash| plan.overridden(limit, key_hash, known));
        let policies = overridden.unwrap_or_else(|| limit.policies_of(self.tier));
        for &ReservedPolicy { policy, key, group, counted_at, shared } in &self.charges {
            let Some(policy) = policies.get(policy) else { continue };
            let charge = Charge {
                algorithm: &policy.algorithm,
                params: policy.params,
                key,
                cost: Cost::ZERO,
                group,
                shared_key: &policy.shared_key,
            };
            plan.counters.settle(&Correction { charge, counted_at, difference, shared }, now);
        }
    }
}

impl RuleProgress {
    /// Whether it has values in a body of this form.
    fn reads_body(&self, format: BodyFormat) -> bool {
        match &self.cost.settle {
            Settle::Values { in_events, .. } if format == BodyFormat::Events => !in_events.is_empty(),
            Settle::Values { in_document, .. } => !in_document.is_empty(),
            Settle::Status(_) => false,
        }
    }

    /// Whether it has values in trailers, which follow the last event of a stream.
    fn reads_trailers(&self) -> bool {
        let is_trailer = |source: &SettleSource| matches!(source, SettleSource::Trailer(_));
        matches!(&self.cost.settle, Settle::Values { sources, .. } if sources.iter().any(is_trailer))
    }

    /// The units where no value was found.
    fn missing(&self) -> u32 {
        self.cost.missing.unwrap_or(self.reserved)
    }

    /// Whether the client has got a terminal event, or the data of one, or the last line.
    fn is_at_end(&self) -> bool {
        self.scanner.as_ref().is_some_and(|scanner| scanner.is_at_end())
    }

    /// Whether a later event or document may have a larger value.
    fn awaits_more(&self, format: BodyFormat) -> bool {
        let is_stream = format != BodyFormat::Document && self.reads_body(format);
        let awaits_document = || self.scanner.as_ref().is_some_and(|scanner| scanner.awaits_document());
        !self.is_at_end() && (is_stream || awaits_document())
    }

    fn scan(&mut self, bytes: &[u8], format: BodyFormat, coding: &[u8]) {
        let Settle::Values { in_events, in_document, ends, .. } = &self.cost.settle else { return };
        let begin = || {
            Box::new(match format {
                BodyFormat::Events => BodyScanner::new(Arc::clone(in_events), coding).until(ends.clone()),
                BodyFormat::Lines => BodyScanner::lines(in_document, coding),
                BodyFormat::Document => BodyScanner::new(Arc::clone(in_document), coding),
            })
        };
        self.scanner.get_or_insert_with(begin).scan(bytes);
    }

    /// The cost. Of a response that is not complete, a value may be missing that its end would have had, and an event or a
    /// document may have been followed by one with a larger value: the cost is not below `missing` then, so that a client
    /// can't save by leaving. A stream with a terminal event is complete, but for trailers.
    fn result(&mut self, response: &SettledResponse) -> (u32, SettlementResult) {
        let &SettledResponse { status, format, bytes, duration, complete } = response;
        let awaits_more = self.awaits_more(format);
        let is_whole = complete;
        let complete = complete || self.is_at_end() && !self.reads_trailers();
        let missing = self.missing();
        let (sources, scale) = match &self.cost.settle {
            Settle::Status(costs) => {
                return match status {
                    Some(status) => {
                        (costs.units(status).unwrap_or(self.reserved), SettlementResult::Measured)
                    }
                    None => (missing, SettlementResult::Incomplete),
                };
            }
            Settle::Values { sources, scale, .. } => (sources, scale),
        };
        let mut in_body =
            self.scanner.as_mut().map(|scanner| scanner.finish(is_whole)).unwrap_or_default().into_iter();
        let (mut sum, mut any, mut absent) = (0_u64, false, awaits_more);
        let fitting = sources.iter().zip(&self.readings).filter(|(source, _)| source.fits(format));
        for (source, reading) in fitting {
            let reading = match source {
                SettleSource::Header(_) | SettleSource::Trailer(_) => *reading,
                SettleSource::Body(_) => in_body.next().unwrap_or_default(),
                // Without a response there is no length, and a client could leave before it for nothing.
                SettleSource::Bytes => status.map_or(Reading::Absent, |_| Reading::Value(bytes)),
                SettleSource::Duration => Reading::Value(duration),
            };
            match reading {
                Reading::Value(value) => (sum, any) = (sum.saturating_add(value), true),
                Reading::Absent => absent = true,
                Reading::Unreadable => return (missing, SettlementResult::Unreadable),
            }
        }
        let units = scale.units(sum);
        match (any, absent && !complete) {
            (false, false) => (missing, SettlementResult::Missing),
            (false, true) => (missing, SettlementResult::Incomplete),
            (true, true) => (units.max(missing), SettlementResult::Incomplete),
            (true, false) if sum.div_ceil(scale.per.get()) > u64::from(scale.max) => {
                (units, SettlementResult::Capped)
            }
            (true, false) => (units, SettlementResult::Measured),
        }
    }
}

/// The number in a trailer. Two of the name are no number.
fn trailer(lines: &[u8], name: &HeaderName) -> Option<Reading> {
    let mut values = lines.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let (found, _, value) = split_field(line.strip_suffix(b"\r\n").unwrap_or(line)).ok()?;
        found.eq_ignore_ascii_case(name.as_str().as_bytes()).then_some(value)
    });
    let first = values.next()?;
    Some(if values.next().is_some() { Reading::Unreadable } else { number(first) })
}
