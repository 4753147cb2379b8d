//! What a route does with an admitted request.

use http::{HeaderName, HeaderValue, StatusCode};

use super::split::UpstreamSplit;
use super::target::TargetTemplate;
use super::template::{BodyTemplate, HeaderTemplate};
use super::{LimitIndex, UpstreamIndex};

/// What a route does with an admitted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// Forwards it to the upstream.
    Forward(UpstreamIndex),
    /// Forwards it to one of several upstreams.
    Split(Box<UpstreamSplit>),
    /// Redirects the client.
    Redirect(Box<RedirectTo>),
    /// Answers it.
    Respond(Box<FixedResponse>),
    /// Tells others whether theirs may pass: the route takes no request itself.
    Decide,
}

/// `redirect = { to = "…" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectTo {
    /// The URL, or a path on the same host.
    pub to: TargetTemplate,
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
}

/// `respond`: an answer of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    /// 200 to 599.
    pub status: StatusCode,
    /// `None`: the response has none.
    pub content: Option<ResponseContent>,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderTemplate)>,
    /// The limits whose use by the caller is the body, as JSON; empty: the body is `content`.
    pub usage: Vec<LimitIndex>,
}

/// A body with its media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseContent {
    /// The body.
    pub body: BodyTemplate,
    /// `content-type`.
    pub content_type: HeaderValue,
}

/// `[errors]`: the bodies of errors that the gateway itself answers, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages(Vec<(StatusCode, ResponseContent)>);

impl ErrorPages {
    /// Of pages with distinct statuses.
    pub fn new(mut pages: Vec<(StatusCode, ResponseContent)>) -> Self {
        pages.sort_by_key(|(status, _)| *status);
        Self(pages)
    }

    /// The page of a status.
    #[inline]
    pub fn get(&self, status: StatusCode) -> Option<&ResponseContent> {
        if self.0.is_empty() {
            return None;
        }
        let found = self.0.binary_search_by_key(&status, |(status, _)| *status).ok()?;
        self.0.get(found).map(|(_, content)| content)
    }

    /// The statuses with a page.
    pub fn statuses(&self) -> impl Iterator<Item = StatusCode> {
        self.0.iter().map(|(status, _)| *status)
    }

    /// Whether a page has values of the request.
    pub fn has_values(&self) -> bool {
        self.0.iter().any(|(_, content)| content.body.has_values())
    }
}

impl RouteAction {
    /// The upstreams that requests are forwarded to; none if the gateway answers.
    pub fn upstreams(&self) -> Vec<UpstreamIndex> {
        match self {
            Self::Forward(upstream) => vec![*upstream],
            Self::Split(split) => split.shares.iter().map(|(upstream, _)| *upstream).collect(),
            Self::Redirect(_) | Self::Respond(_) | Self::Decide => Vec::new(),
        }
    }
}
