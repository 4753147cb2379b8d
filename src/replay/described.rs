//! Requests that are described in full, as clients send them: for tests of limits. A line of a log tells less.
//!
//! For example, a test names the peer, the listener and the body, so that trusted proxies, API keys and keys in bodies are
//! read by the code that reads them of a connection.

use std::net::IpAddr;

use bytes::Bytes;

use crate::http1::request::RequestHead;
use crate::log_reader::request::LoggedRequest;
use crate::measure::JsonPointer;
use crate::plan::Plan;
use crate::plan::resolve::{Peer, RouteLookup, body_to_read, locate, locate_by_body};
use crate::plan::seen_request::SeenRequest;
use crate::route::content::{RequestContent, UnreadableBody};

/// A request with its sender and its body.
#[derive(Clone, Debug)]
pub struct DescribedRequest {
    /// The time, the head, and what a line of a log would tell of the response. A consumer in it stands for a credential
    /// that was verified.
    pub logged: LoggedRequest,
    /// The address of the peer: of the client, or of a trusted proxy.
    pub peer: IpAddr,
    /// Whether the peer uses TLS.
    pub secure: bool,
    /// The name of the listener, if it has one.
    pub listener: Option<String>,
    /// The body.
    pub body: Bytes,
}

impl DescribedRequest {
    fn peer(&self) -> Peer<'_> {
        let listener = self.listener.as_deref();
        Peer { address: self.peer, secure: self.secure, certificate: None, listener }
    }

    /// The body, if the route depends on it.
    pub(super) fn content_for_route(&self, plan: &Plan, head: &RequestHead<'_>) -> RequestContent {
        let pointers = plan.body_pointers();
        let needed = if pointers.is_empty() { None } else { body_to_read(plan, head, self.peer()) };
        needed.map_or(RequestContent::Unknown, |(max, _)| self.content(head, pointers, max))
    }

    /// The body, of which at most `max` bytes are read.
    pub(super) fn content(
        &self,
        head: &RequestHead<'_>,
        pointers: &[JsonPointer],
        max: usize,
    ) -> RequestContent {
        match self.body.len() > max {
            true => RequestContent::Unreadable(UnreadableBody::TooLarge),
            false => RequestContent::new(head.fields, self.body.clone(), pointers),
        }
    }

    /// Finds the route. `content`: see [`Self::content_for_route`].
    pub(super) fn locate<'p, 'r>(
        &'r self,
        plan: &'p Plan,
        head: &'r RequestHead<'r>,
        content: &'r RequestContent,
        seen: &'r mut Option<SeenRequest<'r>>,
    ) -> RouteLookup<'p, 'r> {
        match content {
            RequestContent::Unknown => locate(plan, None, head, self.peer(), seen),
            content => locate_by_body(plan, None, (head, content), self.peer(), seen),
        }
    }
}
