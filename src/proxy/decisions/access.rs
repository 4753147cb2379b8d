//! Who may ask: a caller with the token or a certificate; on loopback without a token, whoever is on the machine, but no
//! foreign page in its browser.

use std::net::IpAddr;

use http::uri::Authority;
use http::{Uri, header};
use subtle::ConstantTimeEq as _;

use super::endpoint::{DecisionEndpoint, EndpointKind};
use crate::http1::request::RequestHead;
use crate::http1::syntax::is_named;
use crate::net::own_hosts::is_own_host;
use crate::plan::admin::Token;
use crate::plan::{ListenerRole, Plan};
use crate::proxy::session::peer::ConnectionPeer;

/// The field with the token. `authorization` is the client's.
const TOKEN: &[u8] = b"x-tollgate-token";

/// Why a caller may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDenied {
    /// It has no valid token.
    Token,
    /// The call was meant for another machine, or comes from a foreign page.
    Foreign,
}

/// Whether the caller may ask.
pub(super) fn check(
    plan: &Plan,
    peer: &ConnectionPeer,
    head: &RequestHead<'_>,
    endpoint: &DecisionEndpoint<'_>,
) -> Result<(), AccessDenied> {
    // The plan of a running listener always has `[decisions]`.
    let decisions = plan.decisions.as_ref().ok_or(AccessDenied::Token)?;
    if decisions.certificate_suffices && peer.certificate.is_some() {
        return Ok(());
    }
    if let Some(token) = &decisions.token {
        // A proxy that puts the token into the path may pass on a field of its client.
        let sent = head.fields.iter().filter(|field| is_named(field.name, TOKEN)).map(|field| field.value);
        let sent = sent.chain(endpoint.token.as_deref());
        let is_known = sent.fold(false, |known, sent| known | is_token(token, sent));
        return if is_known { Ok(()) } else { Err(AccessDenied::Token) };
    }
    let listener = plan.server.listen.iter().find(|listener| listener.role == ListenerRole::Decisions);
    let address = listener.map(|listener| listener.address.ip().to_canonical());
    match address {
        Some(address) if address.is_loopback() => check_local(address, peer, head, endpoint),
        // Its clients show a certificate: `config` demands it.
        _ => Ok(()),
    }
}

/// All are compared in constant time and by their hashes: the response time reveals neither how much of a guess was
/// right, nor how long the token is.
fn is_token(token: &Token, sent: &[u8]) -> bool {
    blake3::hash(token.0.as_bytes()).as_bytes().ct_eq(blake3::hash(sent.trim_ascii()).as_bytes()).into()
}

/// No browser makes a gRPC call over HTTP/2 without TLS, and the authority of one is a name of the caller's choice.
fn check_local(
    address: IpAddr,
    peer: &ConnectionPeer,
    head: &RequestHead<'_>,
    endpoint: &DecisionEndpoint<'_>,
) -> Result<(), AccessDenied> {
    let is_call =
        peer.is_multiplexed() && matches!(endpoint.kind, EndpointKind::RateLimit | EndpointKind::Health);
    let is_own = |authority: &[u8]| {
        Authority::try_from(authority).is_ok_and(|authority| is_own_host(authority.host(), address))
    };
    let is_own_origin = |origin: &[u8]| {
        Uri::try_from(origin).is_ok_and(|origin| origin.host().is_some_and(|host| is_own_host(host, address)))
    };
    let named = head.host.into_iter().chain(head.target.authority);
    let hosts = is_call || named.map(str::as_bytes).all(is_own);
    let origins = head.fields.all(&header::ORIGIN).iter().all(is_own_origin);
    if hosts && origins { Ok(()) } else { Err(AccessDenied::Foreign) }
}
