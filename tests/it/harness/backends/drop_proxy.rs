//! A relay between a gateway and its Redis: the network, with its faults.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::harness::eventually;

/// A relay on a free port, which passes bytes until it is told otherwise. Its connections end when it is dropped.
#[derive(Debug)]
pub(crate) struct DropProxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    mode: AtomicU8,
    listener: Mutex<Option<TcpListener>>,
    /// Both ends of each connection that is open.
    pairs: Mutex<Vec<Arc<Pair>>>,
    ever: AtomicUsize,
}

/// A connection: the gateway's end and the server's.
#[derive(Debug)]
struct Pair {
    near: TcpStream,
    far: TcpStream,
    /// Some of its bytes were lost, so it can never pass any again: no end of a real one would take what follows a gap.
    broken: AtomicBool,
    /// It is to end with a reset.
    reset: AtomicBool,
}

const PASS: u8 = 0;
const SWALLOW: u8 = 1;
const STOPPED: u8 = 2;
/// How soon a waiting thread looks at what it was told.
const TICK: Duration = Duration::from_millis(1);

impl DropProxy {
    /// In front of `target`.
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            target,
            mode: AtomicU8::new(PASS),
            listener: Mutex::new(Some(listener)),
            pairs: Mutex::default(),
            ever: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || shared.accept());
        Self { address, state }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `redis://ADDRESS`.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Takes connections, and passes the bytes of those that have lost none.
    pub(crate) fn pass(&self) {
        self.state.mode.store(PASS, Ordering::SeqCst);
        let mut listener = lock(&self.state.listener);
        if listener.is_none() {
            *listener = Some(eventually("the relay's old port", || listen(self.address).ok()));
        }
    }

    /// Loses all bytes, both ways, without a word. Connections are still made, as the relay stands before the fault.
    pub(crate) fn swallow(&self) {
        self.state.mode.store(SWALLOW, Ordering::SeqCst);
    }

    /// Takes no connections, and resets those there are.
    pub(crate) fn refuse(&self) {
        *lock(&self.state.listener) = None;
        self.reset();
    }

    /// Resets the connections there are; new ones are welcome.
    pub(crate) fn reset(&self) {
        for pair in lock(&self.state.pairs).iter() {
            pair.reset();
        }
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        lock(&self.state.pairs).len()
    }

    /// How many connections were ever made.
    pub(crate) fn ever(&self) -> usize {
        self.state.ever.load(Ordering::SeqCst)
    }
}

impl Drop for DropProxy {
    fn drop(&mut self) {
        self.state.mode.store(STOPPED, Ordering::SeqCst);
        self.refuse();
    }
}

impl State {
    fn accept(self: &Arc<Self>) {
        while self.mode.load(Ordering::SeqCst) != STOPPED {
            let taken = lock(&self.listener).as_ref().map(TcpListener::accept);
            let Some(Ok((near, _))) = taken else {
                std::thread::sleep(TICK);
                continue;
            };
            self.ever.fetch_add(1, Ordering::SeqCst);
            // Where the server is gone, the connection ends at once.
            let Ok(far) = TcpStream::connect(self.target) else { continue };
            near.set_nonblocking(false).expect("a socket option");
            self.relay(Arc::new(Pair { near, far, broken: <_>::default(), reset: <_>::default() }));
        }
    }

    fn relay(self: &Arc<Self>, pair: Arc<Pair>) {
        for stream in [&pair.near, &pair.far] {
            stream.set_nodelay(true).expect("a socket option");
        }
        lock(&self.pairs).push(Arc::clone(&pair));
        let (state, twin) = (Arc::clone(self), Arc::clone(&pair));
        std::thread::spawn(move || {
            let back = (Arc::clone(&state), Arc::clone(&twin));
            let back = std::thread::spawn(move || back.0.copy(&back.1, &back.1.far, &back.1.near));
            state.copy(&twin, &twin.near, &twin.far);
            back.join().ok();
            lock(&state.pairs).retain(|open| !Arc::ptr_eq(open, &twin));
        });
    }

    /// Passes or loses what comes from one end, until it closes; then both are closed.
    fn copy(&self, pair: &Pair, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 16 * 1024];
        loop {
            let count = match from.read(&mut bytes) {
                Ok(count) if count > 0 => count,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => continue,
                _ => break,
            };
            if self.mode.load(Ordering::SeqCst) == SWALLOW {
                pair.broken.store(true, Ordering::SeqCst);
            }
            if !pair.broken.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        pair.ends(from);
    }
}

impl Pair {
    /// Wakes the copying threads; the last of them drops the streams, which sends the resets.
    fn reset(&self) {
        self.reset.store(true, Ordering::SeqCst);
        for stream in [&self.near, &self.far] {
            socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).ok();
            stream.shutdown(Shutdown::Read).ok();
        }
    }

    /// One end has closed. The gateway does not hear of it where the network has lost the connection.
    fn ends(&self, from: &TcpStream) {
        if self.broken.load(Ordering::SeqCst) && std::ptr::eq(from, &self.far) {
            return;
        }
        let how = if self.reset.load(Ordering::SeqCst) { Shutdown::Read } else { Shutdown::Both };
        for stream in [&self.near, &self.far] {
            stream.shutdown(how).ok();
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The harness against itself.
#[test]
fn the_relay_passes_loses_refuses_and_resets() {
    use crate::harness::{Answer, Connection, Redis};
    let redis = Redis::start();
    let relay = DropProxy::start(redis.addr());
    let mut good = Connection::open(relay.addr()).unwrap();
    assert_eq!(good.call(["PING"]), Answer::Bytes(b"PONG".into()));
    relay.swallow();
    let mut lost = TcpStream::connect(relay.addr()).unwrap();
    lost.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    lost.write_all(b"PING\r\n").unwrap();
    let silent =
        |stream: &mut TcpStream| stream.read(&mut [0]).is_err_and(|it| it.kind() == ErrorKind::WouldBlock);
    assert!(silent(&mut lost));
    relay.pass();
    lost.write_all(b"PING\r\n").unwrap();
    assert!(silent(&mut lost), "what has lost bytes passes none");
    assert_eq!(good.call(["PING"]).text(), "PONG");
    assert_eq!((relay.open(), relay.ever()), (2, 2));
    relay.refuse();
    assert!(TcpStream::connect(relay.addr()).is_err());
    let ended = lost.read(&mut [0]).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
    relay.pass();
    assert_eq!(Connection::open(relay.addr()).unwrap().call(["PING"]).text(), "PONG");
    eventually("all connections to be closed", || {
        (relay.open() == 0 && redis.connections() == 0).then_some(())
    });
}
