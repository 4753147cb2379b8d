//! `max_duration` of a route: how long an exchange may take, from the head of the request to the end of the response.

use std::task::{Context, Poll};

use http::StatusCode;
use tokio::time::Instant;

use crate::clock::Deadline;
use crate::plan::Route;
use crate::upstream::Failed;

/// What the client is told if there is no response yet.
pub(crate) const TOO_LONG: (StatusCode, &str, &str) =
    (StatusCode::GATEWAY_TIMEOUT, "the exchange took too long", "max_duration");

/// The end of an exchange, on a route that has one.
#[derive(Debug)]
pub(crate) struct ExchangeDeadline {
    at: Option<Instant>,
    timer: Deadline,
}

impl ExchangeDeadline {
    /// Of a request that came then.
    pub(crate) fn new(route: &Route, began: impl FnOnce() -> Instant) -> Self {
        Self { at: route.max_duration.map(|span| began() + span), timer: Deadline::default() }
    }

    /// When it is.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Ready with the end of `work`, or with a failure once it has passed.
    pub(crate) fn poll_before<T>(
        &mut self,
        context: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<Option<Result<T, Failed>>>,
    ) -> Poll<Option<Result<T, Failed>>> {
        match self.poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(Failed::overrun()))),
            Poll::Pending => work(context),
        }
    }

    /// Ready once it has passed; never if there is none.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.at.map_or(Poll::Pending, |at| self.timer.poll(context, at))
    }
}
