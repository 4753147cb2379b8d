//! A request as routes, keys and services see it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::Method;

use super::{Plan, Route};
use crate::auth::forward::question::ForwardQuestion;
use crate::http1::request::RequestHead;
use crate::limit::units::Timestamp;
use crate::net::client_certificate::ClientCertificate;
use crate::route::client::{ClientAddress, ClientSource};
use crate::route::content::RequestContent;
use crate::route::path::Path;
use crate::route::pattern::normal_authority;
use crate::route::{RouteIndex, RouteRequest};

/// A request as routes see it, before its credential is looked at.
#[derive(Clone, Debug)]
pub struct SeenRequest<'r> {
    pub(super) head: &'r RequestHead<'r>,
    pub(super) path: Path<'r>,
    /// The authority that it names; may be empty.
    pub(super) named: &'r str,
    /// Its [`bare_host`](crate::route::pattern::bare_host).
    pub(super) host: Cow<'r, str>,
    pub(super) client: ClientAddress,
    /// The peer of its connection.
    pub(super) peer: IpAddr,
    pub(super) certificate: Option<&'r ClientCertificate>,
    /// The name of the listener that it came at.
    pub(super) listener: Option<&'r str>,
    /// The client uses TLS, to the gateway or to the trusted proxy before it.
    pub(super) secure: bool,
    /// What its body says, if its route depends on it.
    pub(super) content: &'r RequestContent,
}

/// What was found out about a head: an equal one has the same route and the same host, until the plan changes.
#[derive(Clone, Copy, Debug)]
pub struct RoutedHead {
    pub(super) route: RouteIndex,
    /// The host is that many bytes of the authority, from its begin.
    pub(super) host: usize,
}

impl SeenRequest<'_> {
    /// What an equal head has, too, if `route` is the request's. `None`: it is to be looked at again. The route of a preflight
    /// is that of another method.
    #[inline]
    pub(super) fn routed_head(&self, route: RouteIndex) -> Option<RoutedHead> {
        let is_plain = self.path.is_plain() && self.head.method != Method::OPTIONS;
        let host = self.named.get(..self.host.len()).filter(|host| std::ptr::eq(*host, &*self.host))?;
        is_plain.then_some(RoutedHead { route, host: host.len() })
    }

    /// The Host as all who decide about the request are shown it, and the backend: that of the route, with its port.
    pub(super) fn authority(&self) -> Cow<'_, str> {
        normal_authority(self.named, &self.host, self.secure)
    }

    /// What a service is asked about the request, which came at `now`: about what `route` forwards, before it
    /// rewrites the path.
    pub fn question<'q>(&'q self, plan: &'q Plan, route: &'q Route, now: Timestamp) -> ForwardQuestion<'q> {
        let rule = &plan.server.client;
        let source = match &rule.source {
            ClientSource::Header(name) => Some(name),
            _ => None,
        };
        ForwardQuestion {
            method: &self.head.method,
            authority: self.authority(),
            path: self.path.form(route.conditions.merge_slashes),
            query: plan.forwarded_query(route, self.head.target.query),
            fields: self.head.fields,
            client: self.client,
            secure: self.secure,
            now,
            guarded: plan.guarded(),
            hidden: Plan::hidden_sources(&plan.auths, route.auth.as_ref()).collect(),
            source,
            trusted: rule.trusts(self.peer),
            forwards_certificate: route.forward_client_cert,
            certificate: self.certificate,
        }
    }

    /// The request as routes see it: its consumer is not known, nor its body unless its route depends on it.
    pub fn request(&self) -> RouteRequest<'_> {
        RouteRequest {
            method: &self.head.method,
            host: &self.host,
            path: &self.path,
            query: self.head.target.query,
            headers: self.head.fields,
            body: self.head.body,
            client: self.client,
            certificate: self.certificate,
            listener: self.listener,
            content: self.content,
            consumer: None,
            upstream: None,
        }
    }
}
