//! What this process knows of certificates from authorities: it outlives reloads.

use std::sync::Arc;

use parking_lot::Mutex;

use super::certificate;
use super::challenges::Challenges;
use super::live::{AcmeCertificate, LiveCertificate, LiveSource, LiveStatus};
use super::settings::AcmeSettings;
use super::state::StateDirectory;
use crate::limit::wall_clock::WallTime;

/// One value for the process.
#[derive(Debug, Default)]
pub struct AcmeRuntime {
    /// What can be answered now.
    pub challenges: Challenges,
    live: Mutex<Vec<Arc<LiveCertificate>>>,
}

impl AcmeRuntime {
    /// Gives each of these, which are all of a plan that is not active yet, its live certificate: one that this process
    /// has for the same names, else one of the state directory, else a self-signed one.
    pub fn attach(&self, settings: &AcmeSettings, wanted: &[&Arc<AcmeCertificate>], now: WallTime) {
        let mut known = self.live.lock();
        let state = StateDirectory::new(settings);
        let mut attempts = None;
        let mut used = Vec::new();
        for one in wanted {
            let is_same = |live: &&Arc<LiveCertificate>| {
                live.names == one.names && live.directory == settings.directory
            };
            let live = match known.iter().find(is_same) {
                Some(live) => Arc::clone(live),
                None => {
                    let failed = attempts.get_or_insert_with(|| state.failed_orders());
                    let Some(mut status) = first_status(&one.names, &state, &known, now) else { continue };
                    status.failed = failed.get(&state.id(&one.names)).cloned().unwrap_or_default();
                    Arc::new(LiveCertificate::new(one.names.clone(), settings.directory.clone(), status))
                }
            };
            one.attach(Arc::clone(&live));
            used.push(live);
        }
        *known = used;
    }
}

/// The certificate that is shown first for these names; `known`: those that the process has already.
fn first_status(
    names: &[String],
    state: &StateDirectory,
    known: &[Arc<LiveCertificate>],
    now: WallTime,
) -> Option<LiveStatus> {
    let shown = names.join(", ");
    if let Some(stored) = state.certificate(names).filter(|stored| stored.check(names, now).is_ok()) {
        tracing::info!("certificate for {shown}: read from {}", state.path().display());
        return Some(LiveStatus::new(stored, LiveSource::Authority));
    }
    let is_issued = |live: &&Arc<LiveCertificate>| live.status().source != LiveSource::SelfSigned;
    let here = known.iter().filter(is_issued).map(|live| live.status().certificate);
    let covering = here.chain(state.certificates()).filter(|one| one.check(names, now).is_ok());
    if let Some(stored) = covering.max_by_key(|one| one.validity.end) {
        tracing::info!("certificate for {shown}: one for {} is shown meanwhile", stored.names.join(", "));
        return Some(LiveStatus::new(stored, LiveSource::OtherNames));
    }
    match certificate::self_signed(names, now) {
        Ok(made) => {
            tracing::warn!(
                "certificate for {shown}: none yet, so a self-signed one is shown, which clients refuse, until the authority \
                 has issued one"
            );
            Some(LiveStatus::new(made, LiveSource::SelfSigned))
        }
        Err(error) => {
            tracing::error!("certificate for {shown}: {error}");
            None
        }
    }
}
