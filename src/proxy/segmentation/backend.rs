//! A backend on loopback, in the same runtime: it records each request and responds as configured.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;

use super::seen::{Reader, Run, Seen, Step};

/// The responses to the requests of a run.
#[derive(Clone, Debug)]
pub(super) enum Behaviour {
    /// To each request when it is complete.
    Whole,
    /// To each request when its head is complete.
    Early,
    /// To the first request with these segments, then closes the connection if `closes`. To the others when they are
    /// complete.
    Script { segments: Vec<Vec<u8>>, closes: bool },
}

/// The usual response.
pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A pass of the scheduler polls each task and the sockets. A segment needs fewer passes.
const PASSES: usize = 4;

/// A backend.
#[derive(Debug)]
pub(super) struct Backend {
    behaviour: RefCell<Behaviour>,
    run: RefCell<Run>,
}

impl Backend {
    pub(super) async fn start() -> (Rc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let backend = Rc::new(Self { behaviour: RefCell::new(Behaviour::Whole), run: RefCell::default() });
        let accepting = Rc::clone(&backend);
        tokio::task::spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::task::spawn_local(serve(Rc::clone(&accepting), socket));
            }
        });
        (backend, address)
    }

    /// Begins a run of this client. Returns its log.
    pub(super) fn behave(&self, behaviour: Behaviour, client: IpAddr) -> Rc<RefCell<Vec<Rc<RefCell<Seen>>>>> {
        *self.behaviour.borrow_mut() = behaviour;
        let run = Run::of(client);
        *self.run.borrow_mut() = run.clone();
        run.log
    }

    /// The segments to write now, and whether to close the connection afterwards.
    fn answer(&self, step: Step) -> Option<(Vec<Vec<u8>>, bool)> {
        let behaviour = &mut *self.behaviour.borrow_mut();
        match (&*behaviour, step) {
            (Behaviour::Early, Step::Head) | (Behaviour::Whole, Step::Whole) => {
                Some((vec![OK.to_vec()], false))
            }
            (Behaviour::Script { .. }, Step::Whole) => match std::mem::replace(behaviour, Behaviour::Whole) {
                Behaviour::Script { segments, closes } => Some((segments, closes)),
                Behaviour::Whole | Behaviour::Early => None,
            },
            _ => None,
        }
    }
}

async fn serve(backend: Rc<Backend>, mut socket: TcpStream) {
    // Small segments are sent without delay.
    socket.set_nodelay(true).expect("a socket can do that");
    let mut reader = Reader::default();
    loop {
        match reader.step(&backend.run) {
            Step::Fault => return,
            Step::Pending => match socket.read_buf(&mut reader.inbound).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            },
            step @ (Step::Head | Step::Whole) => {
                let Some((segments, closes)) = backend.answer(step) else { continue };
                for segment in segments {
                    if socket.write_all(&segment).await.is_err() {
                        return;
                    }
                    settle().await;
                }
                if closes {
                    return;
                }
            }
        }
    }
}

/// Yields to the other tasks until a segment is consumed.
pub(super) async fn settle() {
    for _ in 0..PASSES {
        yield_now().await;
    }
}
