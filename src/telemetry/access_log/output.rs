//! The output of the access log: standard output, or a file opened for append.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Access, access};

use crate::telemetry::program_log::colour_on;

/// Log readers have to be in the file's group.
const MODE: u32 = 0o640;

/// An output that takes whole lines.
pub struct Output {
    name: String,
    sink: Box<dyn Write + Send>,
    /// The same file opened for reading, until the first line is written.
    before: Option<File>,
    /// The file ends inside a line.
    torn: bool,
    style: OutputStyle,
}

/// The reader of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputStyle {
    /// The output is a terminal.
    pub terminal: bool,
    /// The output gets colours.
    pub colour: bool,
}

/// Lines that could not be written.
#[derive(Debug)]
pub(super) struct LostRecords {
    /// Their number.
    pub(super) lines: u64,
    /// The error.
    pub(super) error: io::Error,
}

impl Output {
    /// An output that the program log calls `name`.
    pub fn new(name: impl Into<String>, sink: impl Write + Send + 'static) -> Self {
        Self {
            name: name.into(),
            sink: Box::new(sink),
            before: None,
            torn: false,
            style: OutputStyle::default(),
        }
    }

    /// The output with this style; without it an output is not a terminal.
    #[must_use]
    pub fn with_style(mut self, style: OutputStyle) -> Self {
        self.style = style;
        self
    }

    /// Standard output.
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let style = OutputStyle { terminal: stdout.is_terminal(), colour: colour_on(&stdout) };
        Self::new("standard output", stdout).with_style(style)
    }

    /// The file at `path`, created with mode 0640 if there is none; standard output without a path. A pipe is refused,
    /// since opening one would wait for its reader.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self::stdout()) };
        refuse_pipe(path)?;
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        // If the file can be written but not read, its last line is assumed to be whole.
        let before = File::open(path).ok();
        Ok(Self { before, ..Self::new(format!("`{}`", path.display()), file) })
    }

    /// Whether [`Self::open`] would find the file, or could create it; nothing is created.
    pub fn check(path: &Path) -> io::Result<()> {
        refuse_pipe(path)?;
        match OpenOptions::new().append(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                Ok(access(folder.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK)?)
            }
            opened => opened.map(drop),
        }
    }

    /// Its style.
    pub(super) fn style(&self) -> OutputStyle {
        self.style
    }

    /// Its name in the program log.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes all lines of `batch`, after ending an incomplete line in the file.
    pub(super) fn write(&mut self, batch: &[u8]) -> Result<(), LostRecords> {
        if batch.is_empty() {
            return Ok(());
        }
        // Only now: the output before this one may have written to the same file until now.
        if let Some(before) = self.before.take() {
            self.torn = ends_inside_a_line(before).unwrap_or(false);
        }
        if self.torn && self.write_all(b"\n").is_ok() {
            self.torn = false;
        }
        self.write_all(batch).map_err(|(written, error)| {
            let (written, left) = batch.split_at(written);
            self.torn |= written.last().is_some_and(|last| *last != b'\n');
            let lines = left.iter().filter(|byte| **byte == b'\n').count();
            LostRecords { lines: u64::try_from(lines).unwrap_or(u64::MAX), error }
        })
    }

    /// As [`Write::write_all`], then flushed; an error has the number of bytes that were written.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.sink.write(rest) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        self.sink.flush().map_err(|error| (written, error))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Output").field("name", &self.name).finish_non_exhaustive()
    }
}

fn refuse_pipe(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => {
            Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, not a file"))
        }
        // Other errors show when the file is opened.
        _ => Ok(()),
    }
}

/// As after a full disk, or a killed process.
fn ends_inside_a_line(mut file: File) -> io::Result<bool> {
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
