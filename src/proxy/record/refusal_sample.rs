//! Samples of refused and failed requests. Their texts are made only where a sample is kept.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;

use super::request_context::{RefusalSample, RequestContext};
use crate::http1::request::RequestHead;
use crate::limit::display::ShortDisplay;
use crate::limit::units::{Fingerprint, Timestamp};
use crate::limit::wall_clock;
use crate::plan::LimitIndex;
use crate::plan::admission::{BindingLimit, LimitCheck, Refusal, RefusalCause};
use crate::plan::auth::AuthFailure;
use crate::plan::resolve::RoutedRequest;
use crate::telemetry::metrics::RequestOutcome;
use crate::telemetry::refusal_samples::{self, RefusingLimit};

/// The maximum number of characters of a host or a path.
const MAX_TEXT: usize = 200;

impl RequestContext {
    /// Samples a request that a limit refuses.
    pub(crate) fn sample_refusal(
        &mut self,
        routed: &RoutedRequest<'_, '_>,
        refusal: &Refusal<'_>,
        tightest: Option<&BindingLimit<'_>>,
    ) {
        let call = tightest.map(|tightest| tightest.call);
        let refuses = |check: &&LimitCheck<'_>| {
            std::ptr::eq(check.limit, refusal.limit) && call.is_none_or(|call| call == check.call)
        };
        let Some(check) = routed.charges.checks.iter().find(refuses) else { return };
        let Some(limit) = routed.route.limits.get(usize::from(check.place)) else { return };
        self.sample_of(routed, (limit.limit, check), refusal, tightest);
    }

    /// Samples a request whose credential the limit on wrong ones refuses.
    #[cold]
    pub(crate) fn sample_refused_credential(
        &mut self,
        routed: &RoutedRequest<'_, '_>,
        failure: AuthFailure,
        refusal: &Refusal<'_>,
        tightest: Option<&BindingLimit<'_>>,
    ) {
        let limit = self.plan.auth(failure.auth).failures.zip(routed.charges.checks.first());
        let Some(limit) = limit else { return };
        self.sample_of(routed, limit, refusal, tightest);
    }

    fn sample_of(
        &mut self,
        routed: &RoutedRequest<'_, '_>,
        (limit, check): (LimitIndex, &LimitCheck<'_>),
        refusal: &Refusal<'_>,
        tightest: Option<&BindingLimit<'_>>,
    ) {
        if self.keeps(Some(limit.0)) {
            let mut kept = self.sample_head(routed.head(), routed.request().host);
            let label = |key_hash: Fingerprint| {
                let mut label = String::new();
                self.write_label(routed, check, &mut label);
                (key_hash, label)
            };
            kept.by = Some(RefusingLimit {
                limit: Arc::clone(&check.limit.name),
                key: routed.charges.key_hash(check).map(label),
                cost: tightest.map(|tightest| tightest.cost.units()),
                retry_after: refusal.retry_after(),
            });
            kept.reason = reason(refusal, tightest);
            self.log.refusal = RefusalSample::Kept(kept);
        }
    }

    /// Samples a call that a limit refuses. `head`: what is shown as its method, host and path.
    pub(crate) fn sample_call(
        &mut self,
        [method, host, path]: [&str; 3],
        by: (LimitIndex, impl FnOnce() -> Option<(Fingerprint, String)>),
        refusal: &Refusal<'_>,
        tightest: Option<&BindingLimit<'_>>,
    ) {
        let (limit, key) = by;
        if self.keeps(Some(limit.0)) {
            let mut kept = Box::new(refusal_samples::SampledRefusal {
                method: Method::from_bytes(method.as_bytes()).ok(),
                host: Some(cut(host)),
                path: Some(cut(path)),
                ..self.base()
            });
            kept.by = Some(RefusingLimit {
                limit: Arc::clone(&refusal.limit.name),
                key: key(),
                cost: tightest.map(|tightest| tightest.cost.units()),
                retry_after: refusal.retry_after(),
            });
            kept.reason = reason(refusal, tightest);
            self.log.refusal = RefusalSample::Kept(kept);
        }
    }

    /// Samples a request refused before any limit was checked, or since none can be.
    pub(crate) fn sample_rejection(&mut self, head: &RequestHead<'_>, host: &str) {
        if matches!(self.log.refusal, RefusalSample::Undecided) && self.keeps(None) {
            self.log.refusal = RefusalSample::Kept(self.sample_head(head, host));
        }
    }

    /// Whether another sample is kept. If not, the request is only counted.
    fn keeps(&mut self, limit: Option<usize>) -> bool {
        let worker = &self.worker;
        let keeps = worker.shared.refusals.admits(worker.index(), limit, self.started);
        self.log.refusal = RefusalSample::Waived;
        keeps
    }

    /// The sample's texts, made while the request head is there.
    #[cold]
    fn sample_head(&self, head: &RequestHead<'_>, host: &str) -> Box<refusal_samples::SampledRefusal> {
        Box::new(refusal_samples::SampledRefusal {
            method: Some(head.method.clone()),
            host: Some(cut(host)),
            path: Some(cut(head.target.path)),
            ..self.base()
        })
    }

    /// The data of the sample that need no head.
    fn base(&self) -> refusal_samples::SampledRefusal {
        refusal_samples::SampledRefusal {
            time: self.started,
            method: None,
            host: None,
            path: None,
            route: self.route.map(|route| Arc::clone(&self.plan.route(route).name)),
            status: self.response.status,
            client: self.client,
            by: None,
            server: None,
            reason: Cow::Borrowed(""),
        }
    }

    /// Records the sample of a request that ended refused or failed.
    #[inline(never)]
    pub(crate) fn record_refusal(&mut self, outcome: RequestOutcome) {
        let mut kept = match std::mem::take(&mut self.log.refusal) {
            RefusalSample::Waived => return,
            RefusalSample::Kept(kept) => *kept,
            RefusalSample::Undecided if self.keeps(None) => self.sample_record(),
            RefusalSample::Undecided => return,
        };
        kept.status = self.response.status;
        if outcome != RequestOutcome::Refused {
            // Without an error of the gateway's own, it is the backend's 5xx.
            kept.reason = Cow::Borrowed(self.response.error.unwrap_or("answer of the backend"));
            let server = self.log.record.as_ref().map(|record| record.upstream.server.as_str());
            kept.server = server.filter(|server| !server.is_empty()).map(str::to_owned);
        }
        self.worker.shared.refusals.keep(kept);
    }

    /// The sample of a request without its head, made from its access record.
    fn sample_record(&self) -> refusal_samples::SampledRefusal {
        let base = self.base();
        match &self.log.record {
            // More such requests may follow: they are to have records, with or without an access log.
            None => {
                self.worker.troubled.set(self.started);
                base
            }
            // Refused unread.
            Some(record) if record.request.path == "-" => base,
            Some(record) => refusal_samples::SampledRefusal {
                method: Some(record.request.method.clone()),
                host: Some(cut(&record.request.host)),
                path: record.request.path.split('?').next().map(cut),
                client: Some(record.client),
                ..base
            },
        }
    }
}

/// The reason for the refusal, as text.
fn reason(refusal: &Refusal<'_>, tightest: Option<&BindingLimit<'_>>) -> Cow<'static, str> {
    match (refusal.why, tightest) {
        (RefusalCause::Banned { until, cause, .. }, _) => {
            format!("banned until {}: {}", time_of_day(until), refusal.limit.ban_cause(cause)).into()
        }
        (RefusalCause::Unreadable(fault), _) => fault.to_string().into(),
        (RefusalCause::Repeated, _) => "a part of the key has several values".into(),
        (RefusalCause::Overloaded, _) => "the backend is overloaded".into(),
        (RefusalCause::OverShare, _) => "over its share of the places while others wait".into(),
        (RefusalCause::Over { .. } | RefusalCause::InFlight, Some(tightest)) => {
            format!("over {}", ShortDisplay(&tightest.policy.algorithm)).into()
        }
        _ => "a part of the key is missing".into(),
    }
}

/// `HH:MM:SS`, in UTC.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    let second = wall_clock::system().wall_time(at).seconds() % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}
