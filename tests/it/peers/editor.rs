//! What editors make of the JSON Schema: the engine of their TOML extensions checks files, and its language server is
//! spoken to as an editor speaks to it (`tests/editor/language_server.py`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::page_run::follow_page;
use crate::harness::pages::root;
use crate::harness::{binary, tools};

/// A folder with the schema, as `tollgate schema` prints it.
fn folder_with_schema() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let printed = Command::new(binary()).arg("schema").output().expect("it starts");
    assert!(printed.status.success());
    fs::write(folder.path().join("gateway.schema.json"), printed.stdout).expect("it can be written");
    folder
}

/// What `taplo check` says of a file, and whether it is good.
fn check(folder: &Path, files: &[&Path]) -> (bool, String) {
    let schema = format!("file://{}", folder.join("gateway.schema.json").display());
    let output = tools::editor("taplo")
        .args(["--colors", "never", "check", "--no-auto-config", "--schema", &schema])
        .args(files)
        .current_dir(folder)
        .output()
        .expect("it starts");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// `taplo` does not read a byte order mark.
#[test]
fn taplo_finds_no_fault_in_files_that_load() {
    let folder = folder_with_schema();
    let valid = fs::read_dir(root().join("tests/config/valid")).expect("valid files").flatten();
    let valid =
        valid.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "toml"));
    let shipped = ["gateway.toml", "packaging/gateway.toml", "docs/examples/routes.toml"];
    let files: Vec<_> = valid
        .filter(|path| !path.ends_with("byte_order_mark_and_crlf.toml"))
        .chain(shipped.map(|path| root().join(path)))
        .collect();
    let paths: Vec<_> = files.iter().map(|path| path.as_path()).collect();
    assert!(paths.len() > 30, "{paths:?}");
    let (good, told) = check(folder.path(), &paths);
    assert!(good && !told.contains("error"), "{told}");
    assert!(told.contains(&format!("total={}", paths.len())), "{told}");
}

#[test]
fn taplo_finds_unknown_keys_and_wrong_types() {
    let folder = folder_with_schema();
    let file = folder.path().join("gateway.toml");
    let limit = |line: &str| {
        format!(
            "[upstreams]\na = \"http://127.0.0.1:9001\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\n\
             limits = [\"x\"]\n[limits.x]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\n{line}\n"
        )
    };
    fs::write(&file, limit("burst = 50")).expect("it can be written");
    let (good, told) = check(folder.path(), &[&file]);
    assert!(good, "{told}");
    for (line, words) in [
        ("brust = 50", "'brust' was unexpected"),
        ("burst = [50]", "[50] is not valid"),
        ("burst = 0", "0 is not valid"),
        ("mode = \"dry-run\"", "\"dry-run\" is not valid"),
        ("ban = { after = 1 }", "\"within\" is a required property"),
        ("exempt = [\"everyone\"]", "\"everyone\" does not match"),
        ("[limits.y]\nalgorithm = \"gcra\"", "\"key\" is a required property"),
        ("[server]\nlisten = 8080", "8080 is not of type"),
        ("[sever]\nlisten = [\"127.0.0.1:8080\"]", "'sever' was unexpected"),
    ] {
        fs::write(&file, limit(line)).expect("it can be written");
        let (good, told) = check(folder.path(), &[&file]);
        assert!(!good && told.contains(words), "{line}\n{told}");
    }
}

/// What the language server says of `text` with a fault, and what it answers to the questions.
fn ask(text: &str, questions: &Value) -> (Vec<Value>, Vec<Value>) {
    let folder = folder_with_schema();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, text).expect("it can be written");
    let mut editor = tools::python(&[])
        .arg(root().join("tests/editor/language_server.py"))
        .arg(tools::editor("olpat").get_program())
        .args(["lsp", "--no-auto-config", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let asked = json!({ "file": file, "text": text, "questions": questions });
    let mut input = editor.stdin.take().expect("a pipe");
    input.write_all(asked.to_string().as_bytes()).expect("the editor reads");
    drop(input);
    let output = editor.wait_with_output().expect("the editor ends");
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |name: &str| told[name].as_array().cloned().unwrap_or_default();
    (list("faults"), list("answers"))
}

/// The first line of the file leads to the schema.
#[test]
fn the_language_server_completes_keys_and_values_and_describes_them() {
    let text = "#:schema gateway.schema.json\n\n[limits.x]\nburst = 50\n\n[limits.y]\nalgorithm = \"\"\n";
    let (faults, answers) = ask(text, &json!([["hover", 3, 2], ["completion", 4, 0], ["completion", 6, 13]]));
    assert!(faults.iter().any(|fault| fault == "\"key\" is a required property"), "{faults:?}");
    let described = answers[0]["contents"]["value"].as_str().expect("a description");
    assert!(described.contains("units at once"), "{described}");
    let labels = |answer: &Value| -> BTreeSet<String> {
        let items = answer.as_array().expect("a list").iter();
        items
            .filter_map(|item| item["label"].as_str())
            .map(|label| label.trim_matches('"').to_owned())
            .collect()
    };
    let keys = labels(&answers[1]);
    for key in ["algorithm", "key", "rate", "mode", "ban", "exempt", "max"] {
        assert!(keys.contains(key), "{key} is not offered: {keys:?}");
    }
    assert!(!keys.contains("burst") && !keys.contains("upstream"), "{keys:?}");
    let ban = answers[1].as_array().expect("a list").iter().find(|item| item["label"] == "ban").expect("ban");
    let described = ban["documentation"]["value"].as_str().expect("a description");
    assert!(described.contains("too many refusals"), "{described}");
    let values = labels(&answers[2]);
    let algorithms =
        ["token-bucket", "gcra", "leaky-bucket", "fixed-window", "sliding-window", "sliding-log"];
    for value in algorithms.into_iter().chain(["concurrency"]) {
        assert!(values.contains(value), "{value} is not offered: {values:?}");
    }
}

#[test]
fn the_recipe() {
    follow_page("docs/recipes/editor.md", |page| {
        let taplo = tools::editor("taplo");
        let programs = Path::new(taplo.get_program()).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        page.set("PATH", format!("{}:{programs}:{path}", page.path("bin").display()));
        page.sessions()
    });
}
