//! Control of the process: the active configuration, the result of the last reload, and the triggers for a reload and a
//! drain.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::limit::units::Timestamp;

/// The control interface for operators and the admin listener.
#[derive(Debug)]
pub struct Control {
    /// The state of the configuration.
    pub config_status: watch::Receiver<ConfigStatus>,
    /// Triggers a reload. Full: one is due anyway.
    pub reload: mpsc::Sender<()>,
    /// Triggers a drain; the value is the client that requested it. Full: a drain was triggered already.
    pub drain: mpsc::Sender<()>,
    /// The bans and overrides of a shared store were read, or could not be. Workers accept no connection before.
    pub lists_read: watch::Sender<bool>,
    /// When the process started.
    pub started: Timestamp,
    /// Random: tells this process from the other gateways of a fleet.
    pub gateway_id: u64,
    /// The name of this machine.
    pub machine: Box<str>,
}

/// The active configuration, and the last reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigStatus {
    /// The file's name as it was given.
    pub file: String,
    /// Eight hexadecimal digits of a hash of the file as it was loaded: the same file has the same version everywhere.
    pub version: String,
    /// When it was activated.
    pub loaded: Timestamp,
    /// The number of reloads begun.
    pub begun: u64,
    /// The result of the last reload that has ended.
    pub last: Option<Reload>,
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// The number of the reload, from 1.
    pub number: u64,
    /// When it ended.
    pub time: Timestamp,
    /// The errors for which the old configuration stays, one line each; or the warnings, likewise.
    pub result: Result<Warnings, Vec<String>>,
}

/// The warnings of a successful reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// The file, or a file that it names, differs from the previous one.
    pub changed: bool,
    /// One line each.
    pub lines: Vec<String>,
    /// The automatic bans that it has ended.
    pub ended_bans: Vec<EndedBans>,
}

/// The automatic bans of one limit that a reload has ended, since it changed the limit's mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedBans {
    /// The limit.
    pub limit: Arc<str>,
    /// The number of bans.
    pub count: usize,
    /// Whether they began in shadow.
    pub in_shadow: bool,
}
