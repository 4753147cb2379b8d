//! A connection within the process, for unit tests: one end reads the bytes that the other writes.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, BytesMut};

use super::Peek;

/// Bytes that one direction holds: a writer of more waits until the other end has read.
const CAPACITY: usize = 32 << 10;

/// One end of a pipe. Dropped before it has closed its sending side, it leaves the connection broken.
#[derive(Debug)]
pub struct Pipe {
    incoming: Rc<RefCell<Direction>>,
    outgoing: Rc<RefCell<Direction>>,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    bytes: BytesMut,
    /// No more bytes will be written.
    ended: bool,
    /// One of the ends was dropped.
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    /// The two ends of a new one.
    pub fn new() -> (Self, Self) {
        let (one, other) = (Rc::<RefCell<Direction>>::default(), Rc::<RefCell<Direction>>::default());
        let ends = Self { incoming: Rc::clone(&one), outgoing: Rc::clone(&other) };
        (ends, Self { incoming: other, outgoing: one })
    }

    /// Reads at most `max` bytes. Ready with 0 at the end.
    ///
    /// # Errors
    ///
    /// The other end was dropped without closing its sending side.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let way = &mut *self.incoming.borrow_mut();
        let here = way.bytes.len().min(max);
        if here == 0 {
            return match way {
                Direction { ended: true, .. } => Poll::Ready(Ok(0)),
                Direction { broken: true, .. } => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                _ => wait(&mut way.reader, context),
            };
        }
        if buffer.is_empty() && here == way.bytes.len() {
            std::mem::swap(buffer, &mut way.bytes);
        } else {
            buffer.extend_from_slice(&way.bytes[..here]);
            way.bytes.advance(here);
        }
        wake(&mut way.writer);
        Poll::Ready(Ok(here))
    }

    /// Writes as much of two slices as there is room for.
    ///
    /// # Errors
    ///
    /// The other end was dropped.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let way = &mut *self.outgoing.borrow_mut();
        if way.broken || way.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = CAPACITY.saturating_sub(way.bytes.len());
        if room == 0 {
            return wait(&mut way.writer, context);
        }
        let first = &first[..first.len().min(room)];
        let second = &second[..second.len().min(room - first.len())];
        way.bytes.extend_from_slice(first);
        way.bytes.extend_from_slice(second);
        wake(&mut way.reader);
        Poll::Ready(Ok(first.len() + second.len()))
    }

    /// Whether input or the end can be read.
    pub fn has_input(&self) -> bool {
        self.peek() != Peek::Silence
    }

    /// The state of the input.
    pub fn peek(&self) -> Peek {
        match &*self.incoming.borrow() {
            Direction { broken: true, .. } => Peek::Broken,
            way if !way.bytes.is_empty() => Peek::Bytes,
            Direction { ended: true, .. } => Peek::End,
            _ => Peek::Silence,
        }
    }

    /// Ready once the other end was dropped, even if bytes before that are unread.
    pub fn poll_peek(&self, context: &mut Context<'_>) -> Poll<Peek> {
        let way = &mut *self.incoming.borrow_mut();
        if way.broken { Poll::Ready(Peek::Broken) } else { wait(&mut way.reader, context) }
    }

    /// Closes the sending side.
    pub fn close_sending(&self) {
        let way = &mut *self.outgoing.borrow_mut();
        way.ended = true;
        wake(&mut way.reader);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for way in [&self.incoming, &self.outgoing] {
            let way = &mut *way.borrow_mut();
            way.broken = true;
            wake(&mut way.reader);
            wake(&mut way.writer);
        }
    }
}

fn wait<T>(slot: &mut Option<Waker>, context: &Context<'_>) -> Poll<T> {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
    Poll::Pending
}

fn wake(slot: &mut Option<Waker>) {
    if let Some(waker) = slot.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn it_holds_no_more_than_its_bound_and_loses_nothing() {
        let (one, other) = Pipe::new();
        let sent: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
        let (mut rest, mut received) = (&*sent, BytesMut::new());
        while !rest.is_empty() {
            while let Poll::Ready(Ok(written)) =
                one.poll_write(&mut context(), &rest[..rest.len() / 2], &rest[rest.len() / 2..])
            {
                if written == 0 {
                    break;
                }
                rest = &rest[written..];
            }
            let mut part = BytesMut::from(&b"x"[..]);
            while let Poll::Ready(Ok(read)) = other.poll_read(&mut context(), &mut part, 1000) {
                assert!(0 < read && read <= 1000);
            }
            assert!(part.len() <= CAPACITY + 1);
            received.extend_from_slice(&part[1..]);
        }
        assert!(received == sent);
    }

    #[test]
    fn an_end_that_is_gone_is_no_end_of_the_stream() {
        let (one, other) = Pipe::new();
        assert!(one.poll_write(&mut context(), b"abc", b"d").is_ready());
        assert!(other.poll_peek(&mut context()).is_pending());
        drop(one);
        let mut received = BytesMut::new();
        assert!(
            matches!(other.poll_read(&mut context(), &mut received, 99), Poll::Ready(Ok(4))),
            "{received:?}"
        );
        assert!(matches!(other.poll_read(&mut context(), &mut received, 99), Poll::Ready(Err(_))));
        assert!(matches!(other.poll_peek(&mut context()), Poll::Ready(Peek::Broken)));
        assert!(matches!(other.poll_write(&mut context(), b"x", b""), Poll::Ready(Err(_))));

        let (one, other) = Pipe::new();
        one.close_sending();
        drop(one);
        assert!(matches!(other.poll_read(&mut context(), &mut received, 99), Poll::Ready(Ok(0))));
    }
}
