//! A request as a line of an access log describes it.

use std::net::{IpAddr, Ipv4Addr};

use crate::limit::units::{Micros, Timestamp};

/// One request of a log. A reader fills it anew for each line and keeps its memory.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// When the request arrived: for logs that have the end of a request, the end minus the duration.
    pub time: Timestamp,
    /// From the arrival to the end of the response; `None`: the log does not tell.
    pub duration: Option<Micros>,
    /// The client.
    pub client: IpAddr,
    /// The request head as a client would send it by HTTP/1.1: request line, `host` if known, each header that the log
    /// has, `content-length` if the log has the size of the body. Headers that name the client
    /// (`x-forwarded-for`, `forwarded`) are not in it.
    pub head: Vec<u8>,
    /// The status of the response.
    pub status: Option<u16>,
    /// Bytes of the request body.
    pub bytes_in: Option<u64>,
    /// Bytes of the response body.
    pub bytes_out: Option<u64>,
    /// The consumer or user; empty: none, or the log does not tell.
    pub consumer: String,
    /// What tollgate itself did with the request, if it wrote the line.
    pub own: Option<OwnRecord>,
    /// The place of the line.
    pub place: LinePlace,
}

/// The fields of a line that only tollgate writes. An empty text is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnRecord {
    /// The route.
    pub route: String,
    /// The tier of the consumer.
    pub tier: String,
    /// The limit that decided.
    pub limit: String,
    /// Its decision: `allowed`, `limited`, `delayed`, …
    pub decision: String,
    /// The units that remained.
    pub remaining: Option<u64>,
    /// The cost for that limit.
    pub cost: Option<u32>,
    /// The units settled after the response, if they were.
    pub settled: Option<u64>,
    /// Why tollgate itself answered.
    pub error: String,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePlace {
    /// The index of the file, in the order of the command line.
    pub file: u32,
    /// From 1.
    pub line: u64,
}

impl Default for LoggedRequest {
    fn default() -> Self {
        Self {
            time: Timestamp(0),
            duration: None,
            client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            head: Vec::new(),
            status: None,
            bytes_in: None,
            bytes_out: None,
            consumer: String::new(),
            own: None,
            place: LinePlace::default(),
        }
    }
}
