//! A Unix socket in front of a backend: what a server on the same machine listens on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

/// A relay that listens on a Unix socket. The socket and its directory are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct UnixRelay {
    directory: TempDir,
    target: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl UnixRelay {
    /// A relay to `target`.
    pub(crate) fn start(target: SocketAddr) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let relay = Self { directory, target, stopped: Arc::default() };
        relay.resume();
        relay
    }

    /// The path of the socket.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("app.sock")
    }

    /// `unix:PATH`.
    pub(crate) fn url(&self) -> String {
        format!("unix:{}", self.path().display())
    }

    /// Removes the socket. Connections stay open until either side closes them.
    pub(crate) fn remove(&self) {
        std::fs::remove_file(self.path()).expect("the socket was there");
    }

    /// Listens at the path, where nothing is.
    pub(crate) fn resume(&self) {
        let listener = UnixListener::bind(self.path()).expect("the path is free");
        let (target, stopped) = (self.target, Arc::clone(&self.stopped));
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), false) = (near, stopped.load(Ordering::SeqCst)) else { return };
                let Ok(far) = TcpStream::connect(target) else { continue };
                relay(near, far);
            }
        });
    }
}

impl Drop for UnixRelay {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(self.path()));
    }
}

fn relay(near: UnixStream, far: TcpStream) {
    let (near_back, far_back) = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
    std::thread::spawn(move || {
        pass(&near, &far);
        far.shutdown(Shutdown::Write).ok();
    });
    std::thread::spawn(move || {
        pass(&far_back, &near_back);
        near_back.shutdown(Shutdown::Both).ok();
    });
}

fn pass(mut from: impl Read, mut to: impl Write) {
    std::io::copy(&mut from, &mut to).ok();
}
