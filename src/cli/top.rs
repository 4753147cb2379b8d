//! `tollgate top`: the dashboard in a terminal, or one snapshot of it as plain text.
//!
//! Three threads report to the one that draws: one reads the keyboard, one the admin API, and one waits for signals. So a
//! gateway that is slow or away delays no key.

mod display;
mod draw;
mod findings;
mod reader;
mod samples;
mod screen;
mod snapshot;
mod state;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod views;

use std::io::{self, IsTerminal as _, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::style::force_color_output;
use tokio::signal::unix::{SignalKind, signal};

use super::admin_tls::AdminTlsArguments;
use super::output::{fault, show};
use super::{FAILED, MISTAKE};
use crate::admin_api::keys::KeyState;
use crate::clock::Clock;
use crate::telemetry::terminal::colour_on;
use display::{clock, maybe, plain, rate, span};
use draw::{Palette, totals};
use findings::findings;
use reader::{GatewayReader, KeyChange, RoundOptions};
use samples::SampleNumbers as _;
use screen::Screen;
use snapshot::{GatewaySnapshot, GatewayState, ReadError};
use state::{TopEffect, TopState, reason, remedy};
use target::AdminTarget;
use views::TopView;

/// The time from one round of requests to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// The number of events and commands that may wait.
const QUEUE: usize = 16;
/// The rows of a terminal that are not rows of a table.
const OTHER_ROWS: usize = 6;

/// How the gateway is shown.
#[derive(Debug, clap::Args)]
pub(super) struct TopArguments {
    /// The admin listener, in place of the one that the configuration names: http://HOST:PORT or https://HOST:PORT
    ///
    /// The token is in TOLLGATE_ADMIN_TOKEN, else in the variable that the configuration names. May be repeated: the view
    /// of the fleet has a row for each of these gateways, and `g` chooses the one that the other views show.
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    #[command(flatten)]
    tls: AdminTlsArguments,
    /// Print one snapshot as text and exit
    #[arg(long)]
    once: bool,
    /// Show the gateways that share the store, or those of several `--url`: with `--once`, only them
    #[arg(long)]
    fleet: bool,
}

/// What happens while the terminal is open.
enum TopEvent {
    Key(KeyEvent),
    Resize,
    Round(Result<Box<GatewaySnapshot>, ReadError>),
    Changed(KeyChange, Result<Box<KeyState>, ReadError>),
    /// A signal, or the end of the input.
    End,
}

/// What the reader does next.
enum ReaderCommand {
    Read(RoundOptions),
    Change(KeyChange),
    /// The next of several gateways is shown.
    NextGateway,
}

/// Shows the gateway that `file` or the arguments name.
pub(super) fn run(file: &Path, arguments: &TopArguments) -> ExitCode {
    let targets = match AdminTarget::find_all(file, &arguments.url, &arguments.tls) {
        Ok(targets) => targets,
        Err(message) => return fault(MISTAKE, message),
    };
    let address = targets.first().map(AdminTarget::address).unwrap_or_default();
    let mut reader = match GatewayReader::new(targets) {
        Ok(reader) => reader,
        Err(error) => return fault(FAILED, error),
    };
    if arguments.once {
        return match arguments.url.len() {
            0 | 1 => once(&mut reader, &address, arguments.fleet),
            count => once_of_several(&mut reader, count, arguments.fleet),
        };
    }
    if !stdout().is_terminal() {
        let help = "run it in a terminal, or print one snapshot with `--once`";
        return fault(MISTAKE, format_args!("standard output is not a terminal\n  = help: {help}"));
    }
    let view = if arguments.fleet { TopView::Fleet } else { TopView::Overview };
    let ended = interact(reader, &address, view);
    match ended {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(error)) => unreachable(&address, &error),
        Err(error) => fault(FAILED, format_args!("the terminal failed: {error}")),
    }
}

/// One snapshot of a gateway.
fn once(reader: &mut GatewayReader, address: &str, fleet: bool) -> ExitCode {
    match reader.round(&RoundOptions::default()) {
        Ok(snapshot) if fleet => show(&TopView::Fleet.table(&snapshot).to_text()),
        Ok(snapshot) => show(&snapshot_text(address, &snapshot)),
        Err(error) => unreachable(address, &error),
    }
}

/// One snapshot of each gateway, after a row for each. Fails if one of them does not answer.
fn once_of_several(reader: &mut GatewayReader, count: usize, fleet: bool) -> ExitCode {
    let (mut text, mut ended) = (String::new(), ExitCode::SUCCESS);
    for index in 0..count {
        let round = reader.round(&RoundOptions::default());
        let snapshot = match round {
            Ok(snapshot) => snapshot,
            Err(error) => return unreachable("each URL", &error),
        };
        if index == 0 {
            text += &TopView::Fleet.table(&snapshot).to_text();
        }
        match snapshot.gateways.get(index) {
            Some(GatewayState { address, status: Err(error), .. }) => ended = unreachable(address, error),
            Some(state) if !fleet => text += &format!("\n{}", snapshot_text(&state.address, &snapshot)),
            Some(_) | None => {}
        }
        reader.next_gateway();
    }
    let shown = show(&text);
    if ended == ExitCode::SUCCESS { shown } else { ended }
}

fn unreachable(address: &str, error: &ReadError) -> ExitCode {
    match error {
        ReadError::Away(_) => {
            fault(FAILED, format_args!("no gateway answers at {address}: {}{}", reason(error), remedy(error)))
        }
        ReadError::Refused(status, why) => {
            let help = match status {
                401 => {
                    "\n  = help: set the variable that `token_env` names; with `--url`, TOLLGATE_ADMIN_TOKEN"
                }
                403 => "\n  = help: use a token that may `read`",
                _ => "",
            };
            let why = display::plain(why);
            fault(FAILED, format_args!("the gateway at {address} answers {status}: {why}{help}"))
        }
    }
}

/// Runs until the operator quits, or until the gateway refuses the very first round: the error of that.
fn interact(reader: GatewayReader, address: &str, view: TopView) -> io::Result<Option<ReadError>> {
    let coloured = colour_on(&stdout());
    force_color_output(coloured);
    let palette = if coloured { Palette::Coloured } else { Palette::Plain };
    let (events, received) = sync_channel(QUEUE);
    let (commands, to_read) = sync_channel(QUEUE);
    watch_signals(events.clone())?;
    let mut screen = Screen::open()?;
    spawn("keyboard", {
        let events = events.clone();
        move || read_keys(&events)
    })?;
    spawn("reader", move || read_gateway(reader, &to_read, &events))?;
    let (clock, mut state) = (Clock::system(), TopState::new(address.to_owned(), view));
    let mut sent = RoundOptions::default();
    loop {
        state.now = clock.wall_now().0 as f64 / 1e6;
        state.page = usize::from(screen.height()).saturating_sub(OTHER_ROWS);
        screen.draw(&state, palette)?;
        for event in next_events(&received) {
            match event {
                TopEvent::End => return Ok(None),
                TopEvent::Key(pressed) => match state.press(pressed) {
                    TopEffect::Quit => return Ok(None),
                    TopEffect::Send(change) => send(&commands, change, &mut state),
                    TopEffect::NextGateway => _ = commands.try_send(ReaderCommand::NextGateway),
                    TopEffect::Draw => {}
                },
                TopEvent::Resize => {}
                TopEvent::Round(Err(error @ ReadError::Refused(401 | 403, _)))
                    if state.snapshot.is_none() =>
                {
                    return Ok(Some(error));
                }
                TopEvent::Round(round) => state.take_round(round.map(|snapshot| *snapshot)),
                TopEvent::Changed(change, result) => state.take_change(&change, result.map(|state| *state)),
            }
        }
        let options = state.options();
        // A full queue takes it in one of the next turns.
        if options != sent && commands.try_send(ReaderCommand::Read(options.clone())).is_ok() {
            sent = options;
        }
    }
}

/// The next event and all that wait after it; none after a second.
fn next_events(received: &Receiver<TopEvent>) -> Vec<TopEvent> {
    let first = match received.recv_timeout(PERIOD) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(TopEvent::End),
    };
    first.into_iter().chain(received.try_iter().take(QUEUE)).collect()
}

fn send(commands: &SyncSender<ReaderCommand>, change: KeyChange, state: &mut TopState) {
    if commands.try_send(ReaderCommand::Change(change.clone())).is_err() {
        let busy = ReadError::Away("earlier changes still wait for an answer".to_owned());
        state.take_change(&change, Err(busy));
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Reports SIGTERM, SIGHUP and SIGINT as the end.
fn watch_signals(events: SyncSender<TopEvent>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut hangup, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?, signal(SignalKind::interrupt())?)
    };
    spawn("signals", move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        let _ = events.send(TopEvent::End);
    })
}

/// Reports keys and sizes, until the terminal is gone.
fn read_keys(events: &SyncSender<TopEvent>) {
    loop {
        let event = match event::read() {
            Ok(Event::Key(pressed)) if pressed.kind != KeyEventKind::Release => TopEvent::Key(pressed),
            Ok(Event::Resize(..)) => TopEvent::Resize,
            Ok(_) => continue,
            Err(_) => TopEvent::End,
        };
        let is_end = matches!(event, TopEvent::End);
        if events.send(event).is_err() || is_end {
            return;
        }
    }
}

/// Reads the gateway once a second, and at once after a command.
fn read_gateway(
    mut reader: GatewayReader,
    commands: &Receiver<ReaderCommand>,
    events: &SyncSender<TopEvent>,
) {
    let clock = Clock::system();
    let mut options = RoundOptions::default();
    loop {
        let began = clock.now();
        let round = reader.round(&options).map(Box::new);
        if events.send(TopEvent::Round(round)).is_err() {
            return;
        }
        let spent = Duration::from_micros(clock.now().since(began).0);
        let first = match commands.recv_timeout(PERIOD.saturating_sub(spent)) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for command in first.into_iter().chain(commands.try_iter().take(QUEUE)) {
            match command {
                ReaderCommand::Read(wanted) => options = wanted,
                ReaderCommand::NextGateway => reader.next_gateway(),
                ReaderCommand::Change(change) => {
                    let result = reader.change(&change).map(Box::new);
                    if events.send(TopEvent::Changed(change, result)).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// All views as text, without colours.
fn snapshot_text(address: &str, snapshot: &GatewaySnapshot) -> String {
    let (status, all) = (&snapshot.status, &snapshot.samples.all);
    let mut lines = vec![format!(
        "tollgate {} at {address}: {}, up {}, {} workers, file {} since {} UTC; {} UTC",
        plain(&status.version),
        plain(&status.life),
        span(status.time - status.started),
        status.workers,
        plain(&status.config.version),
        clock(status.config.loaded),
        clock(status.time)
    )];
    lines.extend(findings(snapshot).into_iter().map(|(_, text)| format!("  {text}")));
    lines.push(format!(
        "requests: admitted {}/s, delayed {}/s, refused {}/s, failed {}/s; p50 {} ms, p99 {} ms",
        rate(all.admitted.lately()),
        rate(all.delayed.lately()),
        rate(all.refused.lately()),
        rate(all.failed.lately()),
        maybe(all.p50_ms.fresh()),
        maybe(all.p99_ms.fresh())
    ));
    lines.push(totals(snapshot));
    let is_told = |view: &TopView| *view == TopView::Fleet && !snapshot.gateways.is_empty();
    let views = TopView::ALL.into_iter().filter(|view| *view != TopView::Overview && !is_told(view));
    let tables = views.map(|view| format!("\n{}", view.table(snapshot).to_text()));
    format!("{}\n{}", lines.join("\n"), tables.collect::<String>())
}
