//! The dashboard's files, which are part of the program. They contain only the page; it loads its data from the API.

use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};

use super::response::{AdminResponse, text, with};

/// Allows only these files, no frames around the page, and no requests elsewhere.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// One file of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageFile {
    content_type: &'static str,
    body: &'static str,
}

/// The file at this path, if there is one.
pub(super) fn file(path: &str) -> Option<PageFile> {
    let (content_type, body) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("dashboard/index.html")),
        "/app.js" => (SCRIPT, include_str!("dashboard/app.js")),
        "/style.css" => (STYLE, include_str!("dashboard/style.css")),
        "/uplot.js" => (SCRIPT, include_str!("dashboard/uplot.js")),
        "/uplot.css" => (STYLE, include_str!("dashboard/uplot.css")),
        "/icon.svg" => ("image/svg+xml", include_str!("dashboard/icon.svg")),
        _ => return None,
    };
    Some(PageFile { content_type, body })
}

impl PageFile {
    pub(super) fn answer(self) -> AdminResponse {
        let answer = text(StatusCode::OK, self.content_type, self.body);
        let answer = with(answer, CONTENT_SECURITY_POLICY, POLICY);
        with(with(answer, X_CONTENT_TYPE_OPTIONS, "nosniff"), REFERRER_POLICY, "no-referrer")
    }
}
