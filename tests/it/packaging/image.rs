//! The container image: its root file system runs without a container engine, and the Dockerfile agrees with it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::harness::container::ImageRoot;
use crate::harness::dockerfile::Dockerfile;
use crate::harness::sources::read;
use crate::harness::{
    Authority, Backend, Client, Next, binary, everything_to, free_address, free_address_of_all,
    refuses_connections,
};

/// What the image holds beside the libraries of a dynamic binary.
const FILES: [&str; 8] = [
    "etc/group",
    "etc/passwd",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/tollgate/gateway.toml",
    "tmp/",
    "usr/bin/tollgate",
    "usr/share/doc/tollgate/LICENSE-APACHE",
    "usr/share/doc/tollgate/LICENSE-MIT",
];

/// What it holds beside these for a binary that the loader starts.
const DYNAMIC: [&str; 3] =
    ["etc/nsswitch.conf", "usr/share/doc/libc6/copyright", "usr/share/doc/libgcc-s1/copyright"];

/// The libraries of such a binary: the loader, whose name depends on the processor, the C library, and perhaps its parts
/// (before glibc 2.34 they were separate).
const LIBRARIES: [&str; 7] =
    ["ld-linux", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1"];

/// The most that a released image may take.
const MAX_BYTES: u64 = 25_000_000;

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn manifest() -> toml::Table {
    read(&repository("Cargo.toml")).parse().expect("Cargo.toml is TOML")
}

/// The files and the empty directories below a folder, as paths relative to it.
fn entries(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        let listed: Vec<_> = std::fs::read_dir(&folder).expect("it can be listed").collect();
        if listed.is_empty() {
            found.push(folder.clone());
        }
        for entry in listed {
            let path = entry.expect("it can be listed").path();
            let is_folder = path.symlink_metadata().expect("it is there").is_dir();
            if is_folder { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// A library by its file name, anything else by its path; a directory ends in `/`.
fn shown(root: &Path, path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    let below = path.strip_prefix(root).expect("it lies below").display().to_string();
    match () {
        () if path.is_dir() => format!("{below}/"),
        () if name.starts_with("ld-linux") => "ld-linux".to_owned(),
        () if name.contains(".so") => name.to_owned(),
        () => below,
    }
}

#[test]
fn the_root_holds_the_gateway_and_what_it_needs() {
    let Some(image) = ImageRoot::assemble() else { return };
    let root = image.path();
    let entries = entries(&root);
    let found: BTreeSet<String> = entries.iter().map(|path| shown(&root, path)).collect();
    let is_library = |name: &String| LIBRARIES.contains(&name.as_str());
    let (libraries, files): (BTreeSet<_>, BTreeSet<_>) = found.into_iter().partition(is_library);
    let is_dynamic = !libraries.is_empty();
    assert!(
        !is_dynamic || libraries.contains("ld-linux") && libraries.contains("libc.so.6"),
        "{libraries:?}"
    );
    let expected = FILES.iter().chain(DYNAMIC.iter().filter(|_| is_dynamic));
    assert_eq!(files, expected.map(|name| (*name).to_owned()).collect());
    let mut bytes = 0;
    for path in entries {
        let metadata = path.symlink_metadata().expect("it is there");
        let mode = metadata.permissions().mode() & 0o7777;
        assert!(
            matches!(mode, 0o644 | 0o755) || path.ends_with("tmp") && mode == 0o1777,
            "{path:?} {mode:o}"
        );
        assert!(!metadata.is_symlink() && metadata.uid() == 0, "{path:?}");
        bytes += if path.is_dir() { 0 } else { metadata.len() };
    }
    if std::env::var_os("TOLLGATE_TEST_BINARY").is_some() {
        assert!(bytes <= MAX_BYTES, "the image has {bytes} bytes");
    }
}

#[test]
fn it_starts_serves_limits_and_is_healthy_with_the_configuration_of_the_image() {
    let Some(image) = ImageRoot::assemble() else { return };
    let (admin, all) = (free_address(), free_address_of_all());
    let clients = SocketAddr::from((Ipv4Addr::LOCALHOST, all.port()));
    let own = read(&image.path().join("etc/tollgate/gateway.toml"));
    assert_eq!(image.environment("TOLLGATE_CONFIG"), "/etc/tollgate/gateway.toml");
    let toml = own.replace("127.0.0.1:9900", &admin.to_string());
    assert_ne!(own, toml, "the admin listener of the image has another address");
    let port = all.to_string();
    let environment = [("TOLLGATE_LISTEN", port.as_str())];
    let down = image.health_without_gateway(&environment);
    assert_eq!(down.status.code(), Some(1), "{}", String::from_utf8_lossy(&down.stderr));

    let gateway = image.start(&toml, &environment);
    assert_eq!(gateway.addr().to_string(), port);
    let file: toml::Table = own.parse().expect("TOML");
    let burst =
        file["limits"]["per-client"]["burst"].as_integer().and_then(|burst| usize::try_from(burst).ok());
    let burst = burst.expect("a number");
    let statuses: Vec<u16> = (0..2 * burst).map(|_| crate::harness::get(clients, "/").status).collect();
    assert!(statuses[..burst].iter().all(|status| *status == 200), "{statuses:?}");
    assert!(statuses[burst..].contains(&429), "{statuses:?}");
    let up = image.health(&gateway, &environment);
    assert!(up.status.success() && up.stderr.is_empty(), "{}", String::from_utf8_lossy(&up.stderr));

    let pid = gateway.pid();
    let status = read(Path::new(&format!("/proc/{pid}/status")));
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (value("Uid"), value("Gid")),
        ("10001 10001 10001 10001".into(), "10001 10001 10001 10001".into())
    );
    assert_eq!(value("Groups"), "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!((value("NoNewPrivs").as_str(), value("NSpid").ends_with(" 1")), ("1", true));
    let mounts = read(Path::new(&format!("/proc/{pid}/mountinfo")));
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).expect("a root");
    assert!(root.split(' ').nth(5).is_some_and(|options| options.starts_with("ro")), "{root}");
}

#[test]
fn the_health_check_needs_no_admin_listener() {
    let Some(image) = ImageRoot::assemble() else { return };
    let (backend, address) = (Backend::ok(), free_address());
    let toml = everything_to(&backend, &format!("[server]\nlisten = [\"{address}\"]\n"));
    let gateway = image.start(&toml, &[]);
    let up = image.health(&gateway, &[]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    drop(gateway);
    image.append("etc/tollgate/gateway.toml", "");
    let down = image.health_without_gateway(&[]);
    let stderr = String::from_utf8_lossy(&down.stderr);
    assert!(down.status.code() == Some(1) && stderr.contains("no gateway listens on"), "{stderr}");
}

#[test]
fn it_reaches_https_backends_by_name_and_checks_their_certificates() {
    let Some(image) = ImageRoot::assemble() else { return };
    let (known, unknown) = (Authority::new(), Authority::new());
    let backends = [&known, &unknown].map(|authority| {
        authority.certify("server", &["backend.example"]);
        Backend::ok_tls(authority.backend("server"))
    });
    image.append("etc/ssl/certs/ca-certificates.crt", &format!("\n{}", read(&known.path("ca.pem"))));
    image.append("etc/hosts", "127.0.0.1 backend.example\n");
    let [good, bad] = backends.each_ref().map(|backend| backend.addr().port());
    let toml = format!(
        "[upstreams]\ngood = \"https://backend.example:{good}\"\nbad = \"https://backend.example:{bad}\"\n\
         [[routes]]\nname = \"good\"\npath = \"/good\"\nupstream = \"good\"\n\
         [[routes]]\nname = \"bad\"\npath = \"/bad\"\nupstream = \"bad\"\n"
    );
    let gateway = image.start(&toml, &[]);
    assert_eq!(gateway.get("/good").expect(200).text(), "ok");
    gateway.get("/bad").expect(502);
    assert_eq!((backends[0].count(), backends[1].count()), (1, 0));
    gateway.wait_for_log("invalid peer certificate");
}

#[test]
fn as_process_1_it_drains_on_the_signal_of_the_image() {
    let Some(image) = ImageRoot::assemble() else { return };
    assert_eq!(Dockerfile::of_the_repository().only("STOPSIGNAL"), "SIGTERM");
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        Next::KeepAlive
    });
    let mut gateway = image.start(&everything_to(&backend, ""), &[]);
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    gateway.signal(Signal::TERM);
    refuses_connections(gateway.addr());
    backend.open_gate();
    assert_eq!(client.read().expect(200).text(), "done");
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
}

#[test]
fn the_dockerfile_agrees_with_the_root_and_the_manifest() {
    let file = Dockerfile::of_the_repository();
    let package = manifest()["package"].clone();
    let of_package = |key: &str| package[key].as_str().expect("text").to_owned();

    let rust = format!("rust:{}-slim-bookworm AS build", of_package("rust-version"));
    assert_eq!(file.all("FROM"), [rust.as_str(), "scratch"], "each base has a version");
    assert_eq!(file.all("COPY"), [". .", "--from=build /image/ /"]);
    let build = file.all("RUN").last().copied().expect("a build");
    let root = "strip -o /tollgate target/release/tollgate && packaging/image-root /tollgate /image";
    assert!(
        build.contains("cargo build --release --locked --bin tollgate") && build.ends_with(root),
        "{build}"
    );

    let labels = file.pairs("LABEL");
    let label = |name: &str| {
        let full = format!("org.opencontainers.image.{name}");
        labels.iter().find(|(known, _)| *known == full).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!((label("title"), label("licenses")), (of_package("name"), of_package("license")));
    assert_eq!((label("version").as_str(), label("revision").as_str()), ("${VERSION}", "${REVISION}"));
    assert_eq!(file.all("ARG")[0], format!("VERSION={}", of_package("version")));
    assert!(!label("description").is_empty());
    // Addresses are the owner's: `packaging::owner`.
    assert_eq!((label("source"), label("documentation")), (String::new(), String::new()));

    let environment = file.pairs("ENV");
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name).expect(name).1.as_str();
    assert_eq!(variable("TOLLGATE_LISTEN"), format!("0.0.0.0:{}", file.only("EXPOSE")));
    assert_eq!((variable("PATH"), file.only("USER")), ("/usr/bin", "10001:10001"));
    assert_eq!(file.words("HEALTHCHECK"), ["tollgate", "health"]);
    assert_eq!(
        (file.words("ENTRYPOINT").join(" "), file.words("CMD").join(" ")),
        ("tollgate".into(), "run".into())
    );
}

/// Copies what `.dockerignore` lets in, and runs what the build stage runs, less the compiler.
#[test]
fn the_build_context_holds_what_the_build_reads() {
    let context = tempfile::tempdir().expect("a temporary directory");
    let ignore = read(&repository(".dockerignore"));
    let mut lines = ignore.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"), "what is not named stays out");
    for line in lines {
        let path = line.strip_prefix('!').expect("only exceptions follow");
        let (folder, pattern) = path.rsplit_once('/').unwrap_or(("", path));
        std::fs::create_dir_all(context.path().join(folder)).expect("a folder");
        let copied = Command::new("sh")
            .args(["-c", "cp -r $1 \"$0\"", &context.path().join(folder).display().to_string()])
            .arg(Path::new(folder).join(pattern))
            .current_dir(repository(""))
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "{line} names nothing");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--locked", "--no-deps", "--format-version=1"]);
    let output = cargo.current_dir(&context).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut script = Command::new("packaging/image-root");
    let output =
        script.arg(binary()).arg("image").current_dir(&context).output().expect("the script is let in");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let certificate = context.path().join("image/etc/ssl/certs/ca-certificates.crt");
    assert!(certificate.exists() && context.path().join("image/usr/bin/tollgate").exists());
}
