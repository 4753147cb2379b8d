//! The real binary, or a command of a shell, in a pseudo-terminal, whose screen is read as a terminal shows it.

use crate::harness::binary;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write as _};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::harness::eventually;

/// What the program wrote: the screen, and all bytes.
struct Shown {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

/// A running program whose controlling terminal the test holds. Killed with its children when dropped.
pub(crate) struct TerminalProgram {
    child: Child,
    /// Dropping it closes the terminal.
    master: Option<File>,
    shown: Arc<Mutex<Shown>>,
}

impl TerminalProgram {
    /// Starts the binary with these arguments and variables, in an empty directory.
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        Self::start_by(|setsid| {
            setsid
                .arg(binary())
                .args(arguments)
                .env_remove("NO_COLOR")
                .env_remove("TOLLGATE_ADMIN_TOKEN")
                .envs(environment.iter().copied())
                .current_dir(folder.path());
        })
    }

    /// Starts the program that `named` adds to the command, in a terminal of 120 by 40.
    pub(crate) fn start_by(named: impl FnOnce(&mut Command)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let side = || File::options().read(true).write(true).open(path).expect("the other side");
        let master = File::from(master);
        set_size(&master, 120, 40);
        // `setsid` makes the terminal the controlling one, which gets the program its signals.
        let mut command = Command::new("setsid");
        command.arg("--ctty");
        named(&mut command);
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("the program starts");
        let shown = Arc::new(Mutex::new(Shown {
            screen: vt100::Parser::new(cells(40), cells(120), 0),
            bytes: Vec::new(),
        }));
        let (sink, mut output) = (Arc::clone(&shown), master.try_clone().expect("a descriptor"));
        std::thread::spawn(move || {
            let mut piece = [0; 4_096];
            while let Ok(length @ 1..) = output.read(&mut piece) {
                let mut shown = sink.lock().expect("no panic inside");
                shown.screen.process(&piece[..length]);
                shown.bytes.extend_from_slice(&piece[..length]);
            }
        });
        Self { child, master: Some(master), shown }
    }

    fn master(&self) -> &File {
        self.master.as_ref().expect("the terminal is open")
    }

    /// Types keys, as their bytes.
    pub(crate) fn press(&self, keys: &str) {
        self.master().write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// The screen as text.
    pub(crate) fn screen(&self) -> String {
        self.shown.lock().expect("no panic inside").screen.screen().contents()
    }

    /// All bytes that the program wrote so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shown.lock().expect("no panic inside").bytes.clone()
    }

    /// Waits until the screen is as `wanted` says.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let what = format!("the screen to have: {what}");
        let reached = || wanted(&self.screen()).then_some(());
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually(&what, reached)));
        assert!(waited.is_ok(), "{what}. It has:\n{}", self.screen());
    }

    /// Waits until the screen has this text.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen has this text no longer.
    #[track_caller]
    pub(crate) fn wait_without(&self, text: &str) {
        self.wait_until(&format!("no `{text}`"), |screen| !screen.contains(text));
    }

    /// Changes the size of the terminal. The kernel reports it to the program.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.shown.lock().expect("no panic inside").screen.screen_mut().set_size(cells(rows), cells(columns));
        set_size(self.master(), columns, rows);
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Closes the terminal, as a lost connection does.
    pub(crate) fn hang_up(&mut self) {
        // The reading thread has the other descriptor; the session gets its signal all the same.
        self.signal(Signal::HUP);
        self.master = None;
    }

    /// Waits for the end of the program, which leaves the terminal as it was.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        let mut ended = || self.child.try_wait().expect("a child").map(|status: ExitStatus| status.code());
        let code = eventually("the end of the program", &mut ended);
        if let Some(master) = &self.master {
            let is_restored = |shown: &Shown| {
                let screen = shown.screen.screen();
                !screen.alternate_screen() && !screen.hide_cursor()
            };
            let restored = || is_restored(&self.shown.lock().expect("no panic inside")).then_some(());
            eventually("the screen before the program", restored);
            let modes = tcgetattr(master).expect("the modes of the terminal").local_modes;
            assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}");
        }
        code
    }
}

impl Drop for TerminalProgram {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // `setsid` makes the program the leader of a group, in which its children are.
            kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal has cells")
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("the size is set");
}
