//! `tollgate health`: asks a running gateway.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};

use super::admin::Admin;
use super::output::fault;
use super::{FAILED, MISTAKE};

/// For connecting, asking and answering together.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks `/healthz` of the admin listener that `file` names.
pub(super) fn ask(file: &Path) -> ExitCode {
    let admin = match Admin::named_in(file) {
        Ok(admin) => admin,
        Err(message) => return fault(MISTAKE, message),
    };
    let address = admin.address;
    match admin.ask(Method::GET, "/healthz", None, String::new(), PATIENCE) {
        Ok((StatusCode::OK, _)) => ExitCode::SUCCESS,
        Ok((status, _)) => fault(FAILED, format_args!("the gateway at {address} answers {status}")),
        Err(error) => fault(FAILED, format_args!("no gateway answers at {address}: {error}")),
    }
}
