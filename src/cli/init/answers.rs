//! What `tollgate init` knows of the gateway that it writes.

use std::net::{AddrParseError, IpAddr, Ipv4Addr};

use clap::ValueEnum;
use ipnet::IpNet;

/// The answers to the questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answers {
    /// The URL of the service, or `echo`.
    pub(super) upstream: String,
    pub(super) clients: ClientKey,
    /// Requests of a client: `100/min`.
    pub(super) rate: String,
    /// Requests of a client at once; `None`: as many as the count of the rate.
    pub(super) burst: Option<u32>,
    pub(super) mode: InitMode,
}

/// What tells clients apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientKey {
    /// Their address.
    Ip,
    /// The header `x-api-key`.
    ApiKey,
    /// Their address, as a proxy in these networks names it.
    Proxy(Vec<IpNet>),
}

/// Whether the limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum InitMode {
    Enforce,
    Shadow,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            upstream: "http://127.0.0.1:9000".to_owned(),
            clients: ClientKey::Ip,
            rate: "100/min".to_owned(),
            burst: None,
            mode: InitMode::Shadow,
        }
    }
}

impl Answers {
    /// How many requests of a client are admitted at once, after a pause.
    pub(super) fn at_once(&self) -> u32 {
        let count = self.rate.split('/').next().and_then(|count| count.parse().ok());
        self.burst.or(count).unwrap_or(1)
    }
}

/// A proxy on the same machine. A network of others would be believed, too.
pub(super) fn default_networks() -> Vec<IpNet> {
    vec![IpNet::from(IpAddr::from(Ipv4Addr::LOCALHOST))]
}

/// Networks and addresses, separated by commas.
///
/// # Errors
///
/// The reason, and how they are written.
pub(super) fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    let network = |word: &str| {
        let address = || word.parse::<IpAddr>().map(IpNet::from);
        let parsed = word.parse::<IpNet>().map(|network| network.trunc()).or_else(|_| address());
        parsed.map_err(|_: AddrParseError| {
            let word = word.escape_debug();
            format!(
                "`{word}` is not a network\n  = help: write networks or addresses: `10.0.0.0/8, 192.0.2.1`"
            )
        })
    };
    text.split(',').map(str::trim).map(network).collect()
}

/// A rate, and how many at once: `100/min burst 20`. The rate is not checked yet.
///
/// # Errors
///
/// The reason, and how it is written.
pub(super) fn rate_and_burst(text: &str) -> Result<(String, Option<u32>), String> {
    let plain = text.replace(',', " ");
    let words: Vec<_> = plain.split_whitespace().collect();
    let burst = match words.as_slice() {
        [_] => None,
        [_, "burst", burst] => burst.parse().ok(),
        _ => None,
    };
    match (words.as_slice(), burst) {
        ([rate], _) | ([rate, ..], Some(_)) => Ok(((*rate).to_owned(), burst)),
        _ => {
            let text = text.escape_debug();
            Err(format!("`{text}` is not a rate\n  = help: write `100/min`, or `100/min burst 20`"))
        }
    }
}
