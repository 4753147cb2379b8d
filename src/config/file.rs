//! What may be written: the sections of `gateway.toml`, read in the order in which they refer to each other.

use toml::de::DeTable;

use super::name::Directory;
use super::reader::Reader;
use super::report::Place;
use super::routes::{self, Surroundings};
use super::table::Table;
use super::value::{Entry, Value};
use super::{admin, limits, log, server, store, trace, upstreams};
use crate::gateway::log::Log;
use crate::gateway::trace::Trace;
use crate::gateway::{Admin, Server, StoreSettings};

/// All that a file says, section by section; what has faults is missing.
pub(super) struct Draft {
    pub(super) server: Server,
    pub(super) admin: Option<Admin>,
    pub(super) store: StoreSettings,
    pub(super) log: Log,
    pub(super) trace: Option<Trace>,
    pub(super) limits: Vec<limits::Draft>,
    pub(super) upstreams: Vec<upstreams::Draft>,
    pub(super) routes: Vec<routes::Draft>,
}

/// An empty table, for a section that is not written: all its keys have their defaults.
static NOTHING: std::sync::LazyLock<DeTable<'static>> = std::sync::LazyLock::new(DeTable::new);

/// Reads all sections. Faults go to `reader`.
pub(super) fn read<'a>(document: &'a DeTable<'a>, reader: &'a Reader<'a>) -> Draft {
    let mut file = Table::new("the file", Place::default(), document, reader);
    let (server, max_body_bytes) = server::read(section(&mut file, "server", "`[server]`"));
    let admin = file
        .optional("admin", |value| value.table("`[admin]`"))
        .and_then(|table| admin::read(table, &server.listen));
    let (store, on_error) = store::read(section(&mut file, "store", "`[store]`"));
    let log = log::read(section(&mut file, "log", "`[log]`"));
    let trace = file.optional("trace", |value| value.table("`[trace]`")).and_then(trace::read);
    let upstreams: Vec<_> = entries(&mut file, "upstreams").iter().map(upstreams::read).collect();
    let limits: Vec<_> =
        entries(&mut file, "limits").iter().map(|entry| limits::read(entry, on_error)).collect();
    let around = Surroundings {
        limits: Directory::new("limit", limits.iter().map(|limit| &*limit.name)),
        upstreams: Directory::new("upstream", upstreams.iter().map(|upstream| &*upstream.name)),
        max_body_bytes,
        path_matching: server.path_matching,
    };
    let routes = routes(&mut file, &around);
    file.finish();
    Draft { server, admin, store, log, trace, limits, upstreams, routes }
}

fn section<'a>(file: &mut Table<'a>, key: &'static str, title: &str) -> Table<'a> {
    let reader = file.reader();
    file.optional(key, |value| value.table(title))
        .unwrap_or_else(|| Table::new(title, Place::default(), &NOTHING, reader))
}

fn entries<'a>(file: &mut Table<'a>, key: &'static str) -> Vec<Entry<'a>> {
    let help = format!("each stands below its own header: `[{key}.NAME]`");
    file.optional(
        key,
        |value| if value.is_table() { value.entries() } else { value.mismatch("a table", help) },
    )
    .unwrap_or_default()
}

fn routes(file: &mut Table<'_>, around: &Surroundings<'_>) -> Vec<routes::Draft> {
    let Some(value) = file.take("routes") else {
        file.reader().fault(
            Place::default(),
            "there are no routes, so every request would be answered 404",
            "add one: `[[routes]]` with `path = \"/*\"` and `upstream = \"NAME\"`",
        );
        return Vec::new();
    };
    read_routes(&value, around).unwrap_or_default()
}

fn read_routes(value: &Value<'_>, around: &Surroundings<'_>) -> Option<Vec<routes::Draft>> {
    if !value.is_list() {
        return value.mismatch("a list", "each route stands below a header with two brackets: `[[routes]]`");
    }
    value.some_of(|item| routes::read(&item, around))
}
