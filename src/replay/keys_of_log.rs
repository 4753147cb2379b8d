//! The keys of the requests of a log: the route and the key of each without any limit, and the text of a limit's key.

use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::RandomState;

use super::caller::{ConsumerNames, LoggedConsumers};
use crate::http1::fields::FieldSpan;
use crate::http1::request::RequestHead;
use crate::log_reader::KnownFields;
use crate::log_reader::request::LoggedRequest;
use crate::plan::auth::{CallerIdentity, CredentialCheck};
use crate::plan::resolve::locate_logged;
use crate::plan::{Limit, Plan, Route};
use crate::route::key::{Key, KeyResult, KeySecret, Missing, Part};
use crate::route::mask::{Masking, ShortIds};
use crate::route::{RouteIndex, RouteRequest};

/// Finds the route and the key of requests.
#[derive(Debug)]
pub struct KeysOfLog<'p> {
    plan: &'p Plan,
    key: Key,
    secret: KeySecret,
    ids: ShortIds,
    consumers: ConsumerNames<'p>,
    hasher: RandomState,
    spans: Vec<FieldSpan>,
}

/// A request as a limit sees it.
pub struct KeyedRequest<'k> {
    /// Its route.
    pub route: RouteIndex,
    /// A hash of its key.
    pub key: u64,
    /// Its units.
    pub cost: u32,
    /// The text of its key.
    pub label: &'k dyn Fn() -> String,
}

impl<'p> KeysOfLog<'p> {
    /// Finds the route in `plan`, and the key of these parts. `logged` takes the consumers that only
    /// the log names; `secret` is any random bytes.
    pub fn new(plan: &'p Plan, logged: &'p LoggedConsumers, parts: Vec<Part>, secret: [u8; 16]) -> Self {
        let secret = KeySecret::Process(secret);
        Self {
            plan,
            key: Key { missing: Missing::Skip, ..Key::new(parts) },
            secret,
            ids: ShortIds::new(&secret),
            consumers: ConsumerNames::new(plan, logged),
            hasher: RandomState::default(),
            spans: Vec::new(),
        }
    }

    /// The first part of the key that the log lacks.
    pub fn lacks(&self, known: &KnownFields) -> Option<&Part> {
        self.key.parts.iter().find(|part| !super::missing_fields::has_part(self.plan, known, part))
    }

    /// Calls `found` with the route, a hash of the key and its text, unless the request has no route or no key, or is
    /// answered before any limit.
    pub fn find(&mut self, request: &LoggedRequest, found: impl FnOnce(KeyedRequest<'_>)) {
        let mut spans = std::mem::take(&mut self.spans);
        if let Ok(head) = RequestHead::parse(&request.head, &mut spans) {
            self.find_in(request, &head, found);
        }
        self.spans = spans;
    }

    fn find_in(&self, request: &LoggedRequest, head: &RequestHead<'_>, found: impl FnOnce(KeyedRequest<'_>)) {
        let (sender, mut seen) = (ConsumerNames::sender(request), None);
        let Ok(located) = locate_logged(self.plan, head, sender, &mut seen).outcome else { return };
        let CredentialCheck::Known(consumer) = self.consumers.check(request, &located) else { return };
        let caller = CallerIdentity { consumer, granted: &[] };
        let Ok(routed) = located.assign(self.plan, caller, 0) else { return };
        let (route, seen) = (routed.index, routed.request());
        let Some(cost) = routed.route.cost.on_admission(&seen) else { return };
        let cost = cost.units();
        // The log names consumers that no file of the plan needs to have.
        if self.key.parts == [Part::Consumer] {
            let found_by_key = routed.caller.consumer.map(|named| named.consumer.name());
            let name = if request.consumer.is_empty() { found_by_key } else { Some(&*request.consumer) };
            if let Some(name) = name {
                let mut hasher = self.hasher.build_hasher();
                hasher.write(name.as_bytes());
                let label = || name.to_owned();
                found(KeyedRequest { route, key: hasher.finish(), cost, label: &label });
            }
            return;
        }
        let matched = routed.route.matched(&seen);
        if let KeyResult::Key(key_hash) = self.key.claim(&self.secret, matched) {
            let label = || self.key.label(matched, Masking::Ids(&self.ids)).join(", ");
            #[expect(
                clippy::cast_possible_truncation,
                reason = "half of the hash tells millions of keys apart"
            )]
            let key = key_hash.0 as u64;
            found(KeyedRequest { route, key, cost, label: &label });
        }
    }
}

/// The text of the key of a limit.
pub(super) fn label(request: &RouteRequest<'_>, route: &Route, limit: &Limit, ids: &ShortIds) -> String {
    let masking = Masking::of(limit.reveal, ids);
    limit.key.label(route.matched(request), masking).join(", ")
}
