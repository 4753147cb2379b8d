//! `tollgate health`: asks a running gateway.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};

use super::admin::{self, AdminClient};
use super::output::fault;
use super::{FAILED, MISTAKE};
use crate::config::{self, DEFAULT_ADDRESS};

/// The timeout for connecting, request and response together.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks `/healthz` of the admin listener that `file` names. Without one, connects to the first listener.
pub(super) fn ask(file: &Path) -> ExitCode {
    let target = config::peek(file).and_then(|table| match AdminClient::of(&table, file)? {
        Some(admin) => Ok(Target::Admin(admin)),
        None => first_listener(&table, file).map(Target::Listener),
    });
    match target {
        Ok(Target::Admin(admin)) => ask_admin(&admin),
        Ok(Target::Listener(address)) => match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => fault(FAILED, format_args!("no gateway listens on {address}: {error}")),
        },
        Err(message) => fault(MISTAKE, message),
    }
}

enum Target {
    Admin(AdminClient),
    Listener(SocketAddr),
}

fn ask_admin(admin: &AdminClient) -> ExitCode {
    let address = admin.address;
    match admin.ask(Method::GET, "/healthz", None, String::new(), TIMEOUT) {
        Ok((StatusCode::OK, _)) => ExitCode::SUCCESS,
        Ok((status, _)) => fault(FAILED, format_args!("the gateway at {address} answers {status}")),
        Err(error) => fault(FAILED, format_args!("no gateway answers at {address}: {error}")),
    }
}

/// The first address that the gateway listens on for clients.
fn first_listener(table: &toml::Table, file: &Path) -> Result<SocketAddr, String> {
    let listen = table.get("server").and_then(|server| server.get("listen"));
    let Some(first) = listen.map(|listen| listen.get(0).unwrap_or(listen)) else {
        return Ok(DEFAULT_ADDRESS);
    };
    let text = first.as_str().or_else(|| first.get("address").and_then(toml::Value::as_str));
    let text = text.ok_or_else(|| format!("`listen` in `{}` is no list of addresses", file.display()))?;
    admin::address(text, "first listener", file)
}
