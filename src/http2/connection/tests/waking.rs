//! No wake-up is lost: after any events, every task whose wait has ended was woken.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// An event.
#[derive(Clone, Debug)]
enum Step {
    /// The client opens a stream.
    Open,
    /// The client resets a stream.
    Reset(usize),
    /// A task sends as much as its window permits, up to this number of bytes.
    Send(usize, usize),
    /// A task asks for capacity and does not use it.
    Ask(usize),
    /// A task ends or aborts.
    End(usize, bool),
    /// WINDOW_UPDATE of a stream; `None`: of the connection.
    Update(Option<usize>, u32),
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    Initial(u32),
    /// The client reads this number of bytes.
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..6_usize;
    let size = prop_oneof![Just(1), 1..5_000_u32, 1..100_000_u32];
    prop_oneof![
        3 => Just(Step::Open),
        1 => index.clone().prop_map(Step::Reset),
        8 => (index.clone(), 1..80_000_usize).prop_map(|(index, max)| Step::Send(index, max)),
        4 => index.clone().prop_map(Step::Ask),
        1 => (index.clone(), any::<bool>()).prop_map(|(index, whole)| Step::End(index, whole)),
        4 => (proptest::option::of(index), size).prop_map(|(index, size)| Step::Update(index, size)),
        1 => (0..100_000_u32).prop_map(Step::Initial),
        5 => prop_oneof![1..3_000_usize, 1..70_000_usize].prop_map(Step::Read),
    ]
}

/// A task, and whether it has waited for capacity since it was last woken.
struct Task {
    request: ReceivedRequest,
    id: u32,
    woken: Arc<Woken>,
    waits: bool,
    over: bool,
}

impl Task {
    fn poll(&mut self) -> usize {
        let waker = Waker::from(Arc::clone(&self.woken));
        let room = self.request.stream.poll_room(&Context::from_waker(&waker), 100_000);
        self.waits = room.is_pending();
        match room {
            Poll::Ready(Ok(room)) => room,
            Poll::Ready(Err(_)) => {
                self.over = true;
                0
            }
            Poll::Pending => 0,
        }
    }
}

fn run(steps: &[Step]) {
    let mut peer = Peer::client(&SETTINGS);
    let (mut tasks, mut next) = (Vec::<Task>::new(), 1);
    for step in steps {
        match *step {
            Step::Open => {
                peer.send(kind::HEADERS, END, next, GET);
                if let Some(request) = peer.requests.pop() {
                    let over = request.stream.send_response(RESPONSE, false).is_err();
                    tasks.push(Task { request, id: next, woken: Arc::default(), waits: false, over });
                }
                next += 2;
            }
            Step::Reset(index) => {
                if let Some(task) = tasks.get(index) {
                    peer.send(kind::RST_STREAM, 0, task.id, &[0; 4]);
                }
            }
            Step::Send(index, max) => {
                if let Some(task) = tasks.get_mut(index).filter(|task| !task.over) {
                    let room = task.poll().min(max);
                    if room > 0 {
                        let sent = task.request.stream.send_data(&vec![0; room], false);
                        assert_eq!(sent, Ok(room), "there was room for it");
                    }
                }
            }
            Step::Ask(index) => {
                if let Some(task) = tasks.get_mut(index).filter(|task| !task.over) {
                    task.poll();
                }
            }
            Step::End(index, whole) => {
                if index < tasks.len() {
                    let task = tasks.remove(index);
                    if whole {
                        let _gone = task.request.stream.send_end(b"");
                    }
                }
            }
            Step::Update(None, size) => peer.send(kind::WINDOW_UPDATE, 0, 0, &size.to_be_bytes()),
            Step::Update(Some(index), size) => {
                if let Some(task) = tasks.get(index) {
                    peer.send(kind::WINDOW_UPDATE, 0, task.id, &size.to_be_bytes());
                }
            }
            Step::Initial(size) => {
                peer.send(kind::SETTINGS, 0, 0, &[&[0, 4][..], &size.to_be_bytes()].concat());
            }
            Step::Read(bytes) => {
                let mut received = BytesMut::new();
                let _pending =
                    peer.pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut received, bytes);
            }
        }
        peer.drive();
        assert!(!peer.over);
        for task in &mut tasks {
            if task.woken.take() {
                task.waits = false;
            }
        }
    }
    assert_all_go_on(&mut peer, &mut tasks);
}

/// The client opens all windows and reads all: then each waiting task is woken and gets capacity.
fn assert_all_go_on(peer: &mut Peer, tasks: &mut [Task]) {
    peer.send(kind::WINDOW_UPDATE, 0, 0, &1_000_000_u32.to_be_bytes());
    for task in &*tasks {
        peer.send(kind::WINDOW_UPDATE, 0, task.id, &1_000_000_u32.to_be_bytes());
    }
    for _ in 0..20 {
        peer.frames();
        for task in &mut *tasks {
            if task.woken.take() {
                task.waits = false;
                if task.poll() > 0 {
                    let _sent = task.request.stream.send_data(&[0; 1_000], false);
                }
            }
        }
    }
    for task in tasks {
        assert!(!task.waits, "the task of {} was not woken", task.id);
        let room = task.poll();
        assert!(task.over || room > 0, "the stream {} gets nothing", task.id);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_task_that_waits_for_room_is_woken(steps in vec(step(), 1..120)) {
        run(&steps);
    }
}
