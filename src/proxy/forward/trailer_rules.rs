//! Trailers of a request that its backend does not get, since it would not get them in the head.

use super::consumer_headers::ConsumerHeaders;
use crate::http1::fields::Field;
use crate::http1::name::{Name, same_to_cgi, with_hyphens};
use crate::http1::trailers::retain;
use crate::plan::{Plan, Route};
use crate::proxy::session::request_body::TrailerFilter;
use crate::route::client::ClientSource;

/// The rules of a route for the trailers of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrailerRules<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) route: &'a Route,
}

impl TrailerFilter for TrailerRules<'_> {
    fn retained(&self, lines: Vec<u8>) -> Vec<u8> {
        // Nearly always there are none.
        if lines.is_empty() {
            return lines;
        }
        let Self { plan, route } = *self;
        let headers = ConsumerHeaders::new(plan, route.auth.as_ref(), None, &[]);
        let edits = &route.request_headers;
        retain(&lines, |name| {
            let names_client = match &plan.server.client.source {
                ClientSource::Header(source) => same_to_cgi(source.as_str().as_bytes(), name),
                _ => false,
            };
            let is_edited =
                edits.touches(name) || with_hyphens(name).is_some_and(|twin| edits.touches(&twin));
            let field = Field { known: Name::of(name), name, value: b"" };
            !names_client && !is_edited && headers.passes(&field)
        })
    }
}
