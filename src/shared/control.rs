//! The wheel: what is in force, what became of the last reload, and how to ask for another or for the end.

use tokio::sync::{mpsc, watch};

use crate::limit::units::Timestamp;

/// What people and the admin listener steer the process with.
#[derive(Debug)]
pub struct Control {
    /// The configuration, as it stands.
    pub standing: watch::Receiver<ConfigStatus>,
    /// Asks for a reload. Full: one is due anyway.
    pub reload: mpsc::Sender<()>,
    /// Asks for the end, by whoever asks for it. Full: it has been asked for.
    pub drain: mpsc::Sender<()>,
    /// When the process began.
    pub started: Timestamp,
}

/// The configuration in force, and the last reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigStatus {
    /// The file's name as it was given.
    pub file: String,
    /// Eight hexadecimal digits of a hash of the file as it was loaded: the same file has the same version everywhere.
    pub version: String,
    /// Since when it is in force.
    pub loaded: Timestamp,
    /// How many reloads have begun.
    pub begun: u64,
    /// What became of the last that has ended.
    pub last: Option<Reload>,
}

/// What became of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Which: counted from 1.
    pub number: u64,
    /// When it ended.
    pub time: Timestamp,
    /// The faults for which everything stayed as it was, one line each; or the warnings, likewise.
    pub result: Result<Warnings, Vec<String>>,
}

/// What a reload that succeeded had to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// The file says something else than before.
    pub changed: bool,
    /// One line each.
    pub lines: Vec<String>,
}
