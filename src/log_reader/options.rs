//! Which logs are read, and how.

use std::ops::ControlFlow;
use std::path::PathBuf;

use ipnet::IpNet;

use super::field_map::FieldMap;
use crate::labels::labels;
use crate::limit::units::{Micros, Timestamp};

/// Which logs are read, and how.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The logs, which are merged by time.
    pub inputs: Vec<LogInput>,
    /// Their format.
    pub format: LogFormat,
    /// The fields of JSON lines of another server; then the format does not count.
    pub map: Option<FieldMap>,
    /// The host of lines that have none.
    pub host: Option<String>,
    /// The proxies of the plan: of a list of addresses in place of a client's, the last one that is none of them counts.
    pub trusted_proxies: Vec<IpNet>,
    /// How much later than its successors a line of a stream may come: a pipe is read once, so it is not sorted first.
    pub reorder: Micros,
    /// Requests that arrived before are left out.
    pub from: Option<Timestamp>,
    /// Requests that arrived at this time or later are left out.
    pub to: Option<Timestamp>,
}

/// A log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogInput {
    /// A file, perhaps compressed.
    File(PathBuf),
    /// Standard input, perhaps compressed.
    Stdin,
}

labels! {
    /// The format of a log.
    pub enum LogFormat {
        /// Found out for each file.
        Auto = "auto",
        /// JSON lines of tollgate.
        Tollgate = "tollgate",
        /// The combined or common format of Apache and nginx.
        Combined = "combined",
        /// JSON lines of Caddy, and those of its console.
        Caddy = "caddy",
        /// JSON lines of Traefik.
        Traefik = "traefik",
        /// JSON lines of Envoy and Istio, and their default text.
        Envoy = "envoy",
        /// `option httplog` of `HAProxy`.
        Haproxy = "haproxy",
        /// AWS' Application Load Balancer.
        Alb = "alb",
    }
}

/// How far the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogProgress {
    /// What it does.
    pub phase: LogPhase,
    /// Bytes read in this phase, as the files have them.
    pub bytes_read: u64,
    /// Bytes of all files; `None` if one of the inputs is a stream.
    pub bytes_total: Option<u64>,
    /// Lines read in this phase.
    pub lines: u64,
}

/// What a reader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPhase {
    /// Reads the times of all lines of files.
    Times,
    /// Reads requests.
    Requests,
}

/// Lines and requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Lines that are not empty.
    pub lines: u64,
    /// Requests that were returned.
    pub requests: u64,
    /// Lines that came after a line with a later time. They are sorted.
    pub out_of_order: u64,
    /// Lines that came too late to be sorted: their time was raised to that of the request before.
    pub late: u64,
    /// Lines outside of `from` and `to`.
    pub outside: u64,
    /// The first and the last time of these.
    pub outside_times: Option<(Timestamp, Timestamp)>,
    /// Lines that another format reads than that of their file.
    pub other_format: u64,
}

impl LogCounts {
    /// A line outside of `from` and `to`.
    pub(super) fn leave_out(&mut self, time: Timestamp) {
        let (first, last) = self.outside_times.unwrap_or((time, time));
        self.outside += 1;
        self.outside_times = Some((first.min(time), last.max(time)));
    }
}

impl LogInput {
    /// Whether it can be read only once: standard input, a named pipe, a device.
    pub fn is_stream(&self) -> bool {
        match self {
            Self::File(path) => std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()),
            Self::Stdin => true,
        }
    }

    /// Its name, for people.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "standard input".to_owned(),
        }
    }
}

/// Is called while a reader works; `Break` ends reading.
pub(super) type LogWatch<'w> = Box<dyn FnMut(LogProgress) -> ControlFlow<()> + 'w>;
