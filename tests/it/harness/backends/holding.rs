//! A backend that answers a request only when the test tells it to, and counts the requests in its hands: the judge of
//! limits on requests in flight.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::harness::{TIMEOUT, eventually};

/// How often a connection is looked at for its end.
const LOOK: Duration = Duration::from_millis(10);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// A server on a free port. It holds each request until it is released. Begins of targets with a meaning: `/stream` has
/// the head and a part of its body answered at once, `/tunnel` switches protocols, `/quick` is answered after 100 ms,
/// `/cut` ends the connection when released.
#[derive(Debug)]
pub(crate) struct HoldingBackend {
    address: SocketAddr,
    hall: Arc<Hall>,
}

#[derive(Debug, Default)]
struct Hall {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    present: usize,
    max: usize,
    broken_off: usize,
    arrivals: Vec<String>,
    released: BTreeSet<String>,
    open: bool,
}

impl HoldingBackend {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let hall = Arc::new(Hall::default());
        let shared = Arc::clone(&hall);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, hall }
    }

    /// `http://ADDRESS`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests in its hands.
    pub(crate) fn present(&self) -> usize {
        self.hall.lock().present
    }

    /// The maximum of [`Self::present`] so far.
    pub(crate) fn max(&self) -> usize {
        self.hall.lock().max
    }

    /// The exchanges that the gateway has broken off so far.
    pub(crate) fn broken_off(&self) -> usize {
        self.hall.lock().broken_off
    }

    /// The targets of all requests so far, by arrival.
    pub(crate) fn arrivals(&self) -> Vec<String> {
        self.hall.lock().arrivals.clone()
    }

    /// Answers the request with this target, which may still be on its way.
    pub(crate) fn release(&self, target: &str) {
        self.hall.lock().released.insert(target.to_owned());
        self.hall.changed.notify_all();
    }

    /// Answers all requests, now and later.
    pub(crate) fn open(&self) {
        self.set_open(true);
    }

    /// Holds the requests that arrive from now on.
    pub(crate) fn close(&self) {
        self.set_open(false);
    }

    /// Waits until it has this number of requests in its hands.
    #[track_caller]
    pub(crate) fn holds(&self, count: usize) {
        eventually(&format!("{count} requests in the backend's hands"), || {
            (self.present() == count).then_some(())
        });
    }

    /// Waits until this number of requests has arrived.
    #[track_caller]
    pub(crate) fn has_got(&self, count: usize) {
        eventually(&format!("{count} requests at the backend"), || {
            (self.hall.lock().arrivals.len() >= count).then_some(())
        });
    }

    fn set_open(&self, open: bool) {
        self.hall.lock().open = open;
        self.hall.changed.notify_all();
    }
}

impl Drop for HoldingBackend {
    fn drop(&mut self) {
        self.open();
    }
}

impl Hall {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no panic inside")
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        let mut buffer = Vec::new();
        while let Some(head) = read_through(&mut stream, &mut buffer, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            self.enter(&target);
            let whole = read_body(&mut stream, &mut buffer, &head);
            let begins_well = whole && begin(&mut stream, &target);
            if !begins_well || !self.wait(&stream, &target) {
                self.leave(true);
                return;
            }
            // Before the answer: the gateway may send the next request as soon as this one ends.
            self.leave(false);
            let answer: &[u8] = match () {
                () if target.starts_with("/stream") => b"0\r\n\r\n",
                () if target.starts_with("/tunnel") || target.starts_with("/cut") => return,
                () => OK,
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }

    fn enter(&self, target: &str) {
        let mut counts = self.lock();
        counts.present += 1;
        counts.max = counts.max.max(counts.present);
        counts.arrivals.push(target.to_owned());
    }

    fn leave(&self, is_broken_off: bool) {
        let mut counts = self.lock();
        counts.present -= 1;
        counts.broken_off += usize::from(is_broken_off);
    }

    /// Waits until the request is released. False if the gateway breaks the exchange off first.
    fn wait(&self, stream: &TcpStream, target: &str) -> bool {
        if target.starts_with("/quick") {
            std::thread::sleep(Duration::from_millis(100));
            return true;
        }
        stream.set_nonblocking(true).expect("a socket option");
        let mut counts = self.lock();
        let released = loop {
            if counts.open || counts.released.contains(target) {
                break true;
            }
            match stream.peek(&mut [0]) {
                Ok(0) => break false,
                Err(fault) if fault.kind() != std::io::ErrorKind::WouldBlock => break false,
                _ => {}
            }
            counts = self.changed.wait_timeout(counts, LOOK).expect("no panic inside").0;
        };
        stream.set_nonblocking(false).expect("a socket option");
        released
    }
}

/// Sends what is answered at once. False if the gateway is gone.
fn begin(stream: &mut TcpStream, target: &str) -> bool {
    let bytes: &[u8] = match () {
        () if target.starts_with("/stream") => STREAM,
        () if target.starts_with("/tunnel") => SWITCH,
        () => return true,
    };
    stream.write_all(bytes).is_ok()
}

/// Reads the body of a request with this head in lower case. False if it is cut.
fn read_body(stream: &mut TcpStream, buffer: &mut Vec<u8>, head: &str) -> bool {
    if head.contains("\r\ntransfer-encoding: chunked") {
        return read_through(stream, buffer, b"0\r\n\r\n").is_some();
    }
    let length = head.split_once("\r\ncontent-length: ").and_then(|(_, rest)| rest.split("\r\n").next());
    let length = length.and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(0);
    while buffer.len() < length {
        if !fill(stream, buffer) {
            return false;
        }
    }
    buffer.drain(..length);
    true
}

fn read_through(stream: &mut TcpStream, buffer: &mut Vec<u8>, mark: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = memchr::memmem::find(buffer, mark) {
            return Some(buffer.drain(..at + mark.len()).collect());
        }
        if !fill(stream, buffer) {
            return None;
        }
    }
}

/// Takes what has come; false at the end of the stream.
fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 16 * 1024];
    let count = stream.read(&mut bytes).unwrap_or(0);
    buffer.extend_from_slice(&bytes[..count]);
    count > 0
}
