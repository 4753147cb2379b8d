//! Explains a call on descriptors: which rule each descriptor gets, and what its limits are charged.
//!
//! A call is written as the access log has it: with the method `descriptors`, the domain in place of the host, and the
//! entries in place of the path. For example, `descriptors http://shop/generic_key=search,remote_address=192.0.2.7*10`.

use http::StatusCode;

use super::request::DescribedCall;
use super::{ExplainRequest, ExplainedAnswer, Explanation, LimitExplanation, LimitStatus, MAX_TOLD};
use crate::limit::units::Cost;
use crate::plan::Plan;
use crate::plan::decision::{
    CALL_OF_DESCRIPTORS, CalledDescriptor, DescriptorCharges, DescriptorUse, write_descriptors,
};
use crate::plan::descriptors::{DescriptorMatch, DescriptorRule};
use crate::plan::resolve::{Peer, see_call};
use crate::route::RouteRequest;
use crate::route::key::KeySecret;
use crate::route::mask::{Masking, ShortIds};
use crate::store::MAX_CHARGES;

/// A descriptor of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorExplanation {
    /// Its entries: `generic_key=search,remote_address=192.0.2.7`.
    pub text: String,
    /// What it does to its limits.
    pub usage: DescriptorUse,
    /// The name of its rule: `shop/generic_key=search,remote_address=*`. `None`: no limit applies.
    pub rule: Option<String>,
    /// The limits of its rule, in file order.
    pub limits: Vec<LimitExplanation>,
    /// Other rules by name, with the reason why each does not apply; of more than 20 rules only those with its names.
    pub others: Vec<(String, String)>,
    /// The number of further rules.
    pub untold: usize,
}

impl Explanation {
    /// The limits of the route, or of all descriptors.
    pub fn limits(&self) -> impl Iterator<Item = &LimitExplanation> {
        let of_route = self.route.iter().flat_map(|route| &route.limits);
        let of_call = self.descriptors.iter().flatten().flat_map(|descriptor| &descriptor.limits);
        of_route.chain(of_call)
    }

    /// The descriptor that it is a limit of.
    fn descriptor(&self, limit: &LimitExplanation) -> Option<&DescriptorExplanation> {
        self.descriptors.as_ref()?.get(limit.descriptor?)
    }

    /// Whether it is charged for what has been spent already, and decides nothing.
    pub fn is_reported(&self, limit: &LimitExplanation) -> bool {
        let descriptor = self.descriptor(limit);
        descriptor.is_some_and(|descriptor| matches!(descriptor.usage, DescriptorUse::Reported(_)))
    }

    /// The units that are asked of the counters of a limit at once: those of all descriptors of the call with this key.
    /// `None`: it is not charged.
    pub fn units_at_once(&self, limit: &LimitExplanation) -> Option<Cost> {
        let LimitStatus::Charged(own) = limit.status else { return None };
        let kind = |limit: &LimitExplanation| {
            self.descriptor(limit).map(|descriptor| std::mem::discriminant(&descriptor.usage))
        };
        let same = |other: &&LimitExplanation| {
            (other.index, other.key_hash) == (limit.index, limit.key_hash) && kind(other) == kind(limit)
        };
        let units = self.limits().filter(same).map(|same| match same.status {
            LimitStatus::Charged(cost) => u64::from(cost.units()),
            _ => 0,
        });
        let units = u32::try_from(units.sum::<u64>().min(Cost::MAX.into())).unwrap_or(Cost::MAX);
        Cost::new(units).or(Some(own))
    }
}

/// Explains a call. With `ids`, masked values have the short ids of a running gateway.
pub(super) fn explain_call(
    plan: &Plan,
    asked: &ExplainRequest,
    call: &DescribedCall,
    secret: &KeySecret,
    ids: Option<&ShortIds>,
) -> Explanation {
    let called = call.called(plan);
    let text = write_descriptors(&called, ids.map_or(Masking::NoIds, Masking::Ids));
    let explained = with_call(plan, asked, |request| {
        let charges = DescriptorCharges::of(plan, &called, request, secret);
        let descriptors = called.iter().enumerate();
        let descriptors = descriptors.map(|(item, descriptor)| {
            let limits = limits(plan, (item, descriptor), &charges, request, ids);
            DescriptorExplanation::new(plan, &call.domain, descriptor, limits, ids)
        });
        let answer = (charges.most() > MAX_CHARGES).then(|| ExplainedAnswer {
            status: StatusCode::BAD_REQUEST,
            reason: "a call is charged to at most 32 rates at once".to_owned(),
        });
        (answer, descriptors.collect())
    });
    let (answer, descriptors) = explained.unwrap_or_default();
    Explanation {
        shadow: None,
        request: format!("{CALL_OF_DESCRIPTORS} {}{text}", call.domain),
        client: plan.server.client.client(asked.peer),
        identified: "the peer itself: it asks for its clients".to_owned(),
        consumer: None,
        answer,
        unverified: None,
        route: None,
        descriptors: Some(descriptors),
        others: Vec::new(),
        untold: 0,
    }
}

/// Calls `f` with the call itself, of which keys see the peer. `None`: the gateway cannot read it.
pub(super) fn with_call<T>(
    plan: &Plan,
    asked: &ExplainRequest,
    f: impl FnOnce(RouteRequest<'_>) -> T,
) -> Option<T> {
    let (mut spans, mut seen) = (Vec::new(), None);
    let head = asked.head(&mut spans).ok()?;
    let peer = Peer { address: asked.peer, secure: true, certificate: None, listener: None };
    Some(f(see_call(plan, &head, peer, &mut seen).ok()?.request()))
}

/// The limits of a descriptor, in file order.
fn limits(
    plan: &Plan,
    (item, descriptor): (usize, &CalledDescriptor<'_>),
    charges: &DescriptorCharges<'_>,
    call: RouteRequest<'_>,
    ids: Option<&ShortIds>,
) -> Vec<LimitExplanation> {
    let request = RouteRequest { content: &descriptor.content, ..call };
    let parts = [&charges.charged, &charges.asked, &charges.reported];
    let checks = parts.into_iter().flat_map(|part| {
        part.owners.iter().zip(&part.charges.checks).map(move |(owner, check)| (part, owner, check))
    });
    let own = checks.filter(|(_, owner, _)| owner.item == item);
    let explained = own.filter_map(|(part, owner, check)| {
        let route = plan.route(owner.route);
        let used = route.limits.get(owner.place)?;
        let key_hash = part.charges.key_hash(check);
        let explanation = LimitExplanation::new((owner.route, route), used, (check, key_hash), &request, ids);
        Some(LimitExplanation { descriptor: Some(item), ..explanation })
    });
    explained.collect()
}

impl DescriptorExplanation {
    fn new(
        plan: &Plan,
        domain: &str,
        descriptor: &CalledDescriptor<'_>,
        limits: Vec<LimitExplanation>,
        ids: Option<&ShortIds>,
    ) -> Self {
        let name = |rule: &DescriptorRule| plan.route(rule.route).name.to_string();
        let explained = plan.descriptors.explain(domain.as_bytes(), descriptor.entries());
        let is_near =
            |verdict: &DescriptorMatch<'_>| explained.len() <= MAX_TOLD || *verdict != DescriptorMatch::Names;
        let others = explained.iter().filter(|(_, verdict)| *verdict != DescriptorMatch::Chosen);
        let told = others.clone().filter(|(_, verdict)| is_near(verdict)).take(MAX_TOLD);
        let told: Vec<_> = told.map(|(rule, verdict)| (name(rule), why_not(rule, *verdict))).collect();
        let mut text = String::new();
        descriptor.write(ids.map_or(Masking::NoIds, Masking::Ids), &mut text);
        Self {
            text,
            usage: descriptor.usage,
            rule: descriptor.rule.map(name),
            limits,
            untold: others.count() - told.len(),
            others: told,
        }
    }

    /// Its effect as a word, and its hits.
    pub(crate) fn status(&self) -> (&'static str, u64) {
        match (&self.rule, self.usage) {
            (None, DescriptorUse::Charged(hits) | DescriptorUse::Reported(hits)) => ("unlimited", hits),
            (None, DescriptorUse::Asked) => ("unlimited", 0),
            (Some(_), DescriptorUse::Charged(hits)) => ("charged", hits),
            (Some(_), DescriptorUse::Asked) => ("asked", 0),
            (Some(_), DescriptorUse::Reported(hits)) => ("reported", hits),
        }
    }
}

/// Why a rule does not apply.
fn why_not(rule: &DescriptorRule, verdict: DescriptorMatch<'_>) -> String {
    match verdict {
        DescriptorMatch::Chosen => "applies".to_owned(),
        DescriptorMatch::Names => "the descriptor has entries with other names".to_owned(),
        DescriptorMatch::Domain => {
            format!("the domain is not `{}`", rule.domain.as_deref().unwrap_or_default())
        }
        DescriptorMatch::Value(name) => format!("`{name}` has another value"),
        DescriptorMatch::FewerValues => "matches too, but the rule above names more values".to_owned(),
        DescriptorMatch::AnyDomain => "matches too, but the rule above names the domain".to_owned(),
        DescriptorMatch::Later => "matches too, but the rule above stands first in the file".to_owned(),
    }
}
