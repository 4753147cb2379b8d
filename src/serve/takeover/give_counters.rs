//! The running process's side of the hand-over of its counters.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::offer::{PAUSE, REST, STRANGERS, listen};
use super::{
    COUNTERS, ClockReading, CountersHello, FREEZE, FREEZE_WITH_USAGE, HandedLists, LISTS, STARTING, TIMEOUT,
    counters_name, is_trusted, own_process,
};
use crate::limit::wall_clock;
use crate::route::key::KeySecret;
use crate::shared::Shared;
use crate::store::hand_over::SuccessorCalls;
use crate::store::snapshot::{self, KnownLists, SnapshotTime};

/// The counters, offered to a process that takes over.
#[derive(Debug)]
pub(in crate::serve) struct CounterOffer(Option<UnixListener>);

impl CounterOffer {
    /// Waits for another process under the name of this one. A name that cannot be used is only logged. Needs a tokio
    /// runtime around it.
    pub(in crate::serve) fn new() -> Self {
        let listener = listen(&counters_name(own_process())).inspect_err(
            |error| tracing::warn!(%error, "the counters of this process cannot be handed over"),
        );
        Self(listener.ok())
    }

    /// Hands the counters to a process that asks for them, and asks it from then on, until this process ends.
    pub(in crate::serve) async fn run(self, shared: Arc<Shared>) {
        let Self(Some(listener)) = self else { return };
        let mut strangers = 0;
        loop {
            match next(&listener).await {
                Ok(stream) => {
                    let given = give(&shared, stream).await;
                    shared.store.take_back();
                    // Before the hand-over it has changed nothing; afterwards the takeover tells of the end.
                    if let Err(error) = given {
                        tracing::debug!(%error, "the counters were not handed over, or only until now");
                    }
                }
                // Any user of this machine can cause it at any rate.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    strangers += 1;
                    if strangers % STRANGERS == 0 {
                        sleep(PAUSE).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept processes that take the counters over; trying again");
                    sleep(REST).await;
                }
            }
        }
    }
}

/// The next process of this user.
pub(super) async fn next(listener: &UnixListener) -> io::Result<UnixStream> {
    let (stream, _) = listener.accept().await?;
    let peer = stream.peer_cred()?;
    match is_trusted(peer.uid(), peer.pid().unwrap_or_default()) {
        true => Ok(stream),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Hands the counters to a process, and asks it until it ends; or bans and overrides alone.
async fn give(shared: &Shared, mut stream: UnixStream) -> io::Result<()> {
    let mut hello = [0; 4];
    timeout(TIMEOUT, stream.read_exact(&mut hello)).await??;
    let is_shared = shared.plan.load().store.shared.is_some();
    match (&hello, shared.secret) {
        (LISTS, _) if is_shared => give_lists(shared, &mut stream).await,
        (COUNTERS, KeySecret::Process(secret)) if !is_shared => give_counters(shared, secret, stream).await,
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Hands over the bans and overrides that this process knows.
async fn give_lists(shared: &Shared, stream: &mut UnixStream) -> io::Result<()> {
    let clock = ClockReading::of(&shared.clock);
    let now = shared.clock.now();
    let lists = KnownLists::of(&shared.store, now, wall_clock::system().wall_time(now));
    write_with_length(stream, &serde_json::to_vec(&HandedLists { clock, lists })?).await
}

async fn give_counters(shared: &Shared, secret: [u8; 16], mut stream: UnixStream) -> io::Result<()> {
    let hello = CountersHello {
        clock: ClockReading::of(&shared.clock),
        secret,
        sets: shared.store.sets(),
        usage: true,
    };
    write_with_length(&mut stream, &serde_json::to_vec(&hello)?).await?;
    let takes_usage = match timeout(STARTING, stream.read_u8()).await?? {
        FREEZE => false,
        FREEZE_WITH_USAGE => true,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let (calls, receiver) = SuccessorCalls::new(takes_usage);
    let calls = Arc::new(calls);
    shared.store.hand_over_to(Arc::clone(&calls));
    // What a worker was deciding when the successor became known is decided.
    if !shared.worker_commands.all_pass().await {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "a worker does not answer"));
    }
    let places = serde_json::to_vec(&shared.store.hand_places_over(calls))?;
    let wall_clock = wall_clock::system().copy();
    let now = SnapshotTime { at: shared.clock.now(), wall_clock, is_last: true };
    let state = snapshot::to_bytes(&shared.store, secret, &now)?;
    write_with_length(&mut stream, &state).await?;
    write_with_length(&mut stream, &places).await?;
    receiver.run(stream).await
}

async fn write_with_length(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_u64_le(bytes.len() as u64).await?;
    timeout(STARTING, stream.write_all(bytes)).await?
}
