//! The client of an admin request, and what it may do.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

use http::StatusCode;

use super::response::{AdminResponse, problem};
use crate::plan::admin::{AdminRight, AdminRights};

/// The client of a request to the admin listener. Its text is for the log.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Its address.
    pub(super) peer: SocketAddr,
    /// The name of its token in `[admin.tokens]`; `None`: it has the token of `[admin]`, or needs none.
    pub(super) token: Option<Box<str>>,
    pub(super) rights: AdminRights,
}

impl Caller {
    /// The response to a request without the right that it needs.
    pub(super) fn refusal(&self, right: AdminRight<'_>) -> Option<AdminResponse> {
        if self.rights.allow(right) {
            return None;
        }
        let name = self.token.as_deref().unwrap_or_default().escape_debug();
        Some(problem(StatusCode::FORBIDDEN, &format!("token `{name}` does not have the right `{right}`")))
    }
}

impl Display for Caller {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.peer)?;
        self.token.as_ref().map_or(Ok(()), |name| write!(f, " (token `{}`)", name.escape_debug()))
    }
}
