//! A wall clock that a test sets, for a process of its own: libfaketime tells the process another time than the kernel's.
//! The clocks that time-outs and counters run by stay as they are.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::machine::tools::{is_left_out, missing};
use crate::harness::{Gateway, binary};

/// The wall clock of a process.
#[derive(Debug)]
pub(crate) struct FakeClock {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl FakeClock {
    /// A clock that is ahead by so many seconds. `None`, which is printed, if `TOLLGATE_TEST_WITHOUT` names `libfaketime`.
    #[track_caller]
    pub(crate) fn ahead_by(seconds: i64) -> Option<Self> {
        if is_left_out("libfaketime") {
            return None;
        }
        let here = ["/usr/lib", "/usr/lib64"].map(PathBuf::from).into_iter().flat_map(|folder| {
            let below = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
            std::iter::once(folder.clone()).chain(below).collect::<Vec<_>>()
        });
        let library =
            here.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|file| file.is_file());
        let library = library.unwrap_or_else(|| panic!("{}", missing("libfaketime")));
        let clock = Self { folder: tempfile::tempdir().expect("a temporary directory"), library };
        clock.step_to(seconds);
        Some(clock)
    }

    /// Steps it, so that it is ahead by so many seconds.
    pub(crate) fn step_to(&self, seconds: i64) {
        let (new, file) = (self.folder.path().join("new"), self.file());
        std::fs::write(&new, format!("{seconds:+}\n")).expect("it can be written");
        std::fs::rename(new, file).expect("it can be moved");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("time")
    }

    /// Starts a gateway by this clock.
    pub(crate) fn gateway(&self, toml: &str, environment: &[(&str, &str)]) -> Gateway {
        let mut command = Command::new(binary());
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")])
            .envs(environment.iter().copied())
            .stdin(Stdio::null());
        Gateway::start_by(toml, command)
    }
}
