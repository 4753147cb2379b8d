//! Passwords: `[auth]` with `type = "basic"`, through the real binary.

mod checks;
mod explain;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::{Backend, Gateway, everything_to};

/// `name:hash`, the hash by another tool's format: `$2y$`, as Apache's `htpasswd` writes it.
fn line(name: &str, password: &str, cost: u32) -> String {
    let hash = bcrypt::hash(password, cost).expect("a hash");
    format!("{name}:{}\n", hash.replace("$2b$", "$2y$"))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(users: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary directory"));
        folder.write(users);
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, users: &str) {
        std::fs::write(self.path().join("users.htpasswd"), users).expect("the file can be written");
    }

    /// `[auth.people]` with these further lines.
    fn auth(&self, rest: &str) -> String {
        let file = self.path().join("users.htpasswd");
        format!("[auth.people]\ntype = \"basic\"\nfile = \"{}\"\n{rest}\n", file.display())
    }

    fn gateway(&self, backend: &Backend, rest: &str) -> Gateway {
        Gateway::start(&everything_to(backend, &format!("auth = \"people\"\n{}", self.auth(rest))))
    }
}

fn basic(credential: impl AsRef<[u8]>) -> String {
    format!("authorization: Basic {}\r\n", STANDARD.encode(credential))
}
