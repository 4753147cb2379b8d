//! What `[acme]`, the certificates and the listeners have to agree on.

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::server;
use crate::acme::settings::ChallengeKind;

/// Checks `[acme]`.
pub(super) fn check(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let Some(acme) = &draft.acme else { return };
    let listeners = || draft.server.client_listeners();
    if !draft.names_acme && diagnostics.unknown() == 0 && draft.server_is_sound {
        let help =
            "name the servers: `[[server.tls]]` with `acme = [\"example.com\"]`, or leave `[acme]` out";
        diagnostics.warn(acme.span, "`[acme]` has no effect: no certificate is to be ordered", help);
        return;
    }
    let is_by_http =
        acme.settings.as_ref().is_some_and(|settings| settings.challenge == ChallengeKind::Http01);
    let is_known = !diagnostics.is_uncertain(server::TITLE, "listen");
    if is_by_http && is_known && !listeners().any(|listener| !listener.tls) {
        diagnostics.warn(
            acme.span,
            "`challenge = \"http-01\"` is asked for over HTTP at port 80, and no listener is without TLS",
            "add `{ address = \"0.0.0.0:80\", tls = false }` to `listen`, or write `challenge = \"tls-alpn-01\"`",
        );
    }
}
