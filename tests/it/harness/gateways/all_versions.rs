//! A gateway that serves all versions of HTTP.

use std::ops::{Deref, DerefMut};

use crate::harness::{Gateway, Http2, Multiplexed};

/// HTTP/1.1 and HTTP/2 without TLS on the first address, and HTTP/3 on the second.
pub(crate) struct AllVersions {
    gateway: Gateway,
    #[cfg(feature = "http3")]
    authority: crate::harness::Authority,
}

#[cfg(not(feature = "http3"))]
impl AllVersions {
    /// Starts one with this file.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_in(toml, &[])
    }

    /// As [`Self::start`], with further environment variables.
    pub(crate) fn start_in(toml: &str, environment: &[(&str, &str)]) -> Self {
        Self { gateway: Gateway::start_in(toml, &[], environment) }
    }

    /// A client of each version that has streams.
    pub(crate) fn clients(&self) -> Vec<Multiplexed> {
        vec![Multiplexed::Http2(Http2::connect(self.addr()))]
    }
}

#[cfg(feature = "http3")]
impl AllVersions {
    /// Starts one with this file, which has no `listen` of its own.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_in(toml, &[])
    }

    /// As [`Self::start`], with further environment variables.
    pub(crate) fn start_in(toml: &str, environment: &[(&str, &str)]) -> Self {
        let authority = crate::harness::Authority::new();
        authority.certify("a", &["a.test"]);
        let listen = "listen = [{ address = \"127.0.0.1:0\", tls = false }, { address = \"127.0.0.1:0\", http3 = true }]";
        let workers = if toml.lines().any(|line| line.trim_start().starts_with("workers =")) {
            ""
        } else {
            "workers = 2\n"
        };
        let server = format!("[server]\n{listen}\n{workers}");
        let toml = match toml.split_once("[server]\n") {
            Some((before, after)) => format!("{before}{server}{after}"),
            None => format!("{server}{toml}"),
        };
        let toml = format!("{toml}\n{}", authority.server("a"));
        Self { gateway: Gateway::start_in(&toml, &[], environment), authority }
    }

    /// A client of each version that has streams.
    pub(crate) fn clients(&self) -> Vec<Multiplexed> {
        vec![Multiplexed::Http2(Http2::connect(self.addr())), Multiplexed::Http3(self.http3())]
    }

    /// A client of HTTP/3.
    pub(crate) fn http3(&self) -> crate::harness::Http3 {
        crate::harness::Http3::connect(self.addresses()[1], &self.authority.client_offering(&["h3"]))
    }
}

impl Deref for AllVersions {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl DerefMut for AllVersions {
    fn deref_mut(&mut self) -> &mut Gateway {
        &mut self.gateway
    }
}
