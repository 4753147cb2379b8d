//! A certificate that is replaced while handshakes read it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;

use super::certificate::StoredCertificate;
use super::schedule::{FailedOrders, Validity};
use crate::labels::labels;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;

/// How long a certificate is used at least, whatever the authority suggests, unless a tenth of its lifetime is less.
const LEAST_USE: Micros = Micros(3_600 * Micros::SECOND.0);

/// `acme` of a `[[server.tls]]`: the names, and the certificate that is shown for them.
#[derive(Debug)]
pub struct AcmeCertificate {
    /// The names in lower case, in the order of the file; at least one.
    pub names: Vec<String>,
    /// Set before the plan becomes active.
    live: OnceLock<Arc<LiveCertificate>>,
}

impl AcmeCertificate {
    /// No certificate is shown yet.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, live: OnceLock::new() }
    }

    /// Shows this certificate from now on, and what it becomes.
    pub fn attach(&self, live: Arc<LiveCertificate>) {
        // Only a plan that is not active yet is attached to.
        let _ = self.live.set(live);
    }

    /// The certificate, once the plan is active.
    pub fn live(&self) -> Option<&Arc<LiveCertificate>> {
        self.live.get()
    }
}

labels! {
    /// Where a live certificate is from.
    pub enum LiveSource {
        /// The authority, for the names of the file.
        Authority = "acme",
        /// The authority, for other names, those of the file among them.
        OtherNames = "acme-other-names",
        /// Made here, since there is no other yet.
        SelfSigned = "self-signed",
    }
}

/// What is shown now, and what is known of it.
pub struct LiveCertificate {
    /// The names that it is for.
    pub names: Vec<String>,
    /// The directory of the authority.
    pub directory: String,
    key: ArcSwap<CertifiedKey>,
    status: Mutex<LiveStatus>,
}

/// What is known of a live certificate.
#[derive(Clone, Debug)]
pub struct LiveStatus {
    /// Where it is from.
    pub source: LiveSource,
    /// The certificate.
    pub certificate: StoredCertificate,
    /// A random number from 0 to 1, by which its renewal varies.
    pub jitter: f64,
    /// The moment that the authority suggests for the renewal.
    pub suggested: Option<WallTime>,
    /// When the authority is asked for that again.
    pub suggestion_due: WallTime,
    /// The failed orders since the last success.
    pub failed: FailedOrders,
    /// It has to be written to the state directory.
    pub is_unsaved: bool,
    /// When it came from the authority in this process.
    pub installed: Option<WallTime>,
}

impl LiveStatus {
    /// The certificate, with nothing else known.
    pub fn new(certificate: StoredCertificate, source: LiveSource) -> Self {
        Self {
            source,
            certificate,
            jitter: fastrand::f64(),
            suggested: None,
            suggestion_due: WallTime(0),
            failed: FailedOrders::default(),
            is_unsaved: false,
            installed: None,
        }
    }

    /// When the next one is to be ordered, apart from failures.
    pub fn renewal(&self) -> WallTime {
        match self.source {
            LiveSource::Authority => {
                let validity = self.certificate.validity;
                // An authority that suggests the present at once would be asked again and again.
                let used = Micros(LEAST_USE.0.min(validity.end.since(validity.begin).0 / 10));
                let least = self.installed.map_or(WallTime(0), |at| at.plus(used));
                validity.renewal(self.jitter, self.suggested.map(|suggested| suggested.max(least)))
            }
            LiveSource::OtherNames | LiveSource::SelfSigned => WallTime(0),
        }
    }

    /// When the next order is made, at `now` or later.
    pub fn next_order(&self, now: WallTime) -> WallTime {
        self.renewal().max(self.failed.next(now)).max(now)
    }
}

impl LiveCertificate {
    /// Shows this certificate for these names of an authority.
    pub fn new(names: Vec<String>, directory: String, status: LiveStatus) -> Self {
        let key = ArcSwap::new(Arc::clone(&status.certificate.key));
        Self { names, directory, key, status: Mutex::new(status) }
    }

    /// What handshakes show.
    #[inline]
    pub fn key(&self) -> Arc<CertifiedKey> {
        self.key.load_full()
    }

    /// What is known of it.
    pub fn status(&self) -> LiveStatus {
        self.status.lock().clone()
    }

    /// When it is valid.
    pub fn validity(&self) -> Validity {
        self.status.lock().certificate.validity
    }

    /// Changes what is known of it.
    pub fn update<T>(&self, change: impl FnOnce(&mut LiveStatus) -> T) -> T {
        change(&mut self.status.lock())
    }

    /// Shows this certificate from now on.
    pub fn install(&self, next: LiveStatus) {
        self.key.store(Arc::clone(&next.certificate.key));
        *self.status.lock() = next;
    }
}

impl fmt::Debug for LiveCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}
