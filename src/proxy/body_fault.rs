//! The response to a body that broke off, and its names in the log.

use http::StatusCode;

use super::request_reader::BodyFault;

/// The fault of a request body: status, detail and the access log's `error`.
pub(super) fn upload_fault(fault: Option<BodyFault>) -> (StatusCode, &'static str, &'static str) {
    match fault {
        Some(BodyFault::TooLarge) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large", "body_too_large")
        }
        Some(BodyFault::Timeout) => {
            (StatusCode::REQUEST_TIMEOUT, "the request body did not come in time", "body_timeout")
        }
        Some(BodyFault::Gone) => (StatusCode::BAD_REQUEST, "the request body broke off", "client_gone"),
        Some(BodyFault::Stalled) => {
            (StatusCode::REQUEST_TIMEOUT, "the client takes nothing", "write_timeout")
        }
        Some(BodyFault::Malformed) | None => {
            (StatusCode::BAD_REQUEST, "the request body is malformed", "malformed_body")
        }
    }
}
