//! The new process's side of the hand-over of counters. Until it has them it blocks: nothing else runs yet.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::ask::{Predecessor, connect};
use super::{
    COUNTERS, CountersHello, FREEZE, FREEZE_WITH_USAGE, HandedLists, LISTS, SOCKETS, counters_name,
    is_trusted, names,
};
use crate::clock::Clock;
use crate::limit::units::Timestamp;
use crate::shared::Shared;
use crate::store::Store;
use crate::store::hand_over::{PlacesOfKey, PredecessorCalls};
use crate::store::snapshot::{KnownLists, RestoredCounters, Snapshot};
use crate::time_zones;

/// How long the counters may take, once they are asked for.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(15);

/// Counters that the running process hands over.
#[derive(Debug)]
pub(in crate::serve) struct OfferedCounters {
    stream: UnixStream,
    hello: CountersHello,
}

/// A process that has handed its counters over, and asks for decisions until it ends.
#[derive(Debug)]
pub(in crate::serve) struct Asking {
    stream: UnixStream,
    places: Vec<PlacesOfKey>,
}

impl Predecessor {
    /// Its counters, if it hands them over: a process of an older version does not, nor one whose counters are shared.
    pub(in crate::serve) fn counters(&self) -> Option<OfferedCounters> {
        let (stream, hello) = self.ask_for(COUNTERS)?;
        Some(OfferedCounters { stream, hello })
    }

    /// The bans and overrides that it knows, and the clock they count by, here: of a process whose counters are shared, and
    /// not of an older version.
    pub(in crate::serve) fn lists(&self) -> Option<(Clock, KnownLists)> {
        let (_, HandedLists { clock, lists }) = self.ask_for(LISTS)?;
        Some((clock.resume(), lists))
    }

    /// Its answer to these first bytes.
    fn ask_for<T: DeserializeOwned>(&self, what: &[u8; 4]) -> Option<(UnixStream, T)> {
        let listed = std::fs::read_to_string(SOCKETS).unwrap_or_default();
        let names = names(counters_name(self.process), &listed);
        names.iter().find_map(|name| self.ask_at(name, what).ok())
    }

    fn ask_at<T: DeserializeOwned>(&self, name: &str, what: &[u8; 4]) -> io::Result<(UnixStream, T)> {
        let mut stream = connect(name)?;
        let peer = socket_peercred(&stream)?;
        let process = peer.pid.as_raw_nonzero().get();
        // Another user may have taken the name.
        if process != self.process || !is_trusted(peer.uid.as_raw(), process) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.write_all(what)?;
        let answer = read_with_length(&mut stream)?;
        Ok((stream, answer))
    }
}

impl OfferedCounters {
    /// The clock that the counters count by, here, whose wall clock goes on as theirs.
    pub(in crate::serve) fn resume_clock(&self) -> Clock {
        self.hello.clock.resume()
    }

    /// The secret that their keys are named by.
    pub(in crate::serve) fn secret(&self) -> [u8; 16] {
        self.hello.secret
    }

    /// Takes the counters into an empty store. From now on the running process asks this one.
    ///
    /// # Errors
    ///
    /// The store is of another size, or the process has not handed them over: it decides as before.
    pub(in crate::serve) fn take(
        mut self,
        store: &Store,
        now: impl FnOnce() -> Timestamp,
    ) -> io::Result<(RestoredCounters, Asking)> {
        if store.sets() != self.hello.sets {
            return Err(io::Error::other("`max_keys` in [store] has changed"));
        }
        self.stream.set_read_timeout(Some(COUNTERS_TIMEOUT))?;
        self.stream.write_all(&[if self.hello.usage { FREEZE_WITH_USAGE } else { FREEZE }])?;
        let state = read_bytes(&mut self.stream)?;
        let places = read_with_length(&mut self.stream)?;
        let snapshot = Snapshot::decode(state).map_err(io::Error::other)?;
        let restored = snapshot.restore(store, now(), time_zones::named).map_err(io::Error::other)?;
        Ok((restored, Asking { stream: self.stream, places }))
    }
}

impl Asking {
    /// Starts to answer the process: a task that ends when the process ends. Needs a local runtime around it.
    pub(in crate::serve) fn answer(self, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(self.stream)?;
        let calls =
            PredecessorCalls::new(shared.store.open_memory(), Arc::clone(shared.store.usage()), &self.places);
        let clock = Arc::clone(shared);
        let run = calls.run(stream, move || clock.clock.now());
        Ok(tokio::task::spawn_local(async move {
            if let Err(error) = run.await {
                tracing::warn!(%error, "the process before this one decides by itself until it ends");
            }
        }))
    }

    /// The number of places that its requests in flight hold.
    pub(in crate::serve) fn places(&self) -> u64 {
        self.places.iter().map(|key| u64::from(key.places)).sum()
    }
}

pub(super) fn read_with_length<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    Ok(serde_json::from_slice(&read_bytes(stream)?)?)
}

fn read_bytes(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut bytes = Vec::new();
    stream.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
