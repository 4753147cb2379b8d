//! Logs the faults of a file: as a report for a reader, or as a record each where the program log is JSON.

use crate::config::{ConfigFinding, Report};
use crate::telemetry::program_log::ProgramLog;

/// Logs all errors and warnings of the report.
pub(super) fn log_report(log: &ProgramLog, report: &Report) {
    if !log.is_json() {
        return report.print();
    }
    for ConfigFinding { severity, message, help, file, line, column } in report.findings() {
        if severity == "error" {
            tracing::error!(severity, file, line, column, help, "{message}");
        } else {
            tracing::warn!(severity, file, line, column, help, "{message}");
        }
    }
    if report.hidden() > 0 {
        tracing::warn!("and {} more faults of the file that are not shown", report.hidden());
    }
}
