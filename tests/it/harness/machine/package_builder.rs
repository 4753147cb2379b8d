//! Debian packages of the binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools;
use crate::harness::binary;

/// Makes packages of the binary under test.
pub(crate) struct PackageBuilder {
    pub(crate) directory: tempfile::TempDir,
}

impl PackageBuilder {
    /// Strips the binary, as a release does.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stripped = directory.path().join("tollgate");
        let sections = ["--remove-section=.comment", "--remove-section=.note"];
        let strip = tools::needed("strip").args(sections).arg("-o").arg(&stripped).arg(binary()).status();
        assert!(strip.is_ok_and(|status| status.success()));
        Self { directory }
    }

    /// The package of this version, made in a folder of this name.
    pub(crate) fn package(&self, version: &str, folder: &str, compressor: &str) -> PathBuf {
        let folder = self.directory.path().join(folder);
        std::fs::create_dir_all(&folder).expect("it can be made");
        std::fs::write(folder.join("THIRD-PARTY-LICENSES.txt"), "Terms.\n").expect("it can be written");
        tools::needed("dpkg-deb");
        tools::needed("readelf");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/deb");
        let mut command = Command::new(script);
        command.arg(self.directory.path().join("tollgate")).arg(&folder);
        command.env("TOLLGATE_VERSION", version).env("TOLLGATE_COMPRESSOR", compressor);
        command.env("DPKG_DEB_COMPRESSOR_LEVEL", "0");
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.join(format!("tollgate_{version}-1_amd64.deb"))
    }
}
