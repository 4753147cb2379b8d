//! The command line: one function a command, texts on standard output, errors on standard error.
//!
//! Exit status: 0 good, 1 failed while running, 2 bad usage or bad configuration; 130 if told twice to stop.

mod admin;
mod admin_tls;
mod check;
mod examples;
mod health;
mod import;
mod init;
mod live;
mod logs;
mod output;
mod replay;
mod shell;
mod suggest;
mod test;
mod top;
mod usage;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::config;
use crate::explain::{ExplainFault, ExplainRequest, explain, json};
use crate::serve::{self, Ended, RunOptions, ServeError};
use crate::telemetry::terminal::{ColourChoice, choose_colour, resolve_colour};
use admin_tls::AdminTlsArguments;
use check::CheckOptions;
use health::HealthArguments;
use import::ImportArguments;
use init::InitArguments;
use output::{fault, refuse, show};
use replay::ReplayArguments;
use suggest::SuggestArguments;
use test::TestArguments;
use top::TopArguments;

/// The environment variable that names the configuration.
const FILE_VARIABLE: &str = "TOLLGATE_CONFIG";
const DEFAULT_FILE: &str = "gateway.toml";

/// A command failed while it ran.
const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
const MISTAKE: u8 = 2;
/// The status that shells report for a process ended by SIGINT.
const INTERRUPTED: u8 = 130;

/// A rate-limiting reverse proxy: stops excess traffic at the edge
///
/// For every request, tollgate finds the route, the limits and the key, and charges the cost. A request over a limit is
/// answered 429 and never reaches a backend. Limits, routes and upstreams are configured in one TOML file.
///
/// Without a command it starts the gateway.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_long_help = examples::ALL, after_help = "More: tollgate --help")]
struct Arguments {
    /// The configuration [env: TOLLGATE_CONFIG] [default: gateway.toml]
    ///
    /// A file, a directory of which all `*.toml` are read, or `-` for standard input.
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Show less in the program log: warnings and errors; twice: errors
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "verbose")]
    quiet: u8,
    /// Show more in the program log: the level debug; twice: trace
    ///
    /// `-q` and `-v` overrule `level` in [log], also after a reload.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// Colours in texts for a reader: auto, always or never
    ///
    /// `auto`: if CLICOLOR_FORCE is set, always; else if NO_COLOR is set, never; else on a terminal.
    #[arg(
        long, value_name = "WHEN", value_parser = ["auto", "always", "never"], default_value = "auto",
        hide_possible_values = true, global = true
    )]
    color: String,
    /// Reload when the file changes
    #[arg(long)]
    watch: bool,
    /// Take over from the running process, without refusing or losing a connection
    ///
    /// The new process loads its file, takes the listening sockets of the one that runs on the same addresses, and serves;
    /// then the old one drains and exits with 0. Counters in memory are handed over. If no process runs, it starts as usual.
    #[arg(long)]
    takeover: bool,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Start the gateway (the default command)
    #[command(after_help = examples::RUN)]
    Run {
        /// Reload when the file changes
        #[arg(long)]
        watch: bool,
        /// Take over from the running process, without refusing or losing a connection
        ///
        /// The new process loads its file, takes the listening sockets of the one that runs on the same addresses, and
        /// serves; then the old one drains and exits with 0. Counters in memory are handed over. If no process runs, it starts
        /// as usual.
        #[arg(long)]
        takeover: bool,
    },
    /// Check the configuration: list all faults, or sum it up
    ///
    /// Every fault is shown with its place and a remedy, and the exit status is 2. A good file is summed up in words:
    /// each route and each limit. Warnings go to standard error and do not change the exit status without `--strict`.
    #[command(after_help = examples::CHECK)]
    Check {
        /// The configuration, as with `-c`
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        options: CheckOptions,
    },
    /// Write a configuration from three questions
    ///
    /// Asks for the address of your service, what tells clients apart, and how many requests a client may send. Writes a
    /// configuration with comments, and beside it a test of its limit. An option answers its question beforehand, and
    /// `--yes` takes the defaults. A file that is there is not overwritten without `--force`.
    #[command(after_help = examples::INIT)]
    Init(InitArguments),
    /// Run tests of limits: requests in virtual time, and the answers they are to get
    ///
    /// Nothing is sent, and no gateway needs to run: the requests of each test are decided as a gateway with unused counters
    /// decides them. The exit status is 1 if a test fails; the first difference is shown with its explanation.
    #[command(after_help = examples::TEST)]
    Test(TestArguments),
    /// Show which route a request takes, which limits apply, and why
    ///
    /// Nothing is sent or counted, and no gateway needs to run; with `--live` the running gateway is asked.
    #[command(after_help = examples::EXPLAIN)]
    Explain {
        /// GET, POST, …; `descriptors` for a call of Envoy's rate limit filter
        method: String,
        /// http:// or https://host/path?query, or only the path; of descriptors http://domain/name=value,name=value
        url: String,
        /// A header of the request; may be repeated
        #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
        headers: Vec<String>,
        /// Peer address: of the client, or of a trusted proxy [default: 127.0.0.1]
        #[arg(long, value_name = "ADDRESS")]
        ip: Option<IpAddr>,
        /// Name of the listener that the request comes at [default: that of the first]
        #[arg(long, value_name = "NAME")]
        listener: Option<String>,
        /// Ask the running gateway what would happen now, with its present counters and bans
        ///
        /// Asks the admin listener that the configuration names, with the token in the variable `token_env` names. Nothing is
        /// counted. The exit status is 0 if the gateway answers, and 1 if it cannot be reached.
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        tls: AdminTlsArguments,
        /// Print a JSON object with the same facts, for programs
        #[arg(long)]
        json: bool,
    },
    /// Show what the limits would have done to the requests of an access log
    ///
    /// Reads logs of tollgate, nginx, Apache, Caddy, Traefik, Envoy, HAProxy and AWS' load balancer, and runs their requests
    /// through the configuration in virtual time. Nothing is sent, and no gateway needs to run. The exit status is 1 if the
    /// logs have no request, or if more are refused than `--fail-above` allows.
    #[command(after_help = examples::REPLAY)]
    Replay(Box<ReplayArguments>),
    /// Propose limits from the requests of an access log
    ///
    /// Reads the same logs as `replay`. For each route of the configuration, or for all requests if there is none, keys with
    /// outstanding peaks are set apart, and a limit above the peaks of all others is printed as TOML in shadow mode, with its
    /// reasons as comments.
    #[command(after_help = examples::SUGGEST)]
    Suggest(Box<SuggestArguments>),
    /// Translate the configuration of another program
    ///
    /// Prints limits and descriptors as TOML, for `gateway.toml`. What has no counterpart there, or means something else,
    /// is said on standard error with file and line, and as a comment. The exit status is 2 if a file has errors.
    #[command(after_help = examples::IMPORT)]
    Import(ImportArguments),
    /// Print the JSON Schema of the configuration, for editors
    #[command(after_help = examples::SCHEMA)]
    Schema {
        /// Of files with tests of limits, instead
        #[arg(long)]
        tests: bool,
    },
    /// Ask a running gateway whether it is alive: for the health check of a container
    ///
    /// Asks `/healthz` of the admin listener that the configuration names, for at most 2 seconds. Without `[admin]`, connects
    /// to the first listener. With `--url` no file is needed. The exit status is 0 if the gateway is alive, 1 if not, and 2
    /// if the file names no address.
    #[command(after_help = examples::HEALTH)]
    Health(HealthArguments),
    /// Show the dashboard in the terminal
    ///
    /// Asks the admin listener that the configuration names, once a second, with the token in the variable `token_env` names:
    /// rates, limits, keys, refusals, backends, bans, routes. A key can be looked at, reset, banned and unbanned. `?` lists
    /// the keys of the keyboard. With `--once` the exit status is 1 if the gateway cannot be reached.
    #[command(after_help = examples::TOP)]
    Top(TopArguments),
    /// Print the completions of a shell: bash, zsh, fish, elvish or powershell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL", hide_possible_values = true)]
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_help = examples::MAN)]
    Man,
}

/// Runs the command line. Never panics, whatever standard output and standard error are.
pub fn main() -> ExitCode {
    if let Some(status) = serve::stand_between() {
        return status;
    }
    choose_colour(typed_colour());
    let parsed = command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed.map_err(|error| error.format(&mut command())).and_then(Arguments::checked) {
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
        let watches = self.watch || matches!(self.command, Some(CliCommand::Run { watch: true, .. }));
        usage::refuse_watch_of_standard_input(&self.file(), watches)?;
        match self.command {
            None | Some(CliCommand::Run { .. }) => Ok(self),
            Some(CliCommand::Check { file: Some(_), .. }) if self.config.is_some() => {
                let message = "the file is named twice: with `-c` and without it";
                Err(command().error(ErrorKind::ArgumentConflict, message))
            }
            Some(_) if self.watch => Err(only_for_run("--watch")),
            Some(_) if self.takeover => Err(only_for_run("--takeover")),
            Some(_) => Ok(self),
        }
    }

    /// The configuration: as the command line names it, as the environment does, or `gateway.toml`.
    fn file(&self) -> PathBuf {
        let of_environment = || std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
        let named = self.config.clone().or_else(|| of_environment().map(PathBuf::from));
        named.unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
    }

    fn run(self) -> ExitCode {
        let (file, level) = (&self.file(), self.level());
        let is_named = *file != Path::new(DEFAULT_FILE);
        match self.command {
            None => run(file, RunOptions { watch: self.watch, takeover: self.takeover, level }),
            Some(CliCommand::Run { watch, takeover }) => {
                let (watch, takeover) = (watch || self.watch, takeover || self.takeover);
                run(file, RunOptions { watch, takeover, level })
            }
            Some(CliCommand::Check { file: named, options }) => {
                check::run(named.as_ref().unwrap_or(file), options)
            }
            Some(CliCommand::Explain { method, url, headers, ip, listener, live, tls, json }) => {
                let form = if json { ExplainForm::Json } else { ExplainForm::Text };
                why(file, &ExplainArguments { method, url, headers, ip, listener, tls }, live, form)
            }
            Some(CliCommand::Replay(arguments)) => replay::run(file, &arguments),
            Some(CliCommand::Suggest(arguments)) => suggest::run(file, is_named, &arguments),
            Some(CliCommand::Import(arguments)) => import::run(&arguments),
            Some(CliCommand::Schema { tests: false }) => show(&config::schema()),
            Some(CliCommand::Schema { tests: true }) => show(&config::test_schema()),
            Some(CliCommand::Init(arguments)) => init::run(file, &arguments),
            Some(CliCommand::Test(arguments)) => test::run(file, &arguments),
            Some(CliCommand::Health(arguments)) => health::ask(file, &arguments),
            Some(CliCommand::Top(arguments)) => top::run(file, &arguments),
            Some(CliCommand::Completions { shell }) => shell::completions(shell),
            Some(CliCommand::Man) => shell::manual(),
        }
    }

    /// The level of the program log that the command line asks for.
    fn level(&self) -> Option<&'static str> {
        match (self.quiet, self.verbose) {
            (0, 0) => None,
            (0, 1) => Some("debug"),
            (0, _) => Some("trace"),
            (1, _) => Some("warn"),
            _ => Some("error"),
        }
    }
}

/// The request of `tollgate explain`, as typed.
struct ExplainArguments {
    method: String,
    url: String,
    headers: Vec<String>,
    ip: Option<IpAddr>,
    listener: Option<String>,
    /// For `--live`.
    tls: AdminTlsArguments,
}

/// The form of an explanation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExplainForm {
    Text,
    Json,
}

/// The command line's grammar. Its messages have colours by the same rule as all others.
fn command() -> clap::Command {
    Arguments::command().color(match resolve_colour(typed_colour()) {
        ColourChoice::Auto => clap::ColorChoice::Auto,
        ColourChoice::Always => clap::ColorChoice::Always,
        ColourChoice::Never => clap::ColorChoice::Never,
    })
}

/// `--color`, before the command line is parsed: a message about a fault in it may have colours, too.
fn typed_colour() -> ColourChoice {
    let mut typed = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    let mut choice = ColourChoice::Auto;
    while let Some(argument) = typed.next() {
        let Some(argument) = argument.to_str() else { continue };
        let word = match argument.strip_prefix("--color") {
            Some("") => typed.next().and_then(|word| word.into_string().ok()),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        let known = ColourChoice::WORDS.iter().find(|(known, _)| word.as_deref() == Some(known));
        choice = known.map_or(choice, |(_, known)| *known);
    }
    choice
}

fn only_for_run(switch: &str) -> clap::Error {
    command().error(ErrorKind::ArgumentConflict, format!("`{switch}` is only for `tollgate run`"))
}

fn run(file: &Path, options: RunOptions) -> ExitCode {
    match serve::run(file, options) {
        Ok(Ended::Drained) => ExitCode::SUCCESS,
        Ok(Ended::AtOnce) => ExitCode::from(INTERRUPTED),
        Err(ServeError::Config(report)) => refuse(&report),
        // An address in use counts among these: the file is right, the machine's state is not.
        Err(error) => fault(FAILED, error),
    }
}

fn why(file: &Path, asked: &ExplainArguments, live: bool, form: ExplainForm) -> ExitCode {
    let refused = |error: ExplainFault| fault(MISTAKE, format_args!("{error}\n  = help: {}", error.help));
    let ExplainArguments { method, url, headers, ip, listener, tls } = asked;
    let request = match ExplainRequest::new(method, url, headers, *ip) {
        Ok(request) => request.at_listener(listener.clone()),
        Err(error) => return refused(error),
    };
    if live {
        return live::ask(file, asked, form);
    }
    if let Some(argument) = tls.first() {
        return fault(
            MISTAKE,
            format_args!("`{argument}` is for the running gateway\n  = help: add `--live`"),
        );
    }
    match config::load(file) {
        Ok(loaded) => {
            let explanation = explain(&loaded.plan, &request);
            match form {
                ExplainForm::Text => show(&explanation.to_string()),
                ExplainForm::Json => {
                    let report = serde_json::to_value(json::offline(&loaded.plan, &explanation));
                    show(&format!("{:#}", report.unwrap_or_default()))
                }
            }
        }
        Err(report) => refuse(&report),
    }
}
