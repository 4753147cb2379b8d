//! Calls of other proxies and applications in a log of tollgate.
//!
//! A line has all of a call, with masked values, which are as distinct as the values were.

use http::StatusCode;

use super::caller::ConsumerNames;
use super::decided::{DecidedLimits, ReplaySink, ReplayedRequest};
use super::virtual_gateway::VirtualGateway;
use crate::http1::request::RequestHead;
use crate::limit::units::Micros;
use crate::log_reader::request::LoggedRequest;
use crate::plan::LimitIndex;
use crate::plan::decision::{
    CallCharges, CalledDescriptor, CheckOwner, DescriptorCharges, Ruling, read_descriptors, read_limits,
};
use crate::plan::resolve;
use crate::route::mask::Masking;
use crate::route::{RouteIndex, RouteRequest};
use crate::store::{MAX_CHARGES, Outcome};

/// What the limits of a part of a call have ruled.
struct RuledPart<'c> {
    charges: CallCharges<'c>,
    outcome: Outcome,
    ruling: Ruling<'c>,
}

impl VirtualGateway<'_> {
    /// Decides a call on descriptors. The status that it gets if it is none.
    pub(super) fn call(
        &mut self,
        number: u64,
        logged: &LoggedRequest,
        head: &RequestHead<'_>,
        sink: &mut impl ReplaySink,
    ) -> Result<(), StatusCode> {
        let (plan, mut seen) = (self.plan, None);
        let sender = ConsumerNames::sender(logged).peer();
        let call = resolve::see_call(plan, head, sender, &mut seen);
        let call = call.map_err(|response| response.status())?.request();
        let domain = head.host.unwrap_or_default().as_bytes();
        let written = read_descriptors(head.target.path).ok_or(StatusCode::BAD_REQUEST)?;
        let descriptors: Vec<_> = written.iter().map(|one| one.called(plan, domain)).collect();
        let charges = DescriptorCharges::of(plan, &descriptors, call, &self.secret);
        if charges.most() > MAX_CHARGES {
            return Err(StatusCode::BAD_REQUEST);
        }
        let DescriptorCharges { charged, asked, reported } = charges;
        let asked = self.rule_part(logged, asked, true);
        let part = if asked.ruling.admits() { self.rule_part(logged, charged, false) } else { asked };
        self.report(logged, &reported);
        let mut decided = DecidedLimits::new(plan);
        decided.add_reported(&reported);
        decided.add_call(&part.charges, (&part.outcome, self.known(logged.time)), &part.ruling);
        let verdict = part.ruling.verdict();
        let first = descriptors.iter().find_map(|descriptor| Some(descriptor.rule?.route));
        let owners = [&part.charges, &reported].into_iter().flat_map(|charges| &charges.owners);
        let replayed = decided.replayed(number, first.unwrap_or(RouteIndex(0)), &verdict, Micros(0));
        let replayed = ReplayedRequest { route: first, ..replayed };
        let key = |limit: LimitIndex| {
            let owner = owners.clone().find(|owner| owner.limit == limit);
            owner.map_or_else(String::new, |owner| self.label_of(*owner, &descriptors, call))
        };
        sink.decided(logged, &replayed, &key);
        Ok(())
    }

    /// Decides a call on limits that an application named. `None`: the plan has not all of them.
    pub(super) fn call_of_limits(
        &mut self,
        number: u64,
        logged: &LoggedRequest,
        limits: &str,
        sink: &mut impl ReplaySink,
    ) -> Option<()> {
        let called = read_limits(self.plan, limits)?;
        let charges = CallCharges::of_limits(self.plan, &called, &self.secret).ok()?;
        if charges.charges.charges.len() > MAX_CHARGES {
            return None;
        }
        let part = self.rule_part(logged, charges, false);
        let mut decided = DecidedLimits::new(self.plan);
        decided.add_call(&part.charges, (&part.outcome, self.known(logged.time)), &part.ruling);
        let route = part.charges.owners.first()?.route;
        let replayed = decided.replayed(number, route, &part.ruling.verdict(), Micros(0));
        let key = |limit: LimitIndex| {
            let called = called.iter().find(|called| std::ptr::eq(called.limit, self.plan.limit(limit)));
            called.map_or_else(String::new, |called| called.values.join(", "))
        };
        sink.decided(logged, &replayed, &key);
        Some(())
    }

    /// Decides a part of a call. `peeks`: nothing is charged.
    fn rule_part<'c>(&self, logged: &LoggedRequest, charges: CallCharges<'c>, peeks: bool) -> RuledPart<'c> {
        let (now, asked) = (logged.time, &charges.charges);
        if let Some(ruling) = asked.rule_unasked(self.known(now)) {
            return RuledPart { ruling, outcome: Outcome::default(), charges };
        }
        let outcome = match peeks {
            _ if asked.charges.is_empty() => Outcome::default(),
            true => self.memory.look(&asked.charges, now).into(),
            false => self.decide(asked, now),
        };
        let ruling = asked.rule(&outcome, self.known(now));
        RuledPart { charges, outcome, ruling }
    }

    /// Charges what had been spent.
    fn report(&self, logged: &LoggedRequest, reported: &CallCharges<'_>) {
        for check in &reported.charges.checks {
            if let (Some(cost), Some(own)) = (check.cost(), reported.charges.charges.get(check.indices())) {
                self.memory.charge(own, cost, logged.time);
            }
        }
    }

    /// The text of the key of a limit.
    fn label_of(
        &self,
        owner: CheckOwner,
        descriptors: &[CalledDescriptor<'_>],
        call: RouteRequest<'_>,
    ) -> String {
        let Some(descriptor) = descriptors.get(owner.item) else { return String::new() };
        let request = RouteRequest { content: &descriptor.content, ..call };
        let (limit, matched) = (self.plan.limit(owner.limit), self.plan.route(owner.route).matched(&request));
        limit.key.label(matched, Masking::of(limit.reveal, &self.ids)).join(", ")
    }
}
