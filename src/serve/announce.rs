//! What the program log says when the gateway serves, and the next steps for a person at a terminal.

use std::io::{IsTerminal as _, stderr};
use std::net::SocketAddr;

use crate::admin::AdminListener;
use crate::config::counted;
use crate::plan::admin::Admin;
use crate::plan::{Listener, ListenerRole, Plan};

/// Logs four lines, of which scripts may wait for the second: version and file, listeners, what the file holds, admin
/// listener.
pub(super) fn announce(plan: &Plan, file: &str, admin: Option<&AdminListener>) {
    tracing::info!("tollgate {} runs {file}", env!("CARGO_PKG_VERSION"));
    let one = |listener: &Listener| match listener.tls {
        true if listener.http3_port().is_some() => format!("{} (TLS and HTTP/3)", listener.address),
        true => format!("{} (TLS)", listener.address),
        false => listener.address.to_string(),
    };
    let listeners: Vec<_> = plan.server.client_listeners().map(one).collect();
    tracing::info!("listening on {}", listeners.join(", "));
    tracing::info!(
        "{}, {}, {}",
        counted(plan.taking_routes().count(), "route"),
        counted(plan.limits.len(), "limit"),
        counted(plan.upstreams.len(), "upstream"),
    );
    let of_decisions = plan.server.listen.iter().find(|listener| listener.role == ListenerRole::Decisions);
    if let Some(listener) = of_decisions {
        tracing::info!("decisions listening on {}", one(listener));
    }
    if let Some(admin) = admin {
        tracing::info!("admin listening on {}://{}/", admin_scheme(plan), admin.address());
    }
    if stderr().is_terminal() {
        next_steps(plan, admin);
    }
}

/// Logs the page to open and the request to send. Only a person at a terminal needs them.
fn next_steps(plan: &Plan, admin: Option<&AdminListener>) {
    if let Some(admin) = admin {
        tracing::info!("dashboard: {}://{}/", admin_scheme(plan), reachable(admin.address()));
    }
    if let Some(listener) = plan.server.client_listeners().next() {
        let address = reachable(listener.address);
        match listener.tls {
            // The name of the certificate is rarely the address.
            true => tracing::info!("try: curl -ik https://{address}/"),
            false => tracing::info!("try: curl -i http://{address}/"),
        }
    }
}

fn admin_scheme(plan: &Plan) -> &'static str {
    plan.admin.as_ref().map_or("http", Admin::scheme)
}

/// The address by which a client on this machine reaches a listener: one on all addresses is on `localhost`, too.
fn reachable(listener: SocketAddr) -> String {
    match listener.ip().is_unspecified() {
        true => format!("localhost:{}", listener.port()),
        false => listener.to_string(),
    }
}
