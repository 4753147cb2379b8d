//! The lines that a child process has written to a pipe.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The lines so far. A thread empties the pipe, so that the child never waits for room in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputLines(Arc<Mutex<PipeReader>>);

#[derive(Debug, Default)]
struct PipeReader {
    /// `None`: the child has ended, or there is no pipe.
    pipe: Option<std::fs::File>,
    /// The begin of a line that has not ended yet.
    rest: Vec<u8>,
    lines: Vec<String>,
}

impl OutputLines {
    /// The lines that come out of this pipe.
    pub(crate) fn of(pipe: impl Into<OwnedFd>) -> Self {
        let pipe: OwnedFd = pipe.into();
        let flags = fcntl_getfl(&pipe).expect("a pipe has flags");
        fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).expect("a pipe can be non-blocking");
        let watched = pipe.try_clone().expect("a further descriptor");
        let reader = PipeReader { pipe: Some(pipe.into()), ..PipeReader::default() };
        let output = Self(Arc::new(Mutex::new(reader)));
        let emptied = output.clone();
        std::thread::spawn(move || {
            while emptied.reader().pipe.is_some() {
                poll(&mut [PollFd::new(&watched.as_fd(), PollFlags::IN)], None).ok();
                emptied.reader().read();
            }
        });
        output
    }

    /// All lines that the child had written when this was called.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut reader = self.reader();
        reader.read();
        reader.lines.clone()
    }

    fn reader(&self) -> MutexGuard<'_, PipeReader> {
        self.0.lock().expect("no test panics inside")
    }
}

impl PipeReader {
    /// Reads what is in the pipe.
    fn read(&mut self) {
        let Some(mut pipe) = self.pipe.as_ref() else { return };
        match pipe.read_to_end(&mut self.rest) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.take_lines(),
            // The end of the output ends its last line.
            _ => {
                self.pipe = None;
                self.take_lines();
                if !self.rest.is_empty() {
                    let last = std::mem::take(&mut self.rest);
                    self.lines.push(String::from_utf8_lossy(&last).into_owned());
                }
            }
        }
    }

    fn take_lines(&mut self) {
        let Some(last) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return };
        let rest = self.rest.split_off(last + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let lines = whole[..last].split(|&byte| byte == b'\n');
        self.lines.extend(lines.map(|line| String::from_utf8_lossy(line).into_owned()));
    }
}
