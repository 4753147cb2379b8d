//! The files that a configuration consists of and names, with what tells whether one has changed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::wildcard;

/// The maximum size of a file that `gateway.toml` names; certificates have far less.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// The maximum size of a file with a table: consumers or networks.
pub(super) const MAX_TABLE_BYTES: u64 = 512 << 20;

/// A file that the configuration consists of or names, or a pattern of such files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its path.
    pub path: PathBuf,
    /// A hash of its content, or of the names that match the pattern; `None` if it cannot be read.
    pub hash: Option<[u8; 32]>,
    /// Its length and the time of its last change, if it is too large to be read at every look.
    stamp: Option<(u64, SystemTime)>,
    is_pattern: bool,
}

impl NamedFile {
    /// Reads a file of at most this many bytes.
    pub(super) fn read(path: PathBuf, max_bytes: u64) -> (Self, io::Result<Vec<u8>>) {
        let before = Self::stamped(&path);
        let bytes = read(&path, max_bytes);
        let named = match &bytes {
            Ok(bytes) => before.holding(bytes),
            Err(_) => before,
        };
        (named, bytes)
    }

    /// A file before its content is read, so that a change in between is noticed at the next look.
    pub(super) fn stamped(path: &Path) -> Self {
        Self { path: path.to_owned(), hash: None, stamp: stamp(path), is_pattern: false }
    }

    /// The same file with the content that was read.
    pub(super) fn holding(self, bytes: &[u8]) -> Self {
        Self { hash: Some(blake3::hash(bytes).into()), ..self }
    }

    /// A pattern with the files that match it.
    pub(super) fn pattern(pattern: &Path, found: &[PathBuf]) -> Self {
        let hash = Some(names(found));
        Self { path: pattern.to_owned(), hash, stamp: None, is_pattern: true }
    }

    /// The same file as it is now.
    pub fn again(&self) -> Self {
        if self.is_pattern {
            return Self {
                hash: wildcard::matches(&self.path).ok().map(|found| names(&found)),
                ..self.clone()
            };
        }
        let stamp = stamp(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return self.clone();
        }
        // Another kind of file may never end.
        let is_file = std::fs::metadata(&self.path).is_ok_and(|metadata| metadata.is_file());
        let bytes = if is_file { read(&self.path, MAX_TABLE_BYTES).ok() } else { None };
        let hash = bytes.map(|bytes| blake3::hash(&bytes).into());
        Self { path: self.path.clone(), hash, stamp, is_pattern: false }
    }
}

/// A hash of the names of files.
fn names(found: &[PathBuf]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for path in found {
        hasher.update(path.as_os_str().as_encoded_bytes()).update(&[0]);
    }
    hasher.finalize().into()
}

/// The length and the time of the last change of a file that is larger than [`MAX_BYTES`].
fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.len() > MAX_BYTES)?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// A larger file is an error: a part of it would mean something else.
pub(super) fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > max_bytes) {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", max_bytes >> 20),
        ));
    }
    Ok(bytes)
}
