//! The requests that are in flight in virtual time, and those that wait for a place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use smallvec::SmallVec;

use super::decided::DecidedLimits;
use crate::limit::units::{Fingerprint, Timestamp};
use crate::log_reader::request::LoggedRequest;
use crate::plan::LimitIndex;
use crate::plan::admission::RequestCharges;
use crate::route::RouteIndex;
use crate::store::Correction;
use crate::store::memory::in_flight::{LocalPlaces, Ticket};

/// Keys of concurrency limits.
pub(super) type PlaceKeys = SmallVec<[Fingerprint; 2]>;

/// What happens later, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Agenda<'p> {
    ends: BinaryHeap<Reverse<Ending<'p>>>,
    /// By number, which is the order of arrival.
    waiting: BTreeMap<u64, WaitingRequest<'p>>,
    /// The numbers of those that wait, by the number of their ticket.
    by_ticket: HashMap<u64, u64>,
    deadlines: BTreeSet<(Timestamp, u64)>,
}

/// The next thing that happens.
#[derive(Debug)]
pub(super) enum Due<'p> {
    /// A response ends.
    Ends(Box<RequestEnd<'p>>),
    /// The request with this number has waited for too long.
    GivesUp(u64, Timestamp),
}

/// The end of a response.
#[derive(Debug)]
pub(super) struct RequestEnd<'p> {
    /// When.
    pub(super) at: Timestamp,
    /// The places that it frees.
    pub(super) places: Option<LocalPlaces>,
    /// Their keys.
    pub(super) keys: PlaceKeys,
    /// The costs that are corrected.
    pub(super) corrections: SmallVec<[Correction<'p>; 1]>,
}

/// A request that waits for a place.
#[derive(Debug)]
pub(super) struct WaitingRequest<'p> {
    pub(super) number: u64,
    pub(super) route: RouteIndex,
    pub(super) logged: LoggedRequest,
    pub(super) charges: RequestCharges<'p>,
    pub(super) ticket: Ticket,
    pub(super) deadline: Timestamp,
    /// The text of each limit's key.
    pub(super) labels: Vec<(LimitIndex, String)>,
    /// What limits with `before_auth` did.
    pub(super) decided: DecidedLimits<'p>,
}

/// An end in the order of time, then of arrival.
#[derive(Debug)]
struct Ending<'p> {
    number: u64,
    end: RequestEnd<'p>,
}

impl<'p> Agenda<'p> {
    /// A request that is in flight will end.
    pub(super) fn end(&mut self, number: u64, end: RequestEnd<'p>) {
        self.ends.push(Reverse(Ending { number, end }));
    }

    /// A request waits, anew or still.
    pub(super) fn wait(&mut self, request: WaitingRequest<'p>) {
        self.by_ticket.insert(request.ticket.number(), request.number);
        self.deadlines.insert((request.deadline, request.number));
        self.waiting.insert(request.number, request);
    }

    /// Takes a request out of the wait.
    pub(super) fn take(&mut self, number: u64) -> Option<WaitingRequest<'p>> {
        let request = self.waiting.remove(&number)?;
        self.deadlines.remove(&(request.deadline, number));
        self.by_ticket.remove(&request.ticket.number());
        Some(request)
    }

    /// The number of the request that waits with the ticket of this number.
    pub(super) fn of_ticket(&self, ticket: u64) -> Option<u64> {
        self.by_ticket.get(&ticket).copied()
    }

    /// What happens next, if it does not happen after `now`. An end comes before what else happens in its microsecond.
    #[inline]
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Due<'p>> {
        let end = self.ends.peek().map(|Reverse(ending)| ending.end.at).filter(|at| *at <= now);
        let deadline = self.deadlines.first().copied().filter(|(at, _)| *at <= now);
        match (end, deadline) {
            (None, None) => None,
            (Some(end), Some((at, number))) if at < end => Some(Due::GivesUp(number, at)),
            (Some(_), _) => self.ends.pop().map(|Reverse(ending)| Due::Ends(Box::new(ending.end))),
            (None, Some((at, number))) => Some(Due::GivesUp(number, at)),
        }
    }
}

/// The keys of the concurrency limits among the charges.
pub(super) fn place_keys(charges: &RequestCharges<'_>) -> PlaceKeys {
    let held = charges.charges.iter().filter(|charge| charge.algorithm.as_concurrency().is_some());
    held.map(|charge| charge.key).collect()
}

impl PartialEq for Ending<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ending<'_> {}

impl PartialOrd for Ending<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ending<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.end.at, self.number).cmp(&(other.end.at, other.number))
    }
}
