//! The certificates that clients are shown: a part of the status, and what is wrong with those of an authority.

use super::values::wall_moment;
use crate::acme::live::{LiveCertificate, LiveSource};
use crate::admin_api::status::CertificateReport;
use crate::limit::wall_clock::WallTime;
use crate::plan::Plan;
use crate::plan::certificates::{CertificateSource, ServedCertificate};

/// The most certificates that are told of.
const MAX_CERTIFICATES: usize = 1_000;
/// An order that fails is an outage in the making from this share of the lifetime on: the same as in
/// `deploy/alerts.yml`.
const LEFT: f64 = 0.25;

/// The certificates of `[[server.tls]]`, in the order of the file.
pub(super) fn get(plan: &Plan, now: WallTime) -> Vec<CertificateReport> {
    let all = plan.server.tls.iter().flat_map(|tls| &tls.certificates).take(MAX_CERTIFICATES);
    all.map(|one| report(one, now)).collect()
}

fn report(one: &ServedCertificate, now: WallTime) -> CertificateReport {
    let expires = one.expiry().map(wall_moment);
    let names = one.names.clone();
    let of_file =
        CertificateReport { names, source: "file".to_owned(), expires, next_attempt: None, last_error: None };
    match &one.source {
        CertificateSource::File(_) => of_file,
        CertificateSource::Acme(certificate) => match certificate.live() {
            Some(live) => of_authority(live, of_file, now),
            None => CertificateReport { source: "none".to_owned(), ..of_file },
        },
    }
}

fn of_authority(live: &LiveCertificate, report: CertificateReport, now: WallTime) -> CertificateReport {
    let status = live.status();
    let source = match status.source {
        LiveSource::Authority | LiveSource::OtherNames => "acme",
        LiveSource::SelfSigned => "self-signed",
    };
    CertificateReport {
        source: source.to_owned(),
        next_attempt: Some(wall_moment(status.next_order(now))),
        last_error: (status.failed.count > 0).then_some(status.failed.error),
        ..report
    }
}

/// What is wrong: whether it is an outage, and a sentence.
pub(super) fn problems(plan: &Plan, now: WallTime) -> Vec<(bool, String)> {
    let live = plan.server.tls.iter().flat_map(|tls| tls.acme()).filter_map(|one| one.live());
    live.filter_map(|live| problem(live, now)).collect()
}

fn problem(live: &LiveCertificate, now: WallTime) -> Option<(bool, String)> {
    let status = live.status();
    let (first, more) = (live.names.first()?, live.names.len().saturating_sub(1));
    let names = if more == 0 { format!("`{first}`") } else { format!("`{first}` and {more} more") };
    let (failures, error) = (status.failed.count, &status.failed.error);
    match status.source {
        LiveSource::SelfSigned if failures > 0 => {
            Some((true, format!("{names}: clients are shown a self-signed certificate: {error}")))
        }
        LiveSource::SelfSigned => {
            Some((false, format!("{names}: clients are shown a self-signed certificate")))
        }
        LiveSource::Authority | LiveSource::OtherNames if failures > 0 => {
            let is_late = status.certificate.validity.left(now) < LEFT;
            Some((is_late, format!("{names}: the certificate could not be renewed: {error}")))
        }
        LiveSource::Authority | LiveSource::OtherNames => None,
    }
}
