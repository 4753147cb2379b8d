//! `benches/load.sh`, which `make load` runs: the shipped gateway or an address, and what is installed of wrk and oha.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::pages::root;
use crate::harness::{Backend, Gateway, binary, everything_to};

/// Programs that the script and the stand-ins call.
const NEEDED: [&str; 14] = [
    "awk", "bash", "cat", "curl", "date", "dirname", "env", "mktemp", "nproc", "rm", "sed", "seq", "sleep",
    "sort",
];

/// Runs the script with these programs beside those that it needs. A stand-in of a load generator sends 15 requests to
/// its last argument, at once, and prints how many had which status.
fn load(generators: &[&str], url: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name);
    for name in NEEDED {
        let places = ["/bin", "/usr/bin"].map(|place| Path::new(place).join(name));
        let place = places.iter().find(|place| place.exists()).unwrap_or_else(|| panic!("{name} is missing"));
        symlink(place, at(name)).expect("a link");
    }
    for name in generators {
        let stand_in = "#!/usr/bin/env bash\n\
            echo \"${0##*/}\" \"${@:1:$#-1}\"\n\
            curl -s -o /dev/null -w '%{http_code}\\n' \"${!#}?[1-15]\" > \"$0.statuses\"\n\
            sort \"$0.statuses\" | awk '{ count[$1]++ } END { for (status in count) print status, count[status] }'\n";
        fs::write(at(name), stand_in).expect("written");
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    Command::new("bash")
        .arg(root().join("benches/load.sh"))
        .args(url)
        .env("PATH", folder.path())
        .env("TOLLGATE", binary())
        .env("SECONDS_EACH", "1")
        .output()
        .expect("there is a bash")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn load_of_the_shipped_gateway_shows_a_route_without_a_limit_and_one_over_it() {
    let output = load(&["wrk", "oha"], &[]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success() && stderr.is_empty(), "{stdout}{stderr}");
    let runs: Vec<_> = stdout.split("\n# ").skip(1).collect();
    assert_eq!(runs.len(), 4, "{stdout}");
    for (run, generator) in runs.iter().zip(["wrk", "oha", "wrk", "oha"]) {
        assert!(run.contains(&format!("\n$ {generator} ")), "{run}");
        assert!(run.contains("\nprocessors: the gateway "), "{run}");
    }
    assert!(runs[0].contains("/health\n") && runs[0].contains("\n200 15\n"), "{}", runs[0]);
    // The allowance of 10 is used up, but for a unit that came back meanwhile.
    assert!(runs[2].contains("\n429 ") && runs[3].contains("\n429 "), "{}{}", runs[2], runs[3]);
}

#[test]
fn load_goes_to_an_address_with_the_generator_that_is_there() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let output = load(&["oha"], &[&format!("http://{}/", gateway.addr())]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stderr.contains("wrk is missing") && stderr.contains("apt-get install wrk"), "{stderr}");
    assert!(stdout.contains("\n200 15\n") && stdout.contains("\nprocessors: oha "), "{stdout}");
}

#[test]
fn load_without_a_generator_says_how_to_install_both() {
    let output = load(&[], &[]);
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    for words in ["apt-get install wrk", "cargo install --locked oha", "neither wrk nor oha is installed"] {
        assert!(stderr.contains(words), "{stderr}");
    }
}
