//! The command line: one function a command, texts on standard output, errors on standard error.
//!
//! Exit status: 0 good, 1 failed while running, 2 bad usage or bad configuration; 130 if told twice to stop.

mod admin;
mod health;
mod live;
mod output;
mod usage;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::config;
use crate::explain::{ExplainFault, ExplainRequest, explain};
use crate::serve::{self, Ended, RunOptions, ServeError};
use output::{fault, refuse, show};

/// A command failed while it ran.
const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
const MISTAKE: u8 = 2;
/// The status that shells report for a process ended by SIGINT.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "\
Examples:
  tollgate check                         check gateway.toml, and sum it up
  tollgate --watch                       start, and reload whenever gateway.toml changes
  tollgate -c /etc/tollgate.toml         start with another file
  tollgate --takeover                    upgrade: take over from the running process
  tollgate explain GET http://api.example.com/search -H 'x-api-key: k1'
  tollgate explain --live GET /search --ip 203.0.113.7

Signals:
  SIGHUP            reload the file; one with faults changes nothing
  SIGUSR1           open the access log's file again, after it was moved away
  SIGTERM, SIGINT   drain: requests in flight finish, then exit with 0
                    (a second one exits at once, with 130)

Exit status:
  0  good
  1  failed while running
  2  bad usage or bad configuration

The program log goes to standard error, the access log to standard output or to `file` in [log].
NO_COLOR turns colours off.";

/// A rate-limiting reverse proxy: stops excess traffic at the edge
///
/// For every request, tollgate finds the route, the limits and the key, and charges the cost. A request over a limit is
/// answered 429 and never reaches a backend. Limits, routes and upstreams are configured in one TOML file.
///
/// Without a command it starts the gateway.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_long_help = EXAMPLES, after_help = "More: tollgate --help")]
struct Arguments {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = "gateway.toml", global = true)]
    config: PathBuf,
    /// Reload when the file changes
    #[arg(long)]
    watch: bool,
    /// Take over from the running process, without refusing or losing a connection
    ///
    /// The new process loads its file, takes the listening sockets of the one that runs on the same addresses, and serves;
    /// then the old one drains and exits with 0. If no process runs, it starts as usual. Counters in memory start afresh.
    #[arg(long)]
    takeover: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the gateway (the default command)
    Run {
        /// Reload when the file changes
        #[arg(long)]
        watch: bool,
        /// Take over from the running process, without refusing or losing a connection
        ///
        /// The new process loads its file, takes the listening sockets of the one that runs on the same addresses, and
        /// serves; then the old one drains and exits with 0. If no process runs, it starts as usual. Counters in memory start
        /// afresh.
        #[arg(long)]
        takeover: bool,
    },
    /// Check the configuration: list all faults, or sum it up
    ///
    /// Every fault is shown with its place and a remedy, and the exit status is 2. A good file is summed up in words:
    /// each route and each limit. Warnings go to standard error and do not change the exit status.
    Check,
    /// Show which route a request takes, which limits apply, and why
    ///
    /// Nothing is sent or counted, and no gateway needs to run; with `--live` the running gateway is asked.
    Explain {
        /// GET, POST, …
        method: String,
        /// http://host/path?query, or only the path
        url: String,
        /// A header of the request; may be repeated
        #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
        headers: Vec<String>,
        /// Peer address: of the client, or of a trusted proxy [default: 127.0.0.1]
        #[arg(long, value_name = "ADDRESS")]
        ip: Option<IpAddr>,
        /// Ask the running gateway what would happen now, with its present counters and bans
        ///
        /// Asks the admin listener that the configuration names, with the token in the variable `token_env` names. Nothing is
        /// counted. The exit status is 0 if the gateway answers, and 1 if it can not be reached.
        #[arg(long)]
        live: bool,
    },
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Ask a running gateway whether it is alive: for the health check of a container
    ///
    /// Asks `/healthz` of the admin listener that the configuration names, for at most 2 seconds. Without `[admin]`, connects
    /// to the first listener. The exit status is 0 if the gateway is alive, 1 if not, and 2 if the file names no address.
    Health,
}

/// Runs the command line. Never panics, whatever standard output and standard error are.
pub fn main() -> ExitCode {
    match Arguments::try_parse().and_then(Arguments::checked) {
        Ok(arguments) => arguments.run(),
        // `--help` and `--version` end here too, with exit status 0; a failed write is ignored.
        Err(error) => {
            let error = usage::with_remedy(error);
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(MISTAKE) } else { ExitCode::SUCCESS }
        }
    }
}

impl Arguments {
    /// `--watch` and `--takeover` before a command are only for `run`, which the parser cannot check.
    fn checked(self) -> Result<Self, clap::Error> {
        usage::refuse_standard_input(&self.config)?;
        match self.command {
            None | Some(Command::Run { .. }) => Ok(self),
            Some(_) if self.watch => Err(only_for_run("--watch")),
            Some(_) if self.takeover => Err(only_for_run("--takeover")),
            Some(_) => Ok(self),
        }
    }

    fn run(self) -> ExitCode {
        let file = self.config.as_path();
        match self.command {
            None => run(file, RunOptions { watch: self.watch, takeover: self.takeover }),
            Some(Command::Run { watch, takeover }) => {
                run(file, RunOptions { watch: watch || self.watch, takeover: takeover || self.takeover })
            }
            Some(Command::Check) => check(file),
            Some(Command::Explain { method, url, headers, ip, live }) => {
                why(file, &method, &url, &headers, ip, live)
            }
            Some(Command::Schema) => show(config::SCHEMA),
            Some(Command::Health) => health::ask(file),
        }
    }
}

fn only_for_run(switch: &str) -> clap::Error {
    Arguments::command().error(ErrorKind::ArgumentConflict, format!("`{switch}` is only for `tollgate run`"))
}

fn run(file: &Path, manner: RunOptions) -> ExitCode {
    match serve::run(file, manner) {
        Ok(Ended::Drained) => ExitCode::SUCCESS,
        Ok(Ended::AtOnce) => ExitCode::from(INTERRUPTED),
        Err(ServeError::Config(report)) => refuse(&report),
        // An address in use counts among these: the file is right, the machine's state is not.
        Err(error) => fault(FAILED, error),
    }
}

fn check(file: &Path) -> ExitCode {
    match config::load(file) {
        Ok(loaded) => {
            loaded.warnings.print();
            show(&config::summary(&loaded.plan, &file.display().to_string()))
        }
        Err(report) => refuse(&report),
    }
}

fn why(file: &Path, method: &str, url: &str, headers: &[String], ip: Option<IpAddr>, live: bool) -> ExitCode {
    let refused = |error: ExplainFault| fault(MISTAKE, format_args!("{error}\n  = help: {}", error.help));
    let request = match ExplainRequest::new(method, url, headers, ip) {
        Ok(request) => request,
        Err(error) => return refused(error),
    };
    if live {
        return live::ask(file, method, url, headers, ip);
    }
    match config::load(file) {
        Ok(loaded) => show(&explain(&loaded.plan, &request).to_string()),
        Err(report) => refuse(&report),
    }
}
