//! A directory with the files of a configuration.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate::config::{self, CheckedConfig, LoadedConfig, Report};

/// A complete configuration without a limit.
pub(crate) const SMALL: &str = "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\nname = \"main\"\npath = \"/main\"\nupstream = \"demo\"\n";

/// The files, below a temporary directory.
pub(crate) struct ConfigFolder(TempDir);

impl ConfigFolder {
    /// Writes files by path and content.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary directory"));
        files.iter().for_each(|(path, content)| folder.write(path, content));
        folder
    }

    /// Writes one file, and the directories above it.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("a directory");
        std::fs::write(path, content).expect("the file can be written");
    }

    /// The path of a file in it; with an empty name its own.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.0.path().to_owned() } else { self.0.path().join(path) }
    }

    /// Loads a file or directory in it.
    pub(crate) fn load(&self, path: &str) -> Result<LoadedConfig, Report> {
        config::load(&self.path(path))
    }

    /// Checks a file in it without the environment.
    pub(crate) fn check(&self, path: &str) -> CheckedConfig {
        config::check(&self.path(path), true)
    }

    /// The report of `gateway.toml`, with paths relative to the directory.
    pub(crate) fn report(&self, path: &str) -> String {
        let report = self.load(path).map_or_else(|report| report, |loaded| loaded.warnings);
        self.relative(&report.to_string())
    }

    /// A text without the path of the directory.
    pub(crate) fn relative(&self, text: &str) -> String {
        let own = |path: &Path| path.display().to_string();
        text.replace(&format!("{}/", own(self.0.path())), "").replace(&own(self.0.path()), "DIR")
    }
}

/// The names of a plan's routes, in order.
pub(crate) fn route_names(loaded: &LoadedConfig) -> Vec<String> {
    loaded.plan.routes.iter().map(|route| route.name.to_string()).collect()
}
