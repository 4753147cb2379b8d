//! Snapshots: the counters of a process in a file, so that they outlive it.
//!
//! ```text
//! "tollgate counters" │ version (u16) │ length of the head (u32) │ head (JSON)
//! counter: kind (u8) │ set (u64) │ tag (u64) │ params (u32) │ state: time and use (u64 each), or a number of words (u32) and words
//! …
//! end (u8) │ BLAKE3 of all before it (32)
//! ```
//! Numbers are little-endian. Nothing of a file is used before its hash is verified, so that a file is whole or not there.
//! It holds the secret of the keys, and texts of banned keys: only its owner may read it.

mod lists;
mod params;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bans::SavedBan;
use super::charge_records::SavedCharge;
use super::memory::{MemoryStore, StoredCounter, StoredPolicy, StoredState};
use super::overrides::{KeyOfLimit, KeyOverride};
use super::usage::SavedUsage;
use super::{ParamsId, Store};
use crate::limit::Packed;
use crate::limit::calendar::CalendarWindows;
use crate::limit::units::Timestamp;
use crate::limit::wall_clock::{self, WallClock, WallTime};
pub use lists::KnownLists;
pub(in crate::store) use params::AlgorithmParams;

const MAGIC: &[u8; 17] = b"tollgate counters";
/// The version of the format, and of the meaning of states.
const VERSION: u16 = 1;
/// Bytes of the hash.
const HASH: usize = blake3::OUT_LEN;
/// How much later than now a file may be from: as if no time had passed since.
const MAX_AHEAD: u64 = 60 * 1_000_000;

/// How many counters are written without a rest: some 100 µs.
pub const AT_ONCE: u64 = 1024;

/// The kinds of records behind the head.
const END: u8 = 0;
const PACKED: u8 = 1;
const LOG: u8 = 2;

/// When counters are written.
#[derive(Clone, Debug)]
pub struct SnapshotTime {
    /// By the clock that counters count by.
    pub at: Timestamp,
    /// Where the wall clock stands beside it.
    pub wall_clock: WallClock,
    /// Nothing is recorded afterwards: the process ends, and all its requests have ended.
    pub is_last: bool,
}

/// The first part of a file.
#[derive(Debug, Serialize, Deserialize)]
struct SnapshotHead {
    at: u64,
    /// Wall time less `at`, and where it was stepped: the time of each step, and the difference until then.
    wall_offset: i64,
    wall_steps: Vec<(u64, i64)>,
    secret: [u8; 16],
    /// The number of sets of the table.
    sets: u64,
    policies: Vec<SavedPolicy>,
    bans: Vec<SavedBan>,
    charges: Vec<SavedCharge>,
    overrides: Vec<(KeyOfLimit, KeyOverride)>,
    /// A file of a version before has none.
    #[serde(default)]
    usage: SavedUsage,
    /// Nothing was recorded after it.
    #[serde(default)]
    is_last: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedPolicy {
    params: u32,
    identity: u128,
    algorithm: AlgorithmParams,
}

/// A file whose hash is right.
#[derive(Debug)]
pub struct Snapshot {
    head: SnapshotHead,
    /// The counters.
    records: Vec<u8>,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is cut, or a byte of it has changed, or it is another file.
    #[error("it is damaged")]
    Damaged,
    /// Another version of tollgate has written it.
    #[error("it has version {0} of the format, and not {VERSION}")]
    Version(u16),
    /// The wall clock is earlier than the file by more than a minute.
    #[error("it is from the future: the clock of this machine is behind it")]
    Future,
    /// `max_keys` was another one.
    #[error("it was written with another `max_keys` in [store]")]
    Capacity,
}

/// What became of the counters of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredCounters {
    /// Those that count on.
    pub counters: u64,
    /// Those that begin anew: of calendars that the file no longer has, or without room.
    pub dropped: u64,
    /// The bans that go on.
    pub bans: u64,
}

/// Writes the counters of a store to this file, in place of an earlier one. Until the new file is whole and on the disk,
/// the earlier one stays. `rest` is called after every [`AT_ONCE`] counters, so that the processor is left to others.
///
/// # Errors
///
/// The file system's.
pub fn write(
    path: &Path,
    store: &Store,
    secret: [u8; 16],
    now: &SnapshotTime,
    rest: impl FnMut(),
) -> io::Result<u64> {
    let next = beside(path);
    let written = write_to(&next, store, secret, now, rest).and_then(|counters| {
        fs::rename(&next, path)?;
        // The name is on the disk only after its folder is.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(counters)
    });
    written.inspect_err(|_| _ = fs::remove_file(&next))
}

/// The bytes of such a file, for a process that takes the counters over.
///
/// # Errors
///
/// There are too many counters for the format.
pub fn to_bytes(store: &Store, secret: [u8; 16], now: &SnapshotTime) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(&mut bytes, store, secret, now, || {})?;
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    Ok(bytes)
}

/// The file that becomes the one at `path` once it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write_to(
    path: &Path,
    store: &Store,
    secret: [u8; 16],
    now: &SnapshotTime,
    rest: impl FnMut(),
) -> io::Result<u64> {
    // One that a crash has left. Nothing of it is kept, its permissions neither.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut output =
        HashedWriter { output: BufWriter::with_capacity(1 << 18, file), hasher: blake3::Hasher::new() };
    let counters = encode(&mut output, store, secret, now, rest)?;
    let HashedWriter { mut output, hasher } = output;
    output.write_all(hasher.finalize().as_bytes())?;
    output.into_inner()?.sync_all()?;
    Ok(counters)
}

/// Writes all but the hash. Returns the number of counters.
fn encode(
    output: &mut impl Write,
    store: &Store,
    secret: [u8; 16],
    now: &SnapshotTime,
    mut rest: impl FnMut(),
) -> io::Result<u64> {
    let memory = &store.memory;
    let KnownLists { bans, overrides } = KnownLists::of(store, now.at, now.wall_clock.wall_time(now.at));
    let policies =
        memory.stored_policies().into_iter().map(|StoredPolicy { params, identity, algorithm }| {
            SavedPolicy { params: params.0, identity, algorithm: AlgorithmParams::of(&algorithm) }
        });
    let head = SnapshotHead {
        at: now.at.0,
        wall_offset: now.wall_clock.offset(),
        wall_steps: now.wall_clock.steps().map(|(at, before)| (at.0, before)).collect(),
        secret,
        sets: memory.sets(),
        policies: policies.collect(),
        bans,
        charges: store.charge_records.saved(now.at),
        overrides,
        usage: store.usage.saved(),
        is_last: now.is_last,
    };
    let head = serde_json::to_vec(&head)?;
    output.write_all(MAGIC)?;
    output.write_all(&VERSION.to_le_bytes())?;
    output.write_all(&length(&head)?.to_le_bytes())?;
    output.write_all(&head)?;
    let mut counters = 0;
    memory.each_counter(|StoredCounter { set, tag, params, state }| {
        counters += 1;
        if counters % AT_ONCE == 0 {
            rest();
        }
        let kind = if matches!(state, StoredState::Log(_)) { LOG } else { PACKED };
        let mut record = Vec::with_capacity(37);
        record.push(kind);
        record.extend_from_slice(&set.to_le_bytes());
        record.extend_from_slice(&tag.to_le_bytes());
        record.extend_from_slice(&params.0.to_le_bytes());
        match state {
            StoredState::Packed(Packed { at, used }) => {
                record.extend_from_slice(&at.0.to_le_bytes());
                record.extend_from_slice(&used.to_le_bytes());
            }
            StoredState::Log(words) => {
                record.extend_from_slice(&length(&words)?.to_le_bytes());
                record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        output.write_all(&record)
    })?;
    output.write_all(&[END])?;
    Ok(counters)
}

fn length<T>(items: &[T]) -> io::Result<u32> {
    u32::try_from(items.len()).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// Hashes what is written.
struct HashedWriter {
    output: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl Write for HashedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl Snapshot {
    /// Reads a file. `None`: there is none.
    ///
    /// # Errors
    ///
    /// See [`SnapshotFault`].
    pub fn read(path: &Path) -> Result<Option<Self>, SnapshotFault> {
        let mut bytes = Vec::new();
        match File::open(path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Self::decode(bytes).map(Some)
    }

    /// The snapshot in these bytes: see [`to_bytes`].
    ///
    /// # Errors
    ///
    /// See [`SnapshotFault`].
    pub fn decode(mut bytes: Vec<u8>) -> Result<Self, SnapshotFault> {
        let damaged = SnapshotFault::Damaged;
        let Some(end) = bytes.len().checked_sub(HASH) else { return Err(damaged) };
        let hash = bytes.split_off(end);
        if blake3::hash(&bytes) != *hash {
            return Err(damaged);
        }
        let mut rest = &*bytes;
        if take::<17>(&mut rest).as_ref() != Some(MAGIC) {
            return Err(damaged);
        }
        match take(&mut rest).map(u16::from_le_bytes) {
            Some(VERSION) => {}
            Some(other) => return Err(SnapshotFault::Version(other)),
            None => return Err(damaged),
        }
        let head = take_text(&mut rest).ok_or(SnapshotFault::Damaged)?;
        let head = serde_json::from_slice(head).map_err(|_| SnapshotFault::Damaged)?;
        let records = rest.to_vec();
        Ok(Self { head, records })
    }

    /// The secret that keys the fingerprints of its keys.
    pub fn secret(&self) -> [u8; 16] {
        self.head.secret
    }

    /// The moment that counters count on from, if the wall clock stands at `wall` now: as much later than the file as the
    /// wall clock is.
    ///
    /// # Errors
    ///
    /// [`SnapshotFault::Future`].
    pub fn resumed_at(&self, wall: WallTime) -> Result<Timestamp, SnapshotFault> {
        let now = wall.0.saturating_add_signed(self.head.wall_offset.saturating_neg());
        match self.head.at.saturating_sub(now) {
            0..=MAX_AHEAD => Ok(Timestamp(self.head.at.max(now))),
            _ => Err(SnapshotFault::Future),
        }
    }

    /// Where the wall clock stood beside the clock of the counters.
    pub fn wall_clock(&self) -> WallClock {
        let steps = self.head.wall_steps.iter().map(|(at, before)| (Timestamp(*at), *before));
        WallClock::resumed(self.head.wall_offset, steps)
    }

    /// Whether the process that wrote it ended then, and lost nothing.
    pub fn is_last(&self) -> bool {
        self.head.is_last
    }

    /// When it was written, by the wall clock of then.
    fn written_at(&self) -> WallTime {
        WallTime(self.head.at.saturating_add_signed(self.head.wall_offset))
    }

    /// Puts all into an empty store. `calendar` knows the calendars of the file. Policies that `calendar` lacks, and
    /// counters without room, begin anew.
    ///
    /// # Errors
    ///
    /// Nothing was put there: [`SnapshotFault::Capacity`] or [`SnapshotFault::Damaged`].
    pub fn restore(
        self,
        store: &Store,
        now: Timestamp,
        calendar: impl Fn(&str) -> Option<CalendarWindows>,
    ) -> Result<RestoredCounters, SnapshotFault> {
        let lost_since = (!self.head.is_last).then(|| self.written_at());
        let Self { head, records } = self;
        let memory: &MemoryStore = &store.memory;
        if head.sets != memory.sets() {
            return Err(SnapshotFault::Capacity);
        }
        let counters = decode_counters(&records).ok_or(SnapshotFault::Damaged)?;
        let mut ids = HashMap::new();
        for SavedPolicy { params, identity, algorithm } in &head.policies {
            let Some(algorithm) = algorithm.algorithm(&calendar) else { continue };
            memory.register_policy(&algorithm, *identity);
            ids.insert(ParamsId(*params), ParamsId::of_policy(&algorithm, *identity));
        }
        let mut restored = RestoredCounters::default();
        for counter in counters {
            let params = ids.get(&counter.params).copied();
            let put =
                params.is_some_and(|params| memory.restore(StoredCounter { params, ..counter }).is_ok());
            if put {
                restored.counters += 1;
            } else {
                restored.dropped += 1;
            }
        }
        let wall = wall_clock::system().wall_time(now);
        let lists = KnownLists { bans: head.bans, overrides: head.overrides };
        restored.bans = lists.restore(store, now, wall);
        store.charge_records.restore(head.charges);
        store.usage.restore(head.usage, lost_since, wall);
        Ok(restored)
    }
}

/// All counters. `None`: the bytes are none.
fn decode_counters(mut bytes: &[u8]) -> Option<Vec<StoredCounter>> {
    let mut counters = Vec::new();
    let rest = &mut bytes;
    loop {
        let [kind] = take(rest)?;
        if kind == END {
            return rest.is_empty().then_some(counters);
        }
        let (set, tag) = (u64::from_le_bytes(take(rest)?), u64::from_le_bytes(take(rest)?));
        let params = ParamsId(u32::from_le_bytes(take(rest)?));
        let state = match kind {
            PACKED => {
                let at = Timestamp(u64::from_le_bytes(take(rest)?));
                StoredState::Packed(Packed { at, used: u64::from_le_bytes(take(rest)?) })
            }
            LOG => StoredState::Log(take_words(rest)?),
            _ => return None,
        };
        counters.push(StoredCounter { set, tag, params, state });
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*taken)
}

/// Words behind their number.
fn take_words(rest: &mut &[u8]) -> Option<Vec<u64>> {
    let count = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let (words, others) = rest.split_at_checked(count.checked_mul(8)?)?;
    *rest = others;
    Some(words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Bytes behind their length.
fn take_text<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let (text, others) = rest.split_at_checked(length)?;
    *rest = others;
    Some(text)
}

#[cfg(test)]
mod tests;
