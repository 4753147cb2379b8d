//! Every fenced block of README.md and docs/ is run or parsed. The info string behind the fence says how:
//!
//! | info string | test |
//! |---|---|
//! | `toml` | a complete file: `tollgate check` finds neither faults nor warnings |
//! | `toml with a warning` | a complete file: no faults, but a warning |
//! | `toml saved as FILE` | a complete file, which commands of the page name |
//! | `toml fragment` | completed with the upstreams, limits and routes that it lacks: no faults |
//! | `toml fragment of [[routes]]` | the same, below this header |
//! | `console` | each `$ command` is run beside a gateway with the shipped gateway.toml; the output is compared |
//! | `sh` | run in the same way, each command must succeed; only parsed by `bash -n` where [`NOT_RUN`] says why |
//! | `promql` | each line is parsed by promtool |
//! | `json`, `yaml` | parsed |
//! | `text from FILE` | the block stands in that file of the repository |
//! | `text last lines of the terminal` | what a command of the page that serves has written last |
//! | `text saved as FILE` | the file of this name beside the configurations and commands of the page |
//! | `text session of this page` | run, beside the gateway and the servers of the page: see `recipes.rs`, and `replay/story.rs` |
//! | `text program log` | a gateway logs these lines: see `program_log.rs` |
//! | `text trace of LIMIT` | this limit decides so: see `traces.rs` |
//! | `text response of …` | a gateway sends this response: see `examples.rs` |
//! | `text WORDS` | an illustration; the words say of what |
//!
//! In expected output `…` stands for any characters of a line, and a line `…` for any lines.
//!
//! README and the tour are followed on a clean machine, every block of them: `first_pages.rs`. Commands of the other pages
//! find the gateway and the program where an installation has them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::harness::mmdb::database;
use crate::harness::pages::{Block, Page, line_matches, pages, root};
use crate::harness::{Authority, Gateway, binary, promtool};

/// Blocks of shell commands that a test cannot run: the page, the first line, and the reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "docs/benchmarks.md",
        "apt-get install nginx haproxy strace nghttp2-client      # perf instead of strace, if you have it",
        "takes 40 minutes",
    ),
    ("docs/deploy.md", "cargo build --release --locked", "changes the machine; needs systemd"),
    (
        "docs/deploy.md",
        "install -m 644 deploy/tollgate.socket /etc/systemd/system/",
        "changes the machine; needs systemd",
    ),
    ("docs/traces.md", "docker run --rm -p 16686:16686 -p 4318:4318 jaegertracing/jaeger", "needs Docker"),
    ("docs/releasing.md", "sha256sum --check --ignore-missing SHA256SUMS", "needs a download"),
    (
        "docs/releasing.md",
        "gh attestation verify tollgate-0.1.0-x86_64-unknown-linux-musl.tar.gz --repo OWNER/tollgate",
        "needs a download",
    ),
    ("docs/releasing.md", "grype sbom:tollgate-0.1.0.cdx.json", "needs a download"),
    ("docs/releasing.md", "git checkout v0.1.0", "changes the checkout"),
    ("docs/releasing.md", "mkdir -p apt && cp dist/*.deb apt/", "needs a release and its key"),
    ("docs/releasing.md", "git tag -a v0.1.0 -m \"tollgate 0.1.0\"", "publishes"),
    ("docs/security.md", "cargo +nightly fuzz run request_head", "needs cargo-fuzz, and does not end"),
];

/// Followed by `first_pages.rs`.
const FIRST_PAGES: [&str; 2] = ["README.md", "docs/tour.md"];

fn blocks_of(kinds: &[&str]) -> Vec<Block> {
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    blocks.into_iter().filter(|block| kinds.contains(&kind(block))).collect()
}

fn kind(block: &Block) -> &str {
    block.info.split(' ').next().unwrap_or_default()
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

#[test]
fn docs_blocks_say_how_they_are_tested() {
    let known = |block: &Block| match block.info.split_once(' ') {
        None => ["toml", "console", "sh", "promql", "json", "yaml"].contains(&block.info.as_str()),
        Some(("toml", rest)) => {
            ["fragment", "with a warning"].contains(&rest)
                || rest.starts_with("fragment of [")
                || rest.starts_with("saved as ")
        }
        Some(("text", words)) => !words.trim().is_empty(),
        Some(_) => false,
    };
    let blocks: Vec<_> = pages().iter().flat_map(Page::blocks).collect();
    assert!(blocks.len() > 60, "{} blocks were found", blocks.len());
    let unknown = blocks.iter().filter(|block| !known(block));
    let faults: Vec<_> = unknown
        .map(|block| {
            format!(
                "{}: info string `{}`; docs/blocks.rs lists those that there are",
                block.place(),
                block.info
            )
        })
        .collect();
    assert_none(&faults);
}

#[test]
fn docs_blocks_that_are_not_run_are_there() {
    let blocks = blocks_of(&["sh"]);
    for (page, first, reason) in NOT_RUN {
        assert!(!reason.is_empty(), "{page}: `{first}` has no reason");
        let found = blocks.iter().any(|block| is_listed(block, page, first));
        assert!(found, "{page} has no `sh` block that begins with `{first}`: remove it from NOT_RUN");
    }
}

fn is_listed(block: &Block, page: &str, first: &str) -> bool {
    block.page == page && block.text.lines().next() == Some(first)
}

// ---------------------------------------------------------------------------------------------------------------
// Data

#[test]
fn docs_json_and_yaml_parse() {
    let mut faults = Vec::new();
    for block in blocks_of(&["json", "yaml"]) {
        let fault = match kind(&block) {
            "json" => {
                serde_json::from_str::<serde_json::Value>(&block.text).err().map(|error| error.to_string())
            }
            _ => serde_yaml_ng::from_str::<serde_yaml_ng::Value>(&block.text)
                .err()
                .map(|error| error.to_string()),
        };
        faults.extend(fault.map(|fault| format!("{}: {fault}", block.place())));
    }
    assert_none(&faults);
}

#[test]
fn docs_excerpts_of_files_are_those_of_the_files() {
    let mut faults = Vec::new();
    for block in blocks_of(&["text"]) {
        let Some(file) = block.info.strip_prefix("text from ") else { continue };
        match fs::read_to_string(root().join(file)) {
            Ok(text) if text.contains(&block.text) => {}
            Ok(_) => faults.push(format!("{}: this text does not stand in {file}", block.place())),
            Err(error) => faults.push(format!("{}: {file}: {error}", block.place())),
        }
    }
    assert_none(&faults);
}

#[test]
fn docs_queries_are_promql() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut groups = Vec::new();
    for block in blocks_of(&["promql"]) {
        let lines = block.text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rules: Vec<_> = lines
            .enumerate()
            .map(|(index, line)| serde_json::json!({ "record": format!("docs:query{index}"), "expr": line }))
            .collect();
        groups.push(serde_json::json!({ "name": block.place(), "rules": rules }));
    }
    assert!(!groups.is_empty(), "there are queries in the documents");
    let file = directory.path().join("rules.yml");
    fs::write(&file, serde_json::json!({ "groups": groups }).to_string()).expect("it can be written");
    promtool(&["check", "rules", file.to_str().expect("text")], &file);
}

// ---------------------------------------------------------------------------------------------------------------
// Configuration

#[test]
fn docs_configuration_loads() {
    let authority = Authority::new();
    for name in ["admin", "cert", "client", "example.com", "example.org"] {
        authority.certify(name, &[name]);
    }
    fs::rename(authority.path("cert.key"), authority.path("key.pem")).expect("it can be renamed");
    let networks = [("192.0.2.0/25", "AT"), ("192.0.2.128/26", "CH"), ("192.0.2.192/26", "DE")];
    let countries = networks.map(|(network, code)| (network, json!({ "country": { "iso_code": code } })));
    fs::write(authority.path("GeoLite2-Country.mmdb"), database(&countries)).expect("it can be written");
    let systems = [("192.0.2.0/24", json!({ "autonomous_system_number": 64500 }))];
    fs::write(authority.path("GeoLite2-ASN.mmdb"), database(&systems)).expect("it can be written");
    for block in blocks_of(&["text"]) {
        if let Some(file) = block.info.strip_prefix("text saved as ") {
            fs::write(authority.path(file), block.text).expect("it can be written");
        }
    }
    let faults: Vec<_> = blocks_of(&["toml"])
        .iter()
        .filter_map(|block| check(block, &authority).err().map(|fault| format!("{}: {fault}", block.place())))
        .collect();
    assert_none(&faults);
}

fn check(block: &Block, authority: &Authority) -> Result<(), String> {
    let fragment = block.info.starts_with("toml fragment");
    let text = if fragment { completed(block)? } else { block.text.clone() };
    fs::write(authority.path("gateway.toml"), &text).expect("it can be written");
    let mut command = Command::new(binary());
    command.arg("check").current_dir(authority.path("")).env("NO_COLOR", "1");
    for (index, name) in variables(&text).into_iter().enumerate() {
        command.env(name, format!("c0ffee00c0ffee00c0ffee00c0ffee{index:02x}"));
    }
    let output = command.output().expect("the binary starts");
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let warns_as_said = fragment || told.contains("warning: ") == (block.info == "toml with a warning");
    if !output.status.success() || !warns_as_said {
        return Err(format!("`tollgate check` says\n{told}\n--- of\n{text}"));
    }
    Ok(())
}

/// The environment variables that a file names.
fn variables(text: &str) -> Vec<&str> {
    let written = text.split("${").skip(1).filter_map(|rest| rest.split('}').next());
    let named =
        |key: &'static str| text.lines().filter_map(move |line| line.split_once(key)?.1.split('"').next());
    written.chain(named("token_env = \"")).chain(named("secret_env = \"")).collect()
}

/// The fragment with all that it lacks to be loaded.
fn completed(block: &Block) -> Result<String, String> {
    let header = block.info.strip_prefix("toml fragment of ").unwrap_or_default();
    let mut file: toml::Table =
        format!("{header}\n{}", block.text).parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut upstreams: BTreeSet<String> = keys(&file, "upstreams");
    let mut limits: BTreeSet<String> = keys(&file, "limits");
    let mut routes = file.remove("routes").and_then(|routes| routes.as_array().cloned()).unwrap_or_default();
    if routes.is_empty() {
        let all = limits.iter().cloned().map(toml::Value::String).collect();
        routes.push(toml::Table::from_iter([("limits".to_owned(), toml::Value::Array(all))]).into());
    }
    for route in routes.iter_mut().filter_map(toml::Value::as_table_mut) {
        route.entry("path").or_insert("/*".into());
        let demo = upstreams.first().cloned().unwrap_or_else(|| "demo".to_owned());
        let upstream = route.entry("upstream").or_insert(demo.into());
        upstreams.extend(upstream.as_str().map(str::to_owned));
        let named = route.get("limits").and_then(toml::Value::as_array).into_iter().flatten();
        limits
            .extend(named.filter_map(|limit| limit.get("name").unwrap_or(limit).as_str().map(str::to_owned)));
    }
    file.insert("routes".to_owned(), routes.into());
    let table = entry(&mut file, "upstreams");
    for name in upstreams {
        table.entry(name).or_insert("builtin:echo".into());
    }
    let table = entry(&mut file, "limits");
    for name in limits {
        let limit = table.entry(name).or_insert(toml::Table::new().into());
        let limit = limit.as_table_mut().ok_or("a limit is a table")?;
        for (key, value) in [("algorithm", "token-bucket"), ("key", "ip")] {
            limit.entry(key).or_insert(value.into());
        }
        if limit["algorithm"].as_str() != Some("concurrency") {
            limit.entry("rate").or_insert("10/s".into());
        }
    }
    Ok(file.to_string())
}

fn keys(file: &toml::Table, table: &str) -> BTreeSet<String> {
    let table = file.get(table).and_then(toml::Value::as_table);
    table.into_iter().flat_map(|table| table.keys().cloned()).collect()
}

fn entry<'a>(file: &'a mut toml::Table, name: &str) -> &'a mut toml::Table {
    let value = file.entry(name).or_insert(toml::Table::new().into());
    value.as_table_mut().expect("it is a table")
}

// ---------------------------------------------------------------------------------------------------------------
// Commands

/// A gateway with the shipped file, and a directory in which commands find it at the addresses that the pages name.
struct Shell {
    gateway: Gateway,
    directory: tempfile::TempDir,
}

impl Shell {
    fn new() -> Self {
        let file = fs::read_to_string(root().join("gateway.toml")).expect("the shipped file");
        let free = file.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9900", "127.0.0.1:0");
        let gateway = Gateway::start(&free);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let admin = gateway.admin_addr().to_string();
        fs::write(path("gateway.toml"), file.replace("127.0.0.1:9900", &admin)).expect("it can be written");
        for name in ["docs", "deploy"] {
            symlink(root().join(name), path(name)).expect("a link");
        }
        fs::create_dir(path("bin")).expect("a directory");
        symlink(binary(), path("bin/tollgate")).expect("a link");
        // As a terminal shows it: without a progress meter.
        let curl = format!(
            "#!/bin/sh\nPATH=${{PATH#*:}} exec curl -sS --connect-to localhost:8080:{0} --connect-to 127.0.0.1:8080:{0} \
             --connect-to localhost:9900:{1} --connect-to 127.0.0.1:9900:{1} \"$@\"\n",
            gateway.addr(),
            admin
        );
        fs::write(path("bin/curl"), curl).expect("it can be written");
        fs::set_permissions(path("bin/curl"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self { gateway, directory }
    }

    /// What the command prints, and whether its exit status is 0.
    fn run(&self, command: &str) -> (String, bool) {
        let log = self.gateway.stdout_lines().join("\n") + "\n";
        fs::write(self.directory.path().join("access.log"), log).expect("it can be written");
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(self.directory.path())
            .env("PATH", format!("{}:{path}", self.directory.path().join("bin").display()))
            .env("NO_COLOR", "1")
            .output()
            .expect("there is a bash");
        (String::from_utf8_lossy(&output.stdout).replace('\r', ""), output.status.success())
    }
}

#[test]
fn docs_commands_print_what_is_shown() {
    for page in pages().into_iter().filter(|page| !FIRST_PAGES.contains(&page.path.as_str())) {
        let is_run = |block: &Block| match kind(block) {
            "console" => true,
            "sh" => !NOT_RUN.iter().any(|(page, first, _)| is_listed(block, page, first)),
            _ => false,
        };
        let blocks: Vec<_> = page.blocks().into_iter().filter(is_run).collect();
        if blocks.is_empty() {
            continue;
        }
        let saved: Vec<_> =
            page.blocks().into_iter().filter(|block| block.info.starts_with("text saved as ")).collect();
        // Some outputs depend on the seconds between two commands, and the machine may be busy.
        let faults = (0..3).map(|_| run_all(&blocks, &saved)).find(Vec::is_empty);
        assert_none(&faults.unwrap_or_else(|| run_all(&blocks, &saved)));
    }
}

/// The faults of these blocks, in a directory with the files that the page saves.
fn run_all(blocks: &[Block], saved: &[Block]) -> Vec<String> {
    let shell = Shell::new();
    for block in saved {
        let name = block.info.trim_start_matches("text saved as ");
        fs::write(shell.directory.path().join(name), &block.text).expect("it can be written");
    }
    let mut faults = Vec::new();
    for block in blocks {
        if kind(block) == "sh" {
            let (printed, good) = shell.run(&format!("set -e\n{}", block.text));
            if !good {
                faults.push(format!("{}: the commands fail:\n{printed}", block.place()));
            }
            continue;
        }
        for (line, command, expected) in commands(block) {
            let (printed, _) = shell.run(&command);
            let (expected, printed) = (trimmed(&expected), trimmed(&printed));
            if !lines_match(&expected, &printed) {
                let place = format!("{}:{}", block.page, block.line + line);
                let (expected, printed) = (expected.join("\n"), printed.join("\n"));
                faults.push(format!("{place}: `{command}` prints\n{printed}\n--- and not\n{expected}"));
            }
        }
    }
    faults
}

/// The commands of a block: the line inside it from 1, the command, and the lines behind it.
fn commands(block: &Block) -> Vec<(usize, String, String)> {
    let mut commands: Vec<(usize, String, String)> = Vec::new();
    for (index, line) in block.text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((index + 1, command.to_owned(), String::new()));
        } else {
            let last = commands.last_mut();
            let (_, command, output) = last.unwrap_or_else(|| panic!("{}: begin with `$ `", block.place()));
            let into = if command.ends_with('\\') { command } else { output };
            into.push_str(&format!("\n{line}"));
        }
    }
    commands
}

fn trimmed(text: &str) -> Vec<&str> {
    text.trim().lines().map(str::trim_end).collect()
}

fn lines_match(expected: &[&str], printed: &[&str]) -> bool {
    match (expected, printed) {
        ([], rest) => rest.is_empty(),
        (["…", after @ ..], _) => {
            (0..=printed.len()).any(|skipped| lines_match(after, &printed[skipped..]))
        }
        ([first, after @ ..], [line, rest @ ..]) => line_matches(first, line) && lines_match(after, rest),
        (_, []) => false,
    }
}

#[test]
fn docs_shell_commands_are_bash() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script: &Path = &directory.path().join("script");
    let mut faults = Vec::new();
    for block in blocks_of(&["sh"]) {
        fs::write(script, &block.text).expect("it can be written");
        let output = Command::new("bash").arg("-n").arg(script).output().expect("there is a bash");
        if !output.status.success() {
            faults.push(format!("{}: {}", block.place(), String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert_none(&faults);
}
