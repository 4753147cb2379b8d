//! Shows a certificate to clients, and keeps it.

use std::sync::Arc;

use crate::acme::certificate::StoredCertificate;
use crate::acme::live::{LiveCertificate, LiveSource, LiveStatus};
use crate::acme::state::StateDirectory;
use crate::limit::wall_clock::WallTime;

/// Shows this certificate from now on, if it is for the names and better than the present one. Returns whether it is.
pub(super) fn adopt(
    live: &LiveCertificate,
    found: StoredCertificate,
    state: &StateDirectory,
    now: WallTime,
) -> bool {
    let present = live.status();
    let is_better =
        present.source != LiveSource::Authority || found.validity.end > present.certificate.validity.end;
    if found.check(&live.names, now).is_err() || !is_better {
        return false;
    }
    let is_unsaved = state.certificate(&live.names).is_none_or(|kept| kept.pem != found.pem);
    let next = LiveStatus { is_unsaved, ..LiveStatus::new(found, LiveSource::Authority) };
    live.install(next);
    true
}

/// Writes the certificate to the state directory, if it is not there. `is_first`: a failure is logged.
pub(super) fn save(live: &Arc<LiveCertificate>, state: &StateDirectory, is_first: bool) {
    let status = live.status();
    if !status.is_unsaved {
        return;
    }
    let (names, path) = (live.names.join(", "), state.path().display());
    match state.write_certificate(&live.names, &status.certificate.pem) {
        Ok(()) => {
            live.update(|status| status.is_unsaved = false);
            if !is_first {
                tracing::info!("certificate for {names}: written to {path} now");
            }
        }
        Err(error) if is_first => tracing::warn!(
            "certificate for {names}: it cannot be written to {path}, is used from memory, and is written again every \
             minute: {error}"
        ),
        Err(error) => tracing::debug!("certificate for {names}: it cannot be written to {path}: {error}"),
    }
}

/// A moment for people.
pub(super) fn moment(at: WallTime) -> String {
    let seconds = i64::try_from(at.seconds()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "never".to_owned(), |at| at.to_string())
}
