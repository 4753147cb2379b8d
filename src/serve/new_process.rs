//! The process that takes over, started through one in between, which ends before the new process becomes the service's
//! main process.
//!
//! A stop of systemd waits only for a main process that is its own child, and kills another one at once. A process becomes
//! the child of the service manager when its parent ends. This process must not end before its requests have, so the
//! parent is a third one: this program once more, which starts the new one and tells how it ends, until it is let go.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader as AsyncReader};

/// Names the program that the process in between starts.
const PROGRAM: &str = "TOLLGATE_START";
/// How long the process in between may take to start the new one. It takes milliseconds.
const ANSWER: Duration = Duration::from_secs(10);
/// The running program, also if its file is replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// A new process that has not taken over yet.
#[derive(Debug)]
pub(super) struct NewProcess {
    between: Child,
    /// Tells how the new process ends. Its end lets that go.
    channel: AsyncReader<tokio::net::UnixStream>,
    /// The id of the new process.
    pub(super) process: u32,
}

impl NewProcess {
    /// Starts `program` with the arguments and the environment of `command`, which names no program of its own: see
    /// [`Self::command`]. The error is for users.
    pub(super) fn start(program: &OsStr, mut command: Command) -> Result<Self, String> {
        let words = |error: io::Error| format!("cannot start `{}`: {error}", program.display());
        let (ours, its) = UnixStream::pair().map_err(words)?;
        ours.set_read_timeout(Some(ANSWER)).map_err(words)?;
        let command = command.env(PROGRAM, program).stdin(Stdio::from(OwnedFd::from(its)));
        let mut between = command.spawn().map_err(words)?;
        let mut line = String::new();
        // It answers once the new process is started, or not.
        let read = BufReader::new(&ours).read_line(&mut line);
        match line.trim_end().parse() {
            Ok(process) => {
                let asynchronous =
                    ours.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(ours));
                let channel = AsyncReader::new(asynchronous.map_err(words)?);
                Ok(Self { between, channel, process })
            }
            Err(_) => {
                between.kill().ok();
                between.wait().ok();
                let reason = read.err().map_or(line, |error| error.to_string());
                Err(format!("cannot start `{}`: {}", program.display(), reason.trim_end()))
            }
        }
    }

    /// A command that [`Self::start`] takes.
    pub(super) fn command() -> Command {
        Command::new(THIS_PROGRAM)
    }

    /// Waits until the new process has ended. Returns how it did.
    pub(super) async fn ended(&mut self) -> String {
        let mut line = String::new();
        match self.channel.read_line(&mut line).await {
            Ok(0) => "is lost: the process that started it has ended".to_owned(),
            Ok(_) => format!("ended with {}", line.trim_end()),
            Err(error) => format!("is lost: {error}"),
        }
    }

    /// Kills the new process, and waits for its end, which comes at once.
    pub(super) async fn kill(mut self) -> io::Result<()> {
        let process = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        kill_process(process.ok_or(io::ErrorKind::InvalidInput)?, Signal::KILL)?;
        self.ended().await;
        self.let_go();
        Ok(())
    }

    /// Ends the process in between. The new one then is the child of the service manager.
    pub(super) fn let_go(mut self) {
        drop(self.channel);
        // It ends at once. Its end is complete when its children have another parent.
        self.between.wait().ok();
    }
}

/// What this process does if it is the one in between. `None`: it is not.
pub fn stand_between() -> Option<ExitCode> {
    let program = env::var_os(PROGRAM)?;
    let mut command = Command::new(program);
    let started = command.args(env::args_os().skip(1)).env_remove(PROGRAM).stdin(Stdio::null()).spawn();
    match started {
        Ok(mut child) => {
            tell(child.id());
            thread::spawn(move || {
                match child.wait() {
                    Ok(status) => tell(status),
                    Err(error) => tell(error),
                }
                process::exit(0);
            });
            // Until the process before lets go, or ends.
            let _ = io::stdin().read(&mut [0]);
            Some(ExitCode::SUCCESS)
        }
        Err(error) => {
            tell(error);
            Some(ExitCode::FAILURE)
        }
    }
}

/// Writes a line to the process before: standard input is a socket.
fn tell(words: impl std::fmt::Display) {
    let _ = rustix::io::write(io::stdin(), format!("{words}\n").as_bytes());
}
