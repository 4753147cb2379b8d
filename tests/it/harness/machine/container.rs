//! The image without a container engine: the root file system that `packaging/image-root` assembles, and processes in it
//! as an engine starts them: process 1 of a namespace, user 10001, no capability, a root that is read only.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::dockerfile::Dockerfile;
use crate::harness::documents::sources::read;
use crate::harness::{Gateway, binary, tools};

/// The rights that `chroot` needs to enter the root and to become the user, who has none of them.
const ENTER: &str = "--bounding-set=-all,+sys_chroot,+setuid,+setgid";

/// Mounts what an engine mounts, and becomes the gateway. `$0` is the root, `$2` the configuration.
const START: &str = r#"
    cp "$2" "$0/etc/tollgate/gateway.toml"
    mount --bind "$0" "$0"
    mount -t proc proc "$0/proc"
    mount -o remount,bind,ro "$0"
    setpriv=$(command -v setpriv) chroot=$(command -v chroot)
    PATH=$PATH_OF_IMAGE
    exec "$setpriv" $ENTER --no-new-privs "$chroot" --userspec=10001:10001 --groups= "$0" $COMMAND_OF_IMAGE
"#;

/// The root file system of the image.
#[derive(Debug)]
pub(crate) struct ImageRoot {
    directory: tempfile::TempDir,
    dockerfile: Dockerfile,
}

impl ImageRoot {
    /// Assembles it with the binary under test, stripped. `None`, which is printed, where `TOLLGATE_TEST_WITHOUT` names
    /// `namespaces`.
    #[track_caller]
    pub(crate) fn assemble() -> Option<Self> {
        tools::namespaces()?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stripped = directory.path().join("tollgate");
        let status = tools::needed("strip").arg("-o").arg(&stripped).arg(binary()).status();
        assert!(status.is_ok_and(|status| status.success()), "strip");
        let root = directory.path().join("root");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/image-root");
        let output = Command::new(script).arg(stripped).arg(&root).output().expect("the script starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { directory, dockerfile: Dockerfile::of_the_repository() })
    }

    /// Where the root is.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Adds text to a file of the root, which may be new: what an engine or an operator mounts there.
    pub(crate) fn append(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        let before = if path.exists() { read(&path) } else { String::new() };
        std::fs::write(path, before + text).expect("the file can be written");
    }

    /// Starts what the image starts, with this configuration and further environment variables.
    pub(crate) fn start(&self, toml: &str, environment: &[(&str, &str)]) -> Container {
        std::fs::create_dir_all(self.path().join("proc")).expect("the mount point can be made");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-euc", START]).arg(self.path());
        let words = [self.dockerfile.words("ENTRYPOINT"), self.dockerfile.words("CMD")].concat();
        self.set_environment(&mut command, environment);
        let tools = std::env::var_os("PATH").unwrap_or_default();
        let path = self.environment("PATH");
        command.env("PATH", tools).env("PATH_OF_IMAGE", path).env("ENTER", ENTER);
        command.env("COMMAND_OF_IMAGE", words.join(" ")).stdin(Stdio::null());
        Container::of(Gateway::start_by(toml, command))
    }

    /// Runs the health check of the image inside, where this gateway runs.
    pub(crate) fn health(&self, container: &Container, environment: &[(&str, &str)]) -> Output {
        let pid = container.pid().to_string();
        self.run_health(&["--mount", "--pid", "--root", "--target", &pid], environment)
    }

    /// Runs the health check of the image where no gateway runs.
    pub(crate) fn health_without_gateway(&self, environment: &[(&str, &str)]) -> Output {
        self.run_health(&[&format!("--root={}", self.path().display())], environment)
    }

    fn run_health(&self, place: &[&str], environment: &[(&str, &str)]) -> Output {
        let words = self.dockerfile.words("HEALTHCHECK");
        let mut command = tools::needed("nsenter");
        self.set_environment(&mut command, environment);
        command.args(["--setuid", "10001", "--setgid", "10001"]).args(place);
        command.arg(format!("/usr/bin/{}", words[0])).args(&words[1..]).output().expect("it starts")
    }

    /// The value of a variable that the Dockerfile sets.
    pub(crate) fn environment(&self, name: &str) -> String {
        let pairs = self.dockerfile.pairs("ENV");
        pairs.into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    fn set_environment(&self, command: &mut Command, more: &[(&str, &str)]) {
        command.env_clear().envs(self.dockerfile.pairs("ENV")).envs(more.iter().copied());
    }
}

/// A gateway in its namespaces, killed when dropped: the kernel does not kill it with its parent, since its user changed.
#[derive(Debug)]
pub(crate) struct Container {
    gateway: Gateway,
    first: Pid,
}

impl Container {
    /// The gateway is the child of the process that the harness has started.
    #[track_caller]
    fn of(gateway: Gateway) -> Self {
        let pid = gateway.pid();
        let children = read(Path::new(&format!("/proc/{pid}/task/{pid}/children")));
        let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
        let first = child.and_then(Pid::from_raw).unwrap_or_else(|| panic!("process {pid} has no child"));
        Self { gateway, first }
    }

    /// The process id of the gateway, outside of its namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.first.as_raw_nonzero().get()
    }

    /// Sends a signal, as an engine does.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.first, signal).expect("the process takes signals");
    }

    /// Waits for the end of the gateway.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        self.gateway.wait_for_exit()
    }
}

impl Deref for Container {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.gateway.alive() {
            kill_process(self.first, Signal::KILL).ok();
            self.gateway.wait_for_exit();
        }
    }
}
