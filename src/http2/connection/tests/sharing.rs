//! Streams on a slow socket get fair shares.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::*;

/// The queue of woken tasks, in order, as in the runtime.
type RunQueue = Arc<Mutex<VecDeque<usize>>>;

/// The waker of the task with this number.
struct Task(usize, RunQueue);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut queue = self.1.lock().expect("no thread panicked");
        if !queue.contains(&self.0) {
            queue.push_back(self.0);
        }
    }
}

/// Streams with endless bodies, and the bytes sent on each.
struct Senders {
    peer: Peer,
    queue: RunQueue,
    sent: Vec<usize>,
}

impl Senders {
    /// `count` streams, all with large windows.
    fn new(count: usize) -> Self {
        let mut peer = Peer::client(&SETTINGS);
        peer.send(kind::SETTINGS, 0, 0, &[0, 4, 0x3f, 0xff, 0xff, 0xff]);
        peer.send(kind::WINDOW_UPDATE, 0, 0, &[0x3f, 0xff, 0xff, 0xff]);
        let mut senders = Self { peer, queue: RunQueue::default(), sent: Vec::new() };
        (0..count).for_each(|index| senders.add(u32::try_from(index * 2 + 1).expect("a small number")));
        senders
    }

    fn add(&mut self, id: u32) {
        self.peer.send(kind::HEADERS, END, id, GET);
        let stream = self.peer.stream(self.sent.len());
        stream.send_response(RESPONSE, false).expect("the stream is open");
        self.waker(self.sent.len()).wake();
        self.sent.push(0);
    }

    fn waker(&self, task: usize) -> Waker {
        Waker::from(Arc::new(Task(task, Arc::clone(&self.queue))))
    }

    /// Runs woken tasks until all tasks wait.
    fn run(&mut self) {
        loop {
            let next = self.queue.lock().expect("no thread panicked").pop_front();
            let Some(task) = next else { return };
            if let Some(request) = self.peer.requests.get(task) {
                let waker = self.waker(task);
                let context = Context::from_waker(&waker);
                while let Poll::Ready(room) = request.stream.poll_room(&context, 16 << 10) {
                    let room = room.expect("the stream is open");
                    let sent = request.stream.send_data(&vec![0; room], false).expect("the stream is open");
                    self.sent[task] += sent;
                }
            }
            if self.queue.lock().expect("no thread panicked").is_empty() {
                self.peer.drive();
            }
        }
    }

    /// The client reads this number of bytes.
    fn read(&mut self, bytes: usize) {
        let mut received = BytesMut::new();
        let read = self.peer.pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut received, bytes);
        assert!(read.is_ready(), "nothing is sent, though all have data");
        self.peer.drive();
    }
}

fn assert_even(sent: &[usize]) {
    let (min, max) = (sent.iter().min().expect("some"), sent.iter().max().expect("some"));
    assert!(*max <= 2 * min, "{sent:?}");
}

#[test]
fn many_streams_share_a_slow_socket_evenly() {
    for count in [2, 7, 31, 33, 64, 100] {
        let mut senders = Senders::new(count);
        let mut first = Vec::new();
        for round in 0..2_000 {
            senders.run();
            senders.read(3_000);
            if round == 100 {
                first.clone_from(&senders.sent);
            }
        }
        // At first, the first stream is alone on the socket.
        senders.sent.iter_mut().zip(&first).for_each(|(sent, first)| *sent -= first);
        assert_even(&senders.sent);
    }
}

/// Wake-ups for other reasons, such as data from the upstream, do not increase a task's share.
#[test]
fn a_task_that_runs_often_gets_no_more_than_the_others() {
    let mut senders = Senders::new(10);
    for _ in 0..4_000 {
        senders.waker(9).wake();
        senders.run();
        senders.read(3_000);
    }
    assert_even(&senders.sent);
}

/// A large response progresses beside a sequence of small ones.
#[test]
fn new_streams_do_not_starve_those_that_wait() {
    let mut senders = Senders::new(4);
    let old = 4;
    for id in (101..2_101).step_by(2) {
        senders.run();
        senders.add(id);
        senders.run();
        // The new stream has sent its response at once.
        let last = senders.peer.requests.pop().expect("it was added");
        let sent = senders.sent.pop().expect("it was added");
        assert!(sent <= 64 << 10);
        drop(last);
        senders.read(4_000);
    }
    let sent: usize = senders.sent[..old].iter().sum();
    assert!(sent > 2_000_000, "{sent} of 4,000,000");
}

/// A stream with a closed window blocks no other, and continues when the window opens.
#[test]
fn a_closed_window_blocks_one_stream_only() {
    let mut senders = Senders::new(3);
    senders.run();
    // All windows become negative; two open again.
    senders.peer.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    senders.peer.frames();
    let before = senders.sent.clone();
    senders.run();
    assert_eq!(senders.sent, before);
    for id in [1, 5] {
        senders.peer.send(kind::WINDOW_UPDATE, 0, id, &1_000_000_u32.to_be_bytes());
    }
    for _ in 0..20 {
        senders.run();
        senders.peer.frames();
    }
    assert!(senders.sent[0] > before[0] && senders.sent[2] > before[2]);
    assert_eq!(senders.sent[1], before[1]);
    senders.peer.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 0xf, 0, 0]);
    for _ in 0..20 {
        senders.run();
        senders.peer.frames();
    }
    assert!(senders.sent[1] > before[1]);
}
