//! `[store]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::keys::{NamedSchema, SOME, Schema, choice, count, duration, keys};
use super::redis_url::{self, Common, RedisUrl};
use super::report::quoted;
use super::table::ConfigTable;
use super::tls::{self, TRUST};
use super::value::ConfigValue;
use crate::clock;
use crate::limit::units::Cost;
use crate::plan::{SnapshotSettings, StoreSettings};
use crate::store::OnError;
use crate::store::redis::settings::{
    ConnectOptions, RedisPassword, RedisServer, RedisServers, RedisSettings,
};

keys! {
    /// Where counters live.
    pub(super) STORE: StoreKeys = "[store]" {
        /// "memory": each gateway counts for itself. "redis": a fleet shares its counters in Redis 6.2 or newer, or
        /// Valkey.
        backend: StoreBackend = choice(&BACKENDS) => StoreBackend::Memory;
        /// Counters in memory, a hard bound, 1 to 1000000000; when full, the least used leave first.
        max_keys: usize = count(1, Cost::MAX as u64) => 1_000_000;
        /// The file that the counters in memory are written to, so that they outlive a restart or a crash; made with
        /// mode 0600. A relative path begins where this file lies. Not with "redis". Default: none.
        snapshot = Schema::Text;
        /// How often `snapshot` is written, "1s" to "1h": what a crash loses at most.
        snapshot_interval: Duration = duration() => Duration::from_secs(30);
        /// Where the counters are shared: "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]", "rediss://…" for TLS,
        /// "redis+sentinel://HOST[:PORT]/MASTER", "unix:///PATH"; a list of nodes is a cluster. Required with
        /// "redis", or url_env.
        url = Schema::Either(&[Schema::Named(&REDIS_URL), Schema::List(SOME, &Schema::Named(&REDIS_URL))]);
        /// In place of url: the environment variable that holds it; several URLs stand there with spaces in
        /// between.
        url_env = Schema::Name;
        /// How long one decision of the shared store may take, all included: "1ms" to "10s".
        timeout: Duration = duration() => Duration::from_millis(20);
        /// What all keys in the shared store begin with: 1 to 64 plain characters. Default "tollgate".
        prefix = Schema::Name;
        /// Secret for the names of the shared counters, so that a reader of the store cannot guess client keys, and for
        /// cookies of `sticky` and of splits; the same in the whole fleet. At least 16 bytes. Default: none.
        secret = Schema::Name;
        /// How TLS is spoken with the shared store. Default: the system's authorities, no certificate of our own.
        tls = Schema::Table(&TRUST);
        /// What happens while the shared store is unreachable: "local" counts in memory, "allow" lets through,
        /// "deny" refuses with 503. No effect beside "memory".
        on_error: OnError = choice(&ON_ERROR) => OnError::Local;
    }
}

/// The URL of a shared store, in the schema.
static REDIS_URL: NamedSchema = NamedSchema {
    name: "redis_url",
    description: "\"redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]\", \"rediss://…\" for TLS, \"redis+sentinel://HOST[:PORT]/MASTER\", \"unix:///PATH\".",
    schema: Schema::Matching(
        r"^(unix|redis\+unix|redis|rediss|valkey|valkeys|redis\+sentinel|rediss\+sentinel)://|\$\{",
    ),
};

/// `on_error`, of the store or of a limit.
pub(super) const ON_ERROR: [(&str, OnError); 3] =
    [("local", OnError::Local), ("allow", OnError::Allow), ("deny", OnError::Deny)];

/// Nodes of a cluster, or sentinels, that the file may name.
const MAX_SERVERS: usize = 100;
/// Redis and Valkey have databases 0 to 15 unless their configuration says otherwise.
const LAST_USUAL_DATABASE: u32 = 15;
/// Bytes of `prefix`.
const MAX_PREFIX: usize = 64;
/// A shorter `secret` can be guessed.
const MIN_SECRET: usize = 16;
/// The longest `timeout`: no request should wait longer for a decision.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);
/// The range of `snapshot_interval`.
const SNAPSHOT_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3600)];
/// The context for deriving the key of a fleet's fingerprints (BLAKE3): never to be changed.
const SECRET_CONTEXT: &str = "tollgate 2026-11-21 names of shared counters";

/// The name of the section in messages.
pub(super) const TITLE: &str = "`[store]`";

/// Where counters are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreBackend {
    Memory,
    Redis,
}

const BACKENDS: [(&str, StoreBackend); 2] =
    [("memory", StoreBackend::Memory), ("redis", StoreBackend::Redis)];

/// `[store]` as written.
pub(super) struct StoreDraft {
    pub(super) settings: StoreSettings,
    /// What limits inherit.
    pub(super) on_error: OnError,
    /// Whether `backend` is written. With `memory` the settings of a shared store wait for another day.
    pub(super) names_backend: bool,
}

/// Reads `[store]`.
pub(super) fn read(mut table: ConfigTable<'_>) -> StoreDraft {
    let names_backend = table.given(STORE.backend.name).is_some();
    if !names_backend {
        forgets_backend(&table);
    }
    let backend = table.value(&STORE.backend);
    let max_keys = table.value(&STORE.max_keys);
    let on_error = table.value(&STORE.on_error);
    let secret = table.optional(&STORE.secret, |value| secret(&value));
    // The settings of a shared store are checked with `memory`, too, though unused.
    let shared = shared(&mut table, backend, secret);
    let snapshot = snapshot(&mut table, backend);
    table.finish();
    let shared = shared.filter(|_| backend == StoreBackend::Redis).map(Arc::new);
    StoreDraft { settings: StoreSettings { max_keys, shared, secret, snapshot }, on_error, names_backend }
}

/// Warns of a setting of a shared store without `backend`: each gateway of a fleet would count for itself.
fn forgets_backend(table: &ConfigTable<'_>) {
    let keys = [STORE.url.name, STORE.url_env.name, STORE.timeout.name, STORE.prefix.name, STORE.tls.name];
    let given = keys.into_iter().chain([STORE.on_error.name]).find_map(|key| Some((key, table.given(key)?)));
    if let Some((key, span)) = given {
        let message = format!("`{key}` has no effect: counters are in memory");
        let help = "write `backend = \"redis\"`; or `backend = \"memory\"`, if the store is to be used later";
        table.diagnostics().warn(span, message, help);
    }
}

fn shared(
    table: &mut ConfigTable<'_>,
    backend: StoreBackend,
    secret: Option<RedisPassword>,
) -> Option<RedisSettings> {
    let timeout = table.or_default(&STORE.timeout, |value| timeout(&value));
    let prefix =
        table.optional(&STORE.prefix, |value| prefix(&value)).unwrap_or_else(|| Arc::from("tollgate"));
    let secret = secret.unwrap_or_else(|| key_of(""));
    let span = table.span();
    let tls = table.take(&STORE.tls);
    let Some((value, urls)) = urls(table) else {
        if backend == StoreBackend::Redis {
            let help = "add, for example, `url = \"redis://127.0.0.1:6379\"`, or `url_env` with the variable that holds it";
            table.diagnostics().fault(span, "`[store]` has the backend `redis`, but no `url`", help);
        }
        return None;
    };
    let (servers, common) = servers(&value, urls?)?;
    if common.database > LAST_USUAL_DATABASE {
        let message = format!(
            "the URL of the store names database {}, but a Redis server has 0 to {LAST_USUAL_DATABASE}",
            common.database
        );
        let help = "write one of these, or raise `databases` in the configuration of the server";
        value.diagnostics().warn(value.span(), message, help);
    }
    let tls = match (common.tls, &tls) {
        (true, tls) => Some(tls::client(tls.as_ref(), &value, &[])?),
        (false, None) => None,
        (false, Some(tls)) => {
            tls.fault(
                "`tls` has no effect: the URL of the store begins with `redis://`",
                "write `rediss://`, or leave `tls` out",
            );
            return None;
        }
    };
    let dial = ConnectOptions { login: common.login, database: common.database, tls };
    Some(RedisSettings { servers, dial, prefix, secret, timeout })
}

/// The URLs, and the value that contains them; `Some((_, None))` if they have errors, `None` if there are none.
fn urls<'a>(table: &mut ConfigTable<'a>) -> Option<(ConfigValue<'a>, Option<Vec<RedisUrl>>)> {
    match (table.take(&STORE.url), table.take(&STORE.url_env)) {
        (Some(url), variable) => {
            if let Some(variable) = variable {
                variable.fault("the store has both `url` and `url_env`", "leave one of the two out");
            }
            let urls = written_urls(&url);
            Some((url, urls))
        }
        (None, Some(variable)) => {
            let urls = variable_urls(&variable);
            Some((variable, urls))
        }
        (None, None) => None,
    }
}

/// One URL, or a list of them.
fn written_urls(value: &ConfigValue<'_>) -> Option<Vec<RedisUrl>> {
    if !value.is_list() {
        return written_url(value).map(|url| vec![url]);
    }
    let mut count = 0;
    let urls = value.some_of(|item| {
        count += 1;
        written_url(&item)
    });
    urls.filter(|urls| urls.len() == count)
}

fn written_url(value: &ConfigValue<'_>) -> Option<RedisUrl> {
    value.text()?.parse("the URL of a Redis server", redis_url::parse)
}

/// The value of an environment variable: one URL, or several separated by spaces.
fn variable_urls(value: &ConfigValue<'_>) -> Option<Vec<RedisUrl>> {
    let held = value.variable()?;
    match held.split_whitespace().map(redis_url::parse).collect::<Result<Vec<_>, _>>() {
        Ok(urls) => Some(urls),
        Err(refusal) => {
            let message = format!("what the variable holds is of no use: {}", refusal.message);
            value.fault(message, refusal.help);
            None
        }
    }
}

/// The servers that the URLs name together: one server, a cluster, or the sentinels of a master.
fn servers(value: &ConfigValue<'_>, urls: Vec<RedisUrl>) -> Option<(RedisServers, Common)> {
    let refuse = |message: &str, help: &str| {
        value.fault(message, help);
        None
    };
    let is_list = value.is_list() || urls.len() > 1;
    if urls.len() > MAX_SERVERS {
        return refuse("`url` names more than 100 servers", "name some: the others are learned from them");
    }
    let common = urls.first()?.common.clone();
    if urls.iter().any(|url| url.common != common) {
        return refuse(
            "the URLs of the store differ in more than host and port",
            "nodes that belong together have one scheme, user, password, database and master",
        );
    }
    let mut listed: Vec<RedisServer> = urls.into_iter().map(|url| url.server).collect();
    let servers = match (&common.master, is_list) {
        (Some(master), _) => RedisServers::Sentinel { sentinels: listed, master: Arc::clone(master) },
        (None, true) if common.database != 0 => {
            return refuse(
                "a list of URLs is a cluster, which has only database 0",
                "leave out the `/` and the number",
            );
        }
        (None, true) if listed.iter().any(|server| server.unix_socket().is_some()) => {
            return refuse(
                "a list of URLs is a cluster, and none of its nodes is behind a Unix socket",
                "write the one URL without brackets",
            );
        }
        (None, true) => RedisServers::Cluster(listed),
        (None, false) => RedisServers::Single(listed.pop()?),
    };
    Some((servers, common))
}

/// The file of the counters, and how often it is written.
fn snapshot(table: &mut ConfigTable<'_>, backend: StoreBackend) -> Option<SnapshotSettings> {
    if backend == StoreBackend::Redis {
        for key in [STORE.snapshot.name, STORE.snapshot_interval.name] {
            let message = format!("`{key}` has no effect beside `backend = \"redis\"`");
            table.misplaced(key, &message, "the shared store keeps the counters: leave it out");
        }
        return None;
    }
    let snapshot = table.take(&STORE.snapshot);
    let Some(value) = snapshot else {
        if let Some(interval) = table.take(&STORE.snapshot_interval) {
            let message = "`snapshot_interval` has no effect without `snapshot`";
            interval.fault(message, "name the file, or leave it out");
        }
        return None;
    };
    let interval = table.or_default(&STORE.snapshot_interval, |value| interval(&value));
    Some(SnapshotSettings { file: snapshot_file(&value)?, interval: clock::micros(interval) })
}

/// The file of the counters, which is made when it is first written.
fn snapshot_file(value: &ConfigValue<'_>) -> Option<PathBuf> {
    let written = value.text()?;
    let path = value.diagnostics().path(written.as_str(), value.span());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let why = match (path.file_name(), folder.unwrap_or(Path::new(".")).is_dir()) {
        (None, _) => "it names no file",
        _ if path.is_dir() => "it is a folder",
        (_, false) if value.diagnostics().is_without_environment() => {
            let why = format!("the folder of {} is not here", written.quoted());
            value.diagnostics().skip(value.span(), &why);
            return None;
        }
        (_, false) => "its folder is not there",
        (Some(_), true) => return Some(path),
    };
    let help = "name a file in a folder that the user that tollgate runs as can write to, such as \
                `/var/lib/tollgate/counters`; a relative path begins where `gateway.toml` lies";
    value.fault(format!("{} cannot hold the counters: {why}", written.quoted()), help);
    None
}

fn interval(value: &ConfigValue<'_>) -> Option<Duration> {
    let interval = value.duration()?;
    let [least, most] = SNAPSHOT_INTERVALS;
    if !(least..=most).contains(&interval) {
        value.out_of_range(&format!("{interval:?}"), "1s", "1h");
        return None;
    }
    Some(interval)
}

fn timeout(value: &ConfigValue<'_>) -> Option<Duration> {
    let timeout = value.duration()?;
    if timeout > MAX_TIMEOUT {
        value.out_of_range(&format!("{timeout:?}"), "1ms", "10s");
        return None;
    }
    Some(timeout)
}

fn prefix(value: &ConfigValue<'_>) -> Option<Arc<str>> {
    let text = value.text()?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    let prefix = text.as_str();
    if prefix.is_empty() || prefix.len() > MAX_PREFIX || !prefix.bytes().all(is_plain) {
        let help = format!(
            "all keys in the store begin with it: use 1 to {MAX_PREFIX} plain characters without braces and spaces"
        );
        value.fault(format!("{} cannot be a prefix", quoted(prefix)), help);
        return None;
    }
    Some(Arc::from(prefix))
}

fn secret(value: &ConfigValue<'_>) -> Option<RedisPassword> {
    let text = value.text()?;
    if text.as_str().len() < MIN_SECRET {
        value.fault(
            format!("`secret` has fewer than {MIN_SECRET} bytes, so it could be guessed"),
            "take a random one, the same for all gateways of the fleet: `openssl rand -base64 32`",
        );
        return None;
    }
    Some(key_of(text.as_str()))
}

/// The key of the fingerprints.
fn key_of(secret: &str) -> RedisPassword {
    RedisPassword(blake3::derive_key(SECRET_CONTEXT, secret.as_bytes()))
}
