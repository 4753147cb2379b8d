//! Pebble, the authority of Let's Encrypt for tests, beside its DNS server: both are in Debian's package `pebble`. Its faults
//! are on: it rejects nonces, and it reuses authorizations or not.

use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;

use super::front::Front;
use crate::harness::{Authority, free_address, tools};

/// The authority, and DNS in which each name is 127.0.0.1. Both stop when dropped.
pub(crate) struct Pebble {
    server: Front,
    _dns: Front,
    dns_management: SocketAddr,
    management: SocketAddr,
    /// It has signed the certificate of the authority's own server.
    trust: Authority,
}

/// How the authority is to be.
#[derive(Default)]
pub(crate) struct PebbleOptions {
    /// Where it looks at challenges: the port of HTTP, and that of TLS.
    pub(crate) http_port: u16,
    pub(crate) tls_port: u16,
    /// The seconds for which certificates are valid; 0: its default.
    pub(crate) lifetime: u64,
    /// The name and the key of an external account; others are refused.
    pub(crate) external: Option<(&'static str, &'static str)>,
    /// Further variables of its environment.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

impl Pebble {
    /// Starts it.
    pub(crate) fn start(options: &PebbleOptions) -> Self {
        let trust = Authority::new();
        trust.certify("server", &["localhost"]);
        let (management, dns_management) = (free_address(), free_address());
        let dns = Front::start_at(
            |_, _| String::new(),
            |_, address| {
                let mut dns = tools::needed("pebble-challtestsrv");
                dns.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""]);
                dns.args(["-dns01", &address.to_string(), "-management", &dns_management.to_string()]);
                dns
            },
        );
        let resolver = dns.addr().to_string();
        let keys: serde_json::Map<_, _> =
            options.external.iter().map(|(name, key)| ((*name).to_owned(), json!(key))).collect();
        let configuration = |address: SocketAddr, _: &str| {
            let mut settings = json!({
                "listenAddress": address.to_string(), "managementListenAddress": management.to_string(),
                "certificate": trust.path("server.pem"), "privateKey": trust.path("server.key"),
                "httpPort": options.http_port, "tlsPort": options.tls_port, "ocspResponderURL": "",
                "externalAccountBindingRequired": !keys.is_empty(), "externalAccountMACKeys": keys,
            });
            if options.lifetime > 0 {
                settings["certificateValidityPeriod"] = options.lifetime.into();
            }
            json!({ "pebble": settings }).to_string()
        };
        let server = Front::start_at(configuration, |file, _| {
            let mut pebble = tools::needed("pebble");
            pebble.args(["-strict", "-config", file, "-dnsserver", &resolver]);
            pebble.env("PEBBLE_VA_NOSLEEP", "1").envs(options.environment.iter().copied());
            pebble
        });
        Self { server, _dns: dns, dns_management, management, trust }
    }

    /// The lines of `[acme]` that name it.
    pub(crate) fn lines(&self) -> String {
        let (port, ca) = (self.server.addr().port(), self.trust.path("ca.pem"));
        format!("directory = \"https://localhost:{port}/dir\"\ntls = {{ ca = \"{}\" }}\n", ca.display())
    }

    /// Stops the authority, or has it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Has a name lead to this address.
    pub(crate) fn resolve(&self, name: &str, address: &str) {
        let body = json!({ "host": name, "addresses": [address] }).to_string();
        let url = format!("http://{}/add-a", self.dns_management);
        let done = tools::needed("curl").args(["-sf", "-d", &body, &url]).status().expect("curl runs");
        assert!(done.success(), "{name}");
    }

    /// A file with its root, which signs the certificates of this run.
    pub(crate) fn root(&self) -> PathBuf {
        let (file, ca) = (self.trust.path("root.pem"), self.trust.path("ca.pem"));
        let url = format!("https://localhost:{}/roots/0", self.management.port());
        let mut curl = tools::needed("curl");
        let done = curl.args(["-sf", &url, "--cacert"]).arg(ca).arg("-o").arg(&file).status();
        assert!(done.expect("curl runs").success(), "the root");
        file
    }
}
