//! The descriptors of a call, and what each of them charges.

use std::rc::Rc;

use super::call::{CallCharges, CallItem};
use crate::limit::units::Cost;
use crate::plan::descriptors::DescriptorRule;
use crate::plan::{Plan, Policy};
use crate::route::RouteRequest;
use crate::route::content::RequestContent;
use crate::route::descriptor::{DescriptorEntry, read_entries, write_entries};
use crate::route::key::KeySecret;
use crate::route::mask::Masking;

/// What the access log has in place of the method: no client can send it, since it is in lower case.
pub const CALL_OF_DESCRIPTORS: &str = "descriptors";
/// The same of limits that an application names.
pub const CALL_OF_LIMITS: &str = "limits";

/// A descriptor of a call.
#[derive(Debug)]
pub struct CalledDescriptor<'p> {
    /// Its entries, as keys see them.
    pub content: RequestContent,
    /// `None`: no rule is for it, so that no limit applies.
    pub rule: Option<&'p DescriptorRule>,
    /// What it does to the limits of its rule.
    pub usage: DescriptorUse,
    /// The numbers that it brings, in place of those of its limit.
    pub overriding: Option<Overriding>,
}

/// What a descriptor does to its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorUse {
    /// They are charged these hits.
    Charged(u64),
    /// They are asked, and not charged.
    Asked,
    /// They are charged, whether they admit it or not.
    Reported(u64),
}

/// Numbers of a descriptor.
#[derive(Clone, Debug)]
pub struct Overriding {
    /// The policy of its limit, with these numbers.
    pub policy: Rc<Policy>,
    /// `false`: the number is 0, and the policy has 1.
    pub passes: bool,
}

/// The charges of a call, by what its descriptors do.
#[derive(Debug, Default)]
pub struct DescriptorCharges<'p> {
    /// They admit all, or none is charged.
    pub charged: CallCharges<'p>,
    /// They are asked first, and charged nothing.
    pub asked: CallCharges<'p>,
    /// They are charged whatever the others decide.
    pub reported: CallCharges<'p>,
}

impl<'p> CalledDescriptor<'p> {
    /// A descriptor with its own hits, if it has some, and those of the call.
    pub fn new(
        plan: &'p Plan,
        domain: &[u8],
        entries: Vec<DescriptorEntry>,
        (own, hits): (Option<u64>, u64),
    ) -> Self {
        let rule = plan.descriptors.find(domain, &entries);
        let usage = match (own, rule.is_some_and(|rule| rule.report)) {
            (own, true) => DescriptorUse::Reported(own.unwrap_or(hits)),
            (Some(0), false) => DescriptorUse::Asked,
            (own, false) => DescriptorUse::Charged(own.unwrap_or(hits)),
        };
        Self { content: RequestContent::Descriptor(entries), rule, usage, overriding: None }
    }

    /// Its entries.
    pub fn entries(&self) -> &[DescriptorEntry] {
        if let RequestContent::Descriptor(entries) = &self.content { entries } else { &[] }
    }

    /// Its entries as text: `generic_key=search,remote_address=192.0.2.1`.
    pub fn write(&self, masking: Masking<'_>, text: &mut String) {
        let is_known = |entry: &DescriptorEntry| {
            let patterns = self.rule.map(|rule| rule.entries.as_slice()).unwrap_or_default();
            patterns.iter().any(|pattern| {
                pattern.name.as_bytes() == entry.name
                    && pattern.value.as_deref().is_some_and(|value| value.as_bytes() == entry.value)
            })
        };
        write_entries(self.entries(), is_known, masking, text);
    }
}

impl<'p> DescriptorCharges<'p> {
    /// The charges of these descriptors. `call` is the call itself, of which keys see nothing else.
    pub fn of(
        plan: &'p Plan,
        descriptors: &'p [CalledDescriptor<'p>],
        call: RouteRequest<'_>,
        secret: &KeySecret,
    ) -> Self {
        let mut all = Self::default();
        for (item, descriptor) in descriptors.iter().enumerate() {
            let Some(rule) = descriptor.rule else { continue };
            let (charges, hits) = match descriptor.usage {
                DescriptorUse::Charged(hits) => (&mut all.charged, hits),
                DescriptorUse::Asked => (&mut all.asked, 1),
                DescriptorUse::Reported(0) => continue,
                DescriptorUse::Reported(hits) => (&mut all.reported, hits),
            };
            let overriding = descriptor.overriding.as_ref();
            let passes = overriding.is_none_or(|overriding| overriding.passes)
                || matches!(descriptor.usage, DescriptorUse::Reported(_));
            let cost = units(rule.cost, if passes { hits } else { u64::MAX });
            let overriding = overriding.map(|overriding| std::slice::from_ref(&*overriding.policy));
            let request = RouteRequest { content: &descriptor.content, ..call };
            let matched = plan.route(rule.route).matched(&request);
            charges.add(CallItem { plan, item, route: rule.route, cost, overriding }, matched, secret);
        }
        all
    }

    /// The greatest number of charges that are decided at once.
    pub fn most(&self) -> usize {
        let all = [&self.charged, &self.asked, &self.reported];
        all.into_iter().map(|charges| charges.charges.charges.len()).max().unwrap_or_default()
    }
}

/// Units of so many hits. More than a cost can be are the most that it can be.
fn units(cost: Cost, hits: u64) -> Cost {
    let units = u64::from(cost.units()).saturating_mul(hits).min(Cost::MAX.into());
    u32::try_from(units).ok().and_then(Cost::new).unwrap_or(cost)
}

/// The descriptors as text, in place of a path. `,` separates entries, `;` descriptors, and `*` begins the hits.
pub fn write_descriptors(descriptors: &[CalledDescriptor<'_>], masking: Masking<'_>) -> String {
    let mut text = String::from("/");
    for (index, descriptor) in descriptors.iter().enumerate() {
        if index > 0 {
            text.push(';');
        }
        descriptor.write(masking, &mut text);
        match descriptor.usage {
            DescriptorUse::Charged(1) | DescriptorUse::Reported(1) => {}
            DescriptorUse::Charged(hits) | DescriptorUse::Reported(hits) => {
                text.push_str(&format!("*{hits}"));
            }
            DescriptorUse::Asked => text.push_str("*0"),
        }
    }
    text
}

/// A descriptor as text has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenDescriptor {
    entries: Vec<DescriptorEntry>,
    hits: u64,
}

impl WrittenDescriptor {
    /// The descriptor, in a call with this domain.
    pub fn called<'p>(&self, plan: &'p Plan, domain: &[u8]) -> CalledDescriptor<'p> {
        CalledDescriptor::new(plan, domain, self.entries.clone(), (Some(self.hits), 1))
    }
}

/// The descriptors of a text of [`write_descriptors`]. Masked values stay masked. `None`: it is no such text.
pub fn read_descriptors(text: &str) -> Option<Vec<WrittenDescriptor>> {
    let one = |text: &str| {
        let (entries, hits) = match text.split_once('*') {
            Some((entries, hits)) => (entries, hits.parse().ok()?),
            None => (text, 1),
        };
        Some(WrittenDescriptor { entries: read_entries(entries)?, hits })
    };
    match text.strip_prefix('/')? {
        "" => Some(Vec::new()),
        text => text.split(';').map(one).collect(),
    }
}
