//! Listening sockets opened by a service manager (systemd's socket activation, `sd_listen_fds(3)`).
//!
//! A socket is used for the listener with its address in the config file. Its name (`FileDescriptorName=`) matters only
//! if it is `admin`: then its address must be the admin listener's.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use super::ServeError;
use crate::plan::Plan;

/// The name of the admin listener's socket.
const ADMIN: &str = "admin";

/// The sockets opened for this process. Called once, before there are threads: it clears the environment.
///
/// # Errors
///
/// A socket that does not listen on TCP, or has an address that the file does not name.
pub(super) fn of_service_manager(plan: &Plan) -> Result<Vec<TcpListener>, ServeError> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::with_capacity(passed.len());
    let names = names.split(':').map(Some).chain(std::iter::repeat(None));
    for (number, name) in (0..passed.len()).zip(names) {
        let to_error =
            |error| ServeError::Listen(format!("inherited socket {number} can not be used: {error}"));
        let listener = passed.take_tcp_listener(number).and_then(listening).map_err(to_error)?;
        let address = listener.local_addr().map_err(to_error)?;
        check(address, name, plan)?;
        sockets.push(listener);
    }
    Ok(sockets)
}

fn listening(inherited: Option<TcpListener>) -> io::Result<TcpListener> {
    let listener = inherited.ok_or(io::ErrorKind::NotFound)?;
    if !socket_acceptconn(&listener)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
    }
    Ok(listener)
}

fn check(address: SocketAddr, name: Option<&str>, plan: &Plan) -> Result<(), ServeError> {
    let is_admins = plan.admin.as_ref().is_some_and(|admin| admin.listen == address);
    let is_named = plan.server.listen.iter().any(|listener| listener.address == address);
    match name {
        Some(ADMIN) if is_admins => Ok(()),
        Some(ADMIN) => Err(ServeError::Listen(format!(
            "the inherited socket named `{ADMIN}` listens on {address}, but [admin] does not\n  = help: give both the same address"
        ))),
        _ if is_admins || is_named => Ok(()),
        _ => Err(ServeError::Listen(format!(
            "an inherited socket listens on {address}, which the file does not name\n  = help: add it to `listen` in [server], or \
             leave it out of the socket unit"
        ))),
    }
}
