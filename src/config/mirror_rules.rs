//! What a `mirror` has to agree on with its upstream, and with that of its route.

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::mirror::MirrorDraft;
use super::report::quoted;
use crate::plan::Backend;
use crate::plan::action::RouteAction;

/// Checks all mirrors.
pub(super) fn check(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    for route in draft.routes.iter().filter(|route| diagnostics.is_known(route.route.is_some())) {
        let Some(MirrorDraft { mirror, span }) = &route.mirror else { continue };
        let Some(target) = draft.upstreams.get(mirror.upstream.0) else { continue };
        if target.upstream.as_ref().is_some_and(|upstream| upstream.backend == Backend::Echo) {
            let message =
                format!("upstream {} is `builtin:echo`, which gets no copies", quoted(&target.name));
            diagnostics.fault(*span, message, "name an upstream with servers");
        }
        let action = route.route.as_ref().map(|route| &route.action);
        if matches!(action, Some(RouteAction::Forward(upstream)) if *upstream == mirror.upstream) {
            let message = format!("upstream {} gets each request of the share twice", quoted(&target.name));
            diagnostics.warn(*span, message, "name another upstream in `mirror`, or leave it out");
        }
    }
}
