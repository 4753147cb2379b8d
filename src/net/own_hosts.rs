//! Names of this machine, by which a listener on loopback tells what was meant for it.

use std::net::IpAddr;

/// Whether `host` names the loopback, or this address of a listener. It may be in brackets; a port is none of it.
///
/// A browser on the machine can be made to send requests to loopback, by a foreign page or by a name that an attacker
/// resolves to 127.0.0.1. `Host` and `Origin` show it.
pub fn is_own_host(host: &str, listener: IpAddr) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = bare.parse::<IpAddr>().map(|address| address.to_canonical());
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback() || address == listener.to_canonical())
}
