//! Certificates that an authority issues: beside an authority of the tests' own. The real one is in `peers::acme`.

mod challenges;
mod failures;
mod fleet;
mod issue;
mod renewal;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::harness::acme_server::{AcmeServer, look_by_http};
use crate::harness::any_certificate::{Shown, shown};
use crate::harness::{Backend, Gateway, eventually, everything_to};

/// What [`Acme::toml`] is made of.
struct Acme<'a> {
    server: &'a AcmeServer,
    /// Where the state directory is, as `state`.
    folder: &'a Path,
    names: &'a [&'a str],
    /// Further lines of `[acme]`.
    acme: &'a str,
    /// Further lines of `[[server.tls]]`.
    tls: &'a str,
    /// Further tables.
    rest: &'a str,
}

impl<'a> Acme<'a> {
    fn of(server: &'a AcmeServer, folder: &'a Path, names: &'a [&'a str]) -> Self {
        Self { server, folder, names, acme: "", tls: "", rest: "" }
    }

    /// A listener without TLS and one with it, and everything to the backend.
    fn toml(&self, backend: &Backend) -> String {
        let Self { server, folder, names, acme, tls, rest } = self;
        let (directory, state) = (server.directory(), folder.join("state"));
        let listen =
            "[server]\nworkers = 2\nlisten = [{ address = \"127.0.0.1:0\", tls = false }, \"127.0.0.1:0\"]\n";
        let acme = format!(
            "{listen}[[server.tls]]\nacme = {names:?}\n{tls}\n[acme]\ndirectory = \"{directory}\"\nstate = \"{}\"\nagree_tos = true\n{acme}\n[admin]\nlisten = \"127.0.0.1:0\"\n{rest}",
            state.display()
        );
        everything_to(backend, &acme)
    }
}

/// The listener with TLS.
fn tls(gateway: &Gateway) -> SocketAddr {
    gateway.addresses()[1]
}

/// Waits until clients of this name are shown a certificate of the authority.
fn wait_until_issued(gateway: &Gateway, name: &str) -> Shown {
    eventually("the authority's certificate to be shown", || {
        shown(tls(gateway), name, &["http/1.1"]).ok().filter(|shown| shown.issuer == "authority of tests")
    })
}

/// All files below a folder, without the lock.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("listed").path());
    let nested = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    let mut files: Vec<_> = nested.filter(|path| !path.ends_with("lock")).collect();
    files.sort();
    files
}

/// The permissions of a file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o777
}

/// Has the authority look at each challenge of http-01 at this gateway.
fn validate_at(server: &AcmeServer, gateway: &Gateway) {
    let address = gateway.addr();
    server.validate(move |kind, name, token| match kind {
        "http-01" => look_by_http(address, name, token),
        other => Err(format!("{other} is not looked at")),
    });
}
