//! What is told of a decision while it is made.

use super::{LimitPhase, Ruling};
use crate::plan::auth::AuthFailure;
use crate::plan::resolve::RoutedRequest;
use crate::store::{Known, Outcome};

/// Counts what is decided on the way.
pub trait DecisionObserver<'p> {
    /// The request has no credential that is wrong: it has none, or one of this consumer.
    fn authenticated(&mut self, _request: &RoutedRequest<'p, '_>) {}

    /// It has none that is right.
    fn unauthenticated(&mut self, _request: &RoutedRequest<'p, '_>, _failure: AuthFailure) {}

    /// Its consumer is not what the route requires.
    fn insufficient(&mut self, _request: &RoutedRequest<'p, '_>, _failure: AuthFailure) {}

    /// The limits of a phase have ruled.
    fn ruled(&mut self, ruled: &Ruled<'_, 'p, '_>);
}

/// What the limits of a phase have ruled.
#[derive(Debug)]
pub struct Ruled<'d, 'p, 'r> {
    /// The phase.
    pub phase: LimitPhase,
    /// The request, with its charges in this phase.
    pub request: &'d RoutedRequest<'p, 'r>,
    /// The store's decision; empty if it was not asked.
    pub outcome: &'d Outcome,
    /// The ruling.
    pub ruling: &'d Ruling<'p>,
    /// What the process knew.
    pub known: Known<'d>,
}
