//! `tollgate health`: asks a running gateway.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};

use super::admin::{self, AdminClient};
use super::admin_tls::{AdminTlsArguments, AdminTrust};
use super::output::fault;
use super::{FAILED, MISTAKE};
use crate::admin_api::changes::ProblemDetails;
use crate::config::{self, DEFAULT_ADDRESS};

/// The timeout for connecting, request and response together.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The gateway that is asked.
#[derive(Debug, clap::Args)]
pub(super) struct HealthArguments {
    /// The admin listener, in place of the one that the configuration names: http://HOST:PORT or https://HOST:PORT
    ///
    /// No configuration is read. No token is needed.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    tls: AdminTlsArguments,
}

/// Asks `/healthz` of the admin listener at the URL, or of the one that `file` names. If it names none, connects to the
/// first listener.
pub(super) fn ask(file: &Path, arguments: &HealthArguments) -> ExitCode {
    let target = match &arguments.url {
        Some(url) => AdminClient::at_url(url, &arguments.tls).map(Target::Admin),
        None => named_in(file, &arguments.tls),
    };
    match target {
        Ok(Target::Admin(admin)) => ask_admin(&admin),
        Ok(Target::Listener(address)) => match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => fault(FAILED, format_args!("no gateway listens on {address}: {error}")),
        },
        Err(message) => fault(MISTAKE, message),
    }
}

fn named_in(file: &Path, tls: &AdminTlsArguments) -> Result<Target, String> {
    if !config::is_standard_input(file) && !file.exists() {
        let help = "name the file with `-c FILE`, or the gateway with `--url http://127.0.0.1:9900`";
        return Err(format!("there is no file `{}`\n  = help: {help}", file.display()));
    }
    let table = config::peek(file)?;
    // No token is sent, and certificates that were renewed but not yet loaded must not end a container.
    match AdminClient::of(&table, file, tls, |_| AdminTrust::Any)? {
        Some(admin) => Ok(Target::Admin(admin)),
        None => first_listener(&table, file).map(Target::Listener),
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
        Ok((status, body)) => {
            let ProblemDetails { detail, .. } = serde_json::from_slice(&body).unwrap_or_default();
            let detail = if detail.is_empty() { detail } else { format!(": {}", detail.escape_debug()) };
            fault(FAILED, format_args!("the gateway at {address} answers {status}{detail}"))
        }
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
    let text = text.ok_or_else(|| format!("`listen` in `{}` is not a list of addresses", file.display()))?;
    admin::address(text, "first listener", file)
}
