use std::net::Ipv4Addr;

use proptest::prelude::*;
use quinn_proto::ConnectionIdGenerator as _;

use super::*;
use crate::net::quic::connection_id::LENGTH;

const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

fn packet(bytes: &[u8]) -> Packet {
    Packet { from: FROM, to: None, ecn: None, bytes: bytes.into() }
}

fn server(process: u32, worker: u16) -> ServerId {
    ServerId { process, worker }
}

/// A process with the number 3 and two workers.
fn routes() -> (Arc<PacketRoutes>, Vec<PacketInbox>) {
    PacketRoutes::new(3, 2)
}

#[test]
fn packets_go_to_the_workers_of_this_process() {
    let (routes, mut inboxes) = routes();
    for worker in [1, 0, 1] {
        routes.pass(server(3, worker), || packet(b"x")).unwrap();
    }
    assert_eq!(routes.pass(server(3, 2), || packet(b"x")), Err(NoSuchServer), "there are two workers");
    assert_eq!(routes.pass(server(4, 0), || packet(b"x")), Err(NoSuchServer));
    let counts: Vec<_> = inboxes.iter_mut().map(|inbox| inbox.len()).collect();
    assert_eq!(counts, [1, 2]);
    // A full inbox drops packets, and one of a worker that has ended takes none.
    for _ in 0..2 * MAX_WAITING {
        routes.pass(server(3, 0), || packet(b"x")).unwrap();
    }
    assert_eq!(inboxes.first().map(Receiver::len), Some(MAX_WAITING));
    inboxes.remove(0);
    assert_eq!(routes.pass(server(3, 0), || packet(b"x")), Err(NoSuchServer));
}

/// A client chooses the id of its first packet, which may have the length of ours and then names any process.
#[test]
fn only_packets_of_earlier_processes_are_passed_to_them() {
    let (routes, _inboxes) = routes();
    assert_eq!(routes.processes(), [3]);
    let (way, mut passed) = channel(8);
    routes.set_earlier(Some(EarlierProcesses { numbers: vec![2, 1], way }));
    assert_eq!(routes.processes(), [3, 2, 1]);
    for process in 0..100 {
        let result = routes.pass(server(process, 9), || packet(b"x"));
        let is_known = matches!(process, 1 | 2);
        assert_eq!(result.is_ok(), is_known, "{process}");
    }
    assert_eq!(passed.try_recv().map(|(server, _)| server.process).ok(), Some(1));
    assert_eq!(passed.try_recv().map(|(server, _)| server.process).ok(), Some(2));
    assert!(passed.try_recv().is_err());
    // They have ended: what names them may be of new clients.
    drop(passed);
    assert_eq!(routes.pass(server(1, 0), || packet(b"x")), Err(NoSuchServer));
    assert_eq!(routes.processes(), [3]);
    routes.set_earlier(None);
    assert_eq!(routes.pass(server(1, 0), || packet(b"x")), Err(NoSuchServer));
}

#[test]
fn a_process_that_does_not_tell_its_number_gets_all_others() {
    let (routes, _inboxes) = routes();
    let (way, mut passed) = channel(8);
    routes.set_earlier(Some(EarlierProcesses { numbers: Vec::new(), way }));
    assert_eq!(routes.processes(), [0; 0], "the next process cannot know either");
    routes.pass(server(77, 1), || packet(b"x")).unwrap();
    assert_eq!(passed.try_recv().map(|(server, _)| server).ok(), Some(server(77, 1)));
}

/// A message of the kernel holds several datagrams of one client.
#[tokio::test]
async fn of_one_message_the_datagrams_of_others_are_passed_on() {
    let ids = |worker| ConnectionIds::new([7; 16], server(3, worker));
    let datagram = |worker, length: usize| {
        let id = ids(worker).generate_cid();
        let mut bytes = [&[0x40][..], &*id].concat();
        bytes.resize(length, u8::try_from(worker).unwrap());
        bytes
    };
    let (routes, mut inboxes) = routes();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = WorkerSocket::new(socket, ids(0), routes, inboxes.remove(0)).unwrap();
    let parts = [datagram(1, 100), datagram(0, 100), datagram(1, 100), datagram(0, 100), datagram(1, 40)];
    let mut buffer = parts.concat();
    let meta = |len, stride| RecvMeta { addr: FROM, len, stride, ecn: None, dst_ip: None };
    let mut received = meta(buffer.len(), 100);
    socket.keep_own(&mut buffer, &mut received);
    assert_eq!(received.len, 200);
    assert_eq!(buffer[..200], [&parts[1][..], &parts[3]].concat());
    let passed: Vec<_> =
        std::iter::from_fn(|| inboxes[0].try_recv().ok()).map(|packet| packet.bytes).collect();
    assert_eq!(passed, [&*parts[0], &*parts[2], &*parts[4]].map(Box::from));
    // What the meta data say of a buffer is not believed.
    for (length, stride) in [(0, 0), (0, 100), (40, 0), (100, 1), (1_000_000, 100), (100, usize::MAX)] {
        let mut received = meta(length, stride);
        socket.keep_own(&mut parts[0].clone(), &mut received);
        assert!(received.len <= 100, "{length}, {stride}");
    }
}

/// A packet from elsewhere that the buffers do not hold takes the place of none.
#[tokio::test]
async fn a_packet_that_is_too_long_is_dropped_alone() {
    let (routes, mut inboxes) = routes();
    let ids = ConnectionIds::new([7; 16], server(3, 0));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = WorkerSocket::new(socket, ids, Arc::clone(&routes), inboxes.remove(0)).unwrap();
    for length in [10, 2_000, 20] {
        routes.pass(server(3, 0), || packet(&vec![1; length])).unwrap();
    }
    let (mut one, mut two) = (vec![0; 1_500], vec![0; 1_500]);
    let mut buffers = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    let mut meta = [RecvMeta::default(); 2];
    let context = &mut Context::from_waker(std::task::Waker::noop());
    assert!(matches!(socket.poll_recv(context, &mut buffers, &mut meta), Poll::Ready(Ok(2))));
    assert_eq!(meta.map(|meta| meta.len), [10, 20]);
}

/// Packets that others pass on do not keep the worker's own waiting.
#[tokio::test]
async fn inbox_and_socket_take_turns() {
    let (routes, mut inboxes) = routes();
    let ids = ConnectionIds::new([7; 16], server(3, 0));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let socket = WorkerSocket::new(socket, ids, Arc::clone(&routes), inboxes.remove(0)).unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (mut own, mut passed) = (0, 0);
    while own < 10 {
        client.send_to(&[0x40; 50], address).unwrap();
        (0..4).for_each(|_| routes.pass(server(3, 0), || packet(&[1; 20])).unwrap());
        let mut buffer = vec![0; 1 << 16];
        let mut meta = [RecvMeta::default()];
        let received = std::future::poll_fn(|context| {
            socket.poll_recv(context, &mut [IoSliceMut::new(&mut buffer)], &mut meta)
        });
        assert_eq!(received.await.unwrap(), 1);
        match meta[0].stride {
            20 => passed += 1,
            _ => own += 1,
        }
        tokio::task::yield_now().await;
        assert!(passed < 50, "the socket waits");
    }
    assert!(passed > 0);
    // Once another process reads the socket, only the inbox is read.
    routes.hand_over();
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..MAX_WAITING {
        let mut meta = [RecvMeta::default()];
        let context = &mut Context::from_waker(std::task::Waker::noop());
        match socket.poll_recv(context, &mut [IoSliceMut::new(&mut buffer)], &mut meta) {
            Poll::Ready(Ok(1)) => assert_eq!(meta[0].stride, 20),
            Poll::Pending => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("the inbox has an end");
}

proptest! {
    #[test]
    fn datagrams_are_kept_whole_and_in_order(
        received in prop::collection::vec(any::<u8>(), 0..600),
        stride in 0..100_usize,
        kept in any::<u64>(),
    ) {
        let parts: Vec<_> = received.chunks(stride.max(1)).collect();
        let keeps = |index: usize| kept >> (index % 64) & 1 == 1;
        let expected: Vec<_> = parts.iter().enumerate().filter(|(index, _)| keeps(*index)).collect();
        let expected = expected.into_iter().flat_map(|(_, part)| part.to_vec()).collect::<Vec<_>>();
        let (mut buffer, mut index) = (received.clone(), 0);
        let length = retain_datagrams(&mut buffer, stride, |datagram| {
            assert_eq!(Some(&datagram), parts.get(index));
            index += 1;
            keeps(index - 1)
        });
        prop_assert_eq!(&buffer[..length], &expected[..]);
        prop_assert_eq!(index, parts.len());
    }

    /// Whatever comes is kept, passed on or dropped, and nothing is invented.
    #[test]
    fn a_packet_is_kept_unless_it_names_another_worker(
        first: u8,
        bytes in prop::collection::vec(any::<u8>(), LENGTH..80),
    ) {
        let ids = ConnectionIds::new([7; 16], server(3, 0));
        let datagram = [&[first][..], &bytes].concat();
        let (routes, _inboxes) = routes();
        // A random id names a process that there is once in 2^32.
        if let Some(named) = ids.server_of(&datagram) {
            prop_assert_eq!(routes.pass(named, || packet(&datagram)).is_ok(), named.process == 3 && named.worker < 2);
        }
    }
}
