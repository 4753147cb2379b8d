//! What the documents show is what the binary says.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::api::api;
use crate::harness::{Authority, Backend, Client, Gateway, everything_to};

fn text(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("it is there")
}

/// The block of README in which `command` is typed: what stands behind the command, up to the next one.
fn shown(command: &str) -> String {
    let readme = text("README.md");
    let (_, rest) = readme.split_once(&format!("$ {command}\n")).unwrap_or_else(|| panic!("no `{command}`"));
    let (block, _) = rest.split_once("```").expect("the block ends");
    block.split("$ ").next().unwrap_or_default().to_owned()
}

/// `tollgate` with the shipped file, changed by `change`, in a directory of its own. The output and the exit status.
fn tollgate(arguments: &[&str], file: &str, change: impl FnOnce(String) -> String) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join(file), change(text("gateway.toml"))).expect("it can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    (String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(), output.status.code())
}

#[test]
fn the_explanation_in_the_readme_is_what_is_printed() {
    let (said, status) =
        tollgate(&["explain", "GET", "http://localhost:8080/search?q=x"], "gateway.toml", |file| file);
    assert_eq!(said, shown("tollgate explain GET 'http://localhost:8080/search?q=x'"));
    assert_eq!(status, Some(0));
}

#[test]
fn the_summary_in_the_readme_is_how_the_real_one_begins() {
    let (said, status) = tollgate(&["check"], "gateway.toml", |file| file);
    let block = shown("tollgate check");
    let beginning = block.strip_suffix("…\n").expect("the rest is left out");
    assert!(said.starts_with(beginning), "{said}");
    assert_eq!(status, Some(0));
}

/// The faults are made in the shipped file as README shows the lines.
#[test]
fn the_faults_in_the_readme_are_what_is_printed() {
    let block = shown("tollgate check -c broken.toml");
    let broken = |file: String| {
        let mut lines: Vec<_> = file.lines().map(str::to_owned).collect();
        for (number, line) in block.lines().filter_map(|line| line.split_once(" | ")) {
            if let Ok(number) = number.parse::<usize>() {
                line.clone_into(&mut lines[number - 1]);
            }
        }
        lines.join("\n") + "\n"
    };
    let (said, status) = tollgate(&["check", "-c", "broken.toml"], "broken.toml", broken);
    assert_eq!(said, block);
    assert_eq!(status, Some(2));
}

/// What differs from run to run is written alike.
fn steady(text: &str) -> String {
    let steady = |line: &str| match line.split_once(": ") {
        Some((name @ ("date" | "x-request-id" | "cdn-loop"), value)) => {
            format!("{name}: {} bytes", value.len())
        }
        _ => line.to_owned(),
    };
    text.lines().map(steady).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_answers_in_the_readme_are_those_of_the_shipped_file() {
    let file = text("gateway.toml")
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:9900", "127.0.0.1:0");
    let gateway = Gateway::start(&file);
    let curl = || {
        let request =
            "GET / HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";
        let answer = Client::connect(gateway.addr()).exchange(request);
        (
            answer.status,
            steady(&(answer.head.replace("\r\n", "\n").trim_end().to_owned() + "\n\n" + &answer.text())),
        )
    };
    let readme = text("README.md");
    let blocks: Vec<_> = readme.split("$ curl -i localhost:8080/\n").skip(1).collect();
    let shown = |place: usize| steady(blocks[place].split("```").next().unwrap_or_default().trim_end());
    let (status, first) = curl();
    assert_eq!((status, first.trim_end()), (200, shown(0).as_str()));
    let refused = (0..15).map(|_| curl()).find(|(status, _)| *status == 429).expect("ten are the allowance");
    assert_eq!(refused.1.trim_end(), shown(1));
}

#[test]
fn the_version_in_the_api_is_that_of_the_program() {
    let page = text("docs/api.md");
    let (_, rest) = page.split_once("## Status\n\n```json\n").expect("the status is shown");
    let shown: Value = serde_json::from_str(rest.split("```").next().unwrap_or_default()).expect("JSON");
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[admin]\nlisten = \"127.0.0.1:0\""));
    let told = api(&gateway, "status");
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&shown), names(&told));
}

/// With an upstream and certificates, the example of the guide is good, without a warning.
#[test]
fn the_guides_redirect_to_https_works() {
    let guide = text("docs/guide.md");
    let (_, section) = guide.split_once("\n## To https\n").expect("the section is there");
    let example =
        section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let authority = Authority::new();
    authority.certify("example.com", &["example.com"]);
    let path = |file: &str| authority.path(file).display().to_string();
    let file = example
        .replace("\"example.com.pem\"", &format!("\"{}\"", path("example.com.pem")))
        .replace("\"example.com.key\"", &format!("\"{}\"", path("example.com.key")))
        .replace("0.0.0.0:80\"", "127.0.0.1:0\"")
        .replace("0.0.0.0:443\"", "127.0.0.1:0\"");
    let file = format!("{file}\n[upstreams]\napi = \"http://127.0.0.1:9\"\n");
    let (said, status) = tollgate(&["check"], "gateway.toml", |_| file.clone());
    assert_eq!((status, said.contains("warning")), (Some(0), false), "{said}");
    let gateway = Gateway::start(&file);
    let answer = crate::harness::send(
        gateway.addr(),
        "GET /a?b HTTP/1.1\r\nhost: example.com:8080\r\nconnection: close\r\n\r\n",
    );
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://example.com/a?b")));
}
