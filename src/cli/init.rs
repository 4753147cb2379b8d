//! `tollgate init`: a configuration with comments, and a test of its limit, from three questions.

mod answers;
mod files;
mod questions;

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::output::{fault, show};
use super::test::beside;
use super::{DEFAULT_FILE, FAILED, MISTAKE};
use crate::config::is_standard_input;
use answers::{Answers, ClientKey, InitMode, default_networks, networks, rate_and_burst};

/// The options of `tollgate init`.
#[derive(Args, Clone, Debug)]
pub(super) struct InitArguments {
    /// The address of your service; `echo` for the built-in one [default: http://127.0.0.1:9000]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// What tells clients apart: ip, api-key (the header x-api-key), or proxy (ip, as a proxy before the gateway names it)
    /// [default: ip]
    #[arg(long, value_enum, value_name = "BY", hide_possible_values = true)]
    clients: Option<ClientsBy>,
    /// The networks of the proxy before the gateway, separated by commas [default: 127.0.0.1]
    #[arg(long, value_name = "NETWORKS")]
    trusted: Option<String>,
    /// Requests of one client: `100/min`, and how many of them at once: `100/min burst 20` [default: 100/min]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// enforce: refuse what is too much; shadow: only count what would be refused [default: shadow]
    #[arg(long, value_enum, value_name = "MODE", hide_possible_values = true)]
    mode: Option<InitMode>,
    /// Take the default of each option that is not given, without a question
    #[arg(short, long)]
    yes: bool,
    /// The file; `-` for standard output [default: that of `-c`, else gateway.toml]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the files if they are there
    #[arg(long)]
    force: bool,
    /// Write no test of the limit
    #[arg(long)]
    no_test: bool,
}

/// What tells clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClientsBy {
    Ip,
    ApiKey,
    Proxy,
}

/// Writes a configuration to `file`, unless the arguments name another.
pub(super) fn run(file: &Path, arguments: &InitArguments) -> ExitCode {
    let output = arguments.output.as_deref().unwrap_or(file);
    let is_shown = is_standard_input(output);
    let tests = (!arguments.no_test && !is_shown).then(|| beside(output));
    if output.is_dir() {
        let help = "name the file: `--output FILE`";
        return fault(MISTAKE, format_args!("`{}` is a directory\n  = help: {help}", output.display()));
    }
    let written = [Some(output).filter(|_| !is_shown), tests.as_deref()];
    if let Some(there) = written.into_iter().flatten().find(|path| !arguments.force && path.exists()) {
        return there_is(there);
    }
    let answers = match answers(arguments) {
        Ok(answers) => answers,
        Err(message) => return fault(MISTAKE, message),
    };
    let text = files::configuration(&answers, tests.as_deref());
    if is_shown {
        return show(&text);
    }
    let tests = tests.map(|path| (path, files::tests(&answers)));
    let texts = [Some((output, &text)), tests.as_ref().map(|(path, text)| (path.as_path(), text))];
    for (path, text) in texts.into_iter().flatten() {
        match write(path, text, arguments.force) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return there_is(path),
            Err(error) => return fault(FAILED, format_args!("cannot write `{}`: {error}", path.display())),
        }
    }
    show(&next_steps(output, tests.as_ref().map(|(path, _)| path.as_path())))
}

fn there_is(path: &Path) -> ExitCode {
    let help = "`--output FILE` writes another file, and `--force` overwrites this one";
    fault(MISTAKE, format_args!("`{}` is there already\n  = help: {help}", path.display()))
}

fn write(path: &Path, text: &str, overwrites: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(overwrites).create(overwrites).create_new(!overwrites);
    options.open(path)?.write_all(text.as_bytes())
}

/// The answers of the command line, with those to the questions that it leaves open.
fn answers(arguments: &InitArguments) -> Result<Answers, String> {
    let given = Answers::default();
    let mut answers = Answers { mode: arguments.mode.unwrap_or(given.mode), ..given };
    let mut open = Vec::new();
    match &arguments.upstream {
        Some(upstream) => answers.upstream.clone_from(upstream),
        None => open.push("--upstream"),
    }
    let trusted = arguments.trusted.as_deref().map_or_else(|| Ok(default_networks()), networks)?;
    match (arguments.clients, &arguments.trusted) {
        (Some(ClientsBy::Ip), None) => answers.clients = ClientKey::Ip,
        (Some(ClientsBy::ApiKey), None) => answers.clients = ClientKey::ApiKey,
        (Some(ClientsBy::Proxy), _) | (None, Some(_)) => answers.clients = ClientKey::Proxy(trusted),
        (Some(_), Some(_)) => {
            return Err("`--trusted` is for `--clients proxy`\n  = help: leave one of the two out".to_owned());
        }
        (None, None) => open.push("--clients"),
    }
    match &arguments.rate {
        Some(rate) => (answers.rate, answers.burst) = rate_and_burst(rate)?,
        None => open.push("--rate"),
    }
    if arguments.mode.is_none() {
        open.push("--mode");
    }
    files::check(&answers)?;
    if open.is_empty() || arguments.yes {
        return Ok(answers);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let help = format!("give {}, or take the defaults: `--yes`", open.join(", "));
        return Err(format!(
            "standard input is not a terminal, so that no question can be asked\n  = help: {help}"
        ));
    }
    questions::ask(answers, &open, &mut stdin.lock(), &mut io::stderr().lock())
        .map_err(|error| format!("cannot ask: {error}\n  = help: take the defaults: `--yes`"))
}

/// What was written, and the commands to go on with.
fn next_steps(output: &Path, tests: Option<&Path>) -> String {
    let option = match output == Path::new(DEFAULT_FILE) {
        true => String::new(),
        false => format!(" -c {}", output.display()),
    };
    let wrote = tests.map(|path| format!(" and {}", path.display())).unwrap_or_default();
    let mut text = format!("wrote {}{wrote}\n\nNext:\n", output.display());
    let mut line = |command: &str, what: &str| text.push_str(&format!("  {command:<36} {what}\n"));
    line(&format!("tollgate check{option}"), "the limits in words");
    if tests.is_some() {
        line(&format!("tollgate test{option}"), "the test of the limit");
    }
    line(&format!("tollgate{option}"), "start the gateway");
    line("curl -i localhost:8080/", "a request");
    line("open http://127.0.0.1:9900/", "the dashboard");
    text
}
