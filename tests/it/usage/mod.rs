//! Who used what: the units that a limit has charged to each consumer, which the admin API tells to the unit.

mod fleet;
mod memory;
mod model;
mod restarts;
mod streams;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::api::{api, ask};
use crate::harness::metered::{begin, json, parrot};
use crate::harness::upgraded::Upgraded;
use crate::harness::{Backend, Client, Gateway, binary, eventually, free_address};

/// Units and requests of the consumers that a response lists.
type Sums = BTreeMap<String, (i64, u64)>;

/// Consumers with the keys `secret-key-NAME`, in a file of this folder.
fn consumers(folder: &Path, names: &[&str]) -> String {
    let file = folder.join("consumers.csv");
    let rows: String = names.iter().map(|name| format!("secret-key-{name},{name},\n")).collect();
    std::fs::write(&file, format!("key,name,tier\n{rows}")).expect("it can be written");
    file.display().to_string()
}

/// A file with limit `x` of this many units a month by consumer, whose usage is kept. Requests to `/s/*` reserve 100 units
/// and settle those that their responses tell; others cost one unit.
fn plan(backend: &Backend, consumers: &str, units: u32, limit: &str, rest: &str) -> String {
    let route = |path: &str, cost: &str| {
        format!(
            "[[routes]]\npath = \"{path}\"\nupstream = \"api\"\nauth = \"keys\"\nauth_optional = true\nlimits = [\"x\"]\n{cost}\n"
        )
    };
    format!(
        "[upstreams]\napi = \"{}\"\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = \"{consumers}\"\n\
         [limits.x]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"{units}/month\"\nusage = true\n{limit}\n\
         {}{}{rest}",
        backend.url(),
        route("/0/*", "cost = { reserve = 100, settle = [\"json:/total\", \"sse:/total\"] }"),
        route("/1/*", ""),
    )
}

/// A request of a consumer whose response tells this many units. `None`: without a consumer.
fn settled(gateway: &Gateway, consumer: Option<&str>, units: u32) -> u16 {
    let key = consumer.map(|name| format!("x-key: secret-key-{name}\r\n")).unwrap_or_default();
    begin(gateway, 0, "-", &key, &json(&format!("{{\"total\":{units}}}"))).read().status
}

/// A response whose second half waits at the gate.
fn stream(gateway: &Gateway, consumer: &str) -> Client {
    let body = "{\"total\":|   70}";
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len() - 1
    );
    begin(gateway, 0, "-", &format!("x-key: secret-key-{consumer}\r\nx-then: gate\r\n"), response.as_bytes())
}

fn usage(gateway: &Gateway, query: &str) -> Value {
    api(gateway, &format!("limits/x/usage{query}"))
}

/// The consumers of a response. Without one: `-`.
fn sums(usage: &Value) -> Sums {
    let list = usage["consumers"].as_array().unwrap_or_else(|| panic!("{usage}"));
    let sum = |row: &Value| {
        let name = row["consumer"].as_str().unwrap_or("-").to_owned();
        (name, (row["units"].as_i64().expect("units"), row["requests"].as_u64().expect("requests")))
    };
    list.iter().map(sum).collect()
}

fn expected(rows: &[(&str, i64, u64)]) -> Sums {
    rows.iter().map(|(name, units, requests)| ((*name).to_owned(), (*units, *requests))).collect()
}

/// Waits until the present window has these sums: what a response has cost is settled before its last byte, but in the
/// worker.
#[track_caller]
fn comes_to(gateway: &Gateway, rows: &[(&str, i64, u64)]) {
    let rows = expected(rows);
    let mut before = Value::Null;
    let last = eventually("the usage", || {
        // A shared store may be away for a moment.
        let (status, seen) = ask(gateway, "GET limits/x/usage", "");
        if before != seen {
            eprintln!("usage: {status} {seen}");
            before = seen.clone();
        }
        (status == 200 && sums(&seen) == rows).then_some(seen)
    });
    let total = rows.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(
        (last["total"]["units"].as_i64(), last["total"]["requests"].as_u64()),
        (Some(total.0), Some(total.1))
    );
}

/// A backend and a store that several gateways share.
struct SharedSite {
    folder: tempfile::TempDir,
    backend: Backend,
    store: String,
}

impl SharedSite {
    /// `store` has the lines of `[store]`.
    fn new(store: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, backend: parrot(), store: store.to_owned() }
    }

    fn toml(&self, rest: &str) -> String {
        let names = ["anna", "bob", "carl"];
        let rest = format!("{}{rest}", self.store);
        plan(&self.backend, &consumers(self.folder.path(), &names), 1_000_000, "", &rest)
    }

    fn start(&self) -> Gateway {
        Gateway::start(&self.toml("[admin]\nlisten = \"127.0.0.1:0\"\n"))
    }

    /// A gateway whose addresses a successor takes over.
    fn start_upgradable(&self) -> Upgraded {
        let (listen, admin) = (free_address(), free_address());
        let rest = format!("[admin]\nlisten = \"{admin}\"\n[server]\nlisten = [\"{listen}\"]\nworkers = 2\n");
        let mut command = Command::new(binary());
        command.arg("run").stdin(Stdio::null());
        Upgraded::new(Gateway::start_by(&self.toml(&rest), command))
    }
}
