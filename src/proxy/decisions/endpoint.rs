//! What a call is: its path, and the token that may stand before it.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::rate_limit_service::{HEALTH_CHECK, SHOULD_RATE_LIMIT};
use crate::telemetry::metrics::DecisionProtocol;

/// The parameter of the query that asks for 403.
const AS_FORBIDDEN: &str = "status=403";

/// A call, by its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecisionEndpoint<'h> {
    pub(super) kind: EndpointKind<'h>,
    /// The first segment, if it is no part of the path.
    pub(super) token: Option<Cow<'h, [u8]>>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointKind<'h> {
    /// About the request in `x-forwarded-*`. `as_forbidden`: refusals are 403.
    Forwarded { as_forbidden: bool },
    /// About the request in `x-original-*`.
    Original { as_forbidden: bool },
    /// About this path, with the method and the Host of the call.
    Envoy(&'h str),
    /// What an application describes.
    Decide,
    /// Envoy's rate limit service.
    RateLimit,
    /// Whether the gateway serves.
    Health,
}

impl<'h> DecisionEndpoint<'h> {
    /// The call with this target, which is not decoded or normalised: what follows `/check/envoy` is the client's. `None`:
    /// there is no such call.
    pub(super) fn of(path: &'h str, query: Option<&'h str>) -> Option<Self> {
        if let Some(kind) = EndpointKind::of(path, query) {
            return Some(Self { kind, token: None });
        }
        let (token, _) = path.strip_prefix('/')?.split_once('/')?;
        let rest = path.get(1 + token.len()..)?;
        let token = Some(percent_decode_str(token).into());
        EndpointKind::of(rest, query).map(|kind| Self { kind, token })
    }
}

impl<'h> EndpointKind<'h> {
    fn of(path: &'h str, query: Option<&'h str>) -> Option<Self> {
        // Caddy appends the client's own query: other parameters have no meaning.
        let as_forbidden = query.is_some_and(|query| query.split('&').any(|one| one == AS_FORBIDDEN));
        match path {
            "/check/forwarded" => Some(Self::Forwarded { as_forbidden }),
            "/check/original" => Some(Self::Original { as_forbidden }),
            "/v1/decide" => Some(Self::Decide),
            SHOULD_RATE_LIMIT => Some(Self::RateLimit),
            HEALTH_CHECK => Some(Self::Health),
            _ => path
                .strip_prefix("/check/envoy")
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
                .map(Self::Envoy),
        }
    }

    /// The status of refusals in place of their own, if the caller asks for one.
    pub(super) fn as_forbidden(self) -> bool {
        matches!(self, Self::Forwarded { as_forbidden: true } | Self::Original { as_forbidden: true })
    }

    /// Its protocol in metrics; `None`: it asks for no decision.
    pub(super) fn protocol(self) -> Option<DecisionProtocol> {
        match self {
            Self::Forwarded { .. } => Some(DecisionProtocol::Forwarded),
            Self::Original { .. } => Some(DecisionProtocol::Original),
            Self::Envoy(_) => Some(DecisionProtocol::Envoy),
            Self::Decide => Some(DecisionProtocol::Decide),
            Self::RateLimit => Some(DecisionProtocol::Grpc),
            Self::Health => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind<'h>(path: &'h str, query: Option<&'h str>) -> Option<EndpointKind<'h>> {
        DecisionEndpoint::of(path, query).map(|endpoint| endpoint.kind)
    }

    #[test]
    fn the_rest_of_the_path_is_the_clients() {
        for (path, rest) in [
            ("/check/envoy", ""),
            ("/check/envoy/", "/"),
            ("/check/envoy/a%2Fb/../../../c//d", "/a%2Fb/../../../c//d"),
            ("/check/envoy/../forwarded", "/../forwarded"),
            ("/check/envoy//x", "//x"),
            ("/secret/check/envoy/check/forwarded", "/check/forwarded"),
        ] {
            assert_eq!(kind(path, None), Some(EndpointKind::Envoy(rest)), "{path}");
        }
    }

    #[test]
    fn other_paths_are_no_calls() {
        for path in [
            "/",
            "/check",
            "/check/",
            "/check/envoys",
            "/check/forwarded/",
            "/a/b/check/forwarded",
            "//v1/decide/",
        ] {
            assert_eq!(DecisionEndpoint::of(path, None), None, "{path}");
        }
    }

    #[test]
    fn a_token_may_stand_before_the_path() {
        let found = DecisionEndpoint::of("/s%2Fecret/check/original", Some("a=1&status=403")).unwrap();
        assert_eq!(found.token.as_deref(), Some(&b"s/ecret"[..]));
        assert_eq!(found.kind, EndpointKind::Original { as_forbidden: true });
        assert_eq!(
            kind("/check/forwarded", Some("status=4033")),
            Some(EndpointKind::Forwarded { as_forbidden: false })
        );
    }
}
