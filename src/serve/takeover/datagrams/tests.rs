use std::cell::RefCell;
use std::io::Read as _;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const SECRETS: QuicSecrets =
    QuicSecrets { process: 7, id_key: [1; 16], reset_key: [2; 32], token_key: [3; 32] };

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn passed(bytes: &[u8], ecn: Option<EcnCodepoint>) -> PassedPacket {
    let to = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let packet = Packet { from: address(5), to, ecn, bytes: bytes.into() };
    PassedPacket { listener: address(443), server: ServerId { process: 8, worker: 9 }, packet }
}

/// All of a packet, to be compared.
fn words(passed: &PassedPacket) -> String {
    format!("{passed:?}")
}

/// The lengths, and what follows them.
fn split(bytes: &[u8]) -> (usize, usize, &[u8]) {
    let (all, rest) = bytes.split_first_chunk().unwrap();
    let (head, rest) = rest.split_first_chunk().unwrap();
    (u32::from_le_bytes(*all) as usize, u32::from_le_bytes(*head) as usize, rest)
}

/// What a process does that takes the sockets over and then sends `bytes`: the packets that are taken, and the outcome.
async fn given(bytes: Vec<u8>) -> (Vec<String>, io::Result<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let sockets: Vec<_> = (0..2).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let wanted = sockets[1].local_addr().unwrap();
    let own =
        OwnDatagrams { secrets: SECRETS, sockets: Arc::new(Mutex::new(sockets)), given: Arc::default() };
    let taken = RefCell::new(Vec::new());
    let take = |passed: PassedPacket| taken.borrow_mut().push(words(&passed));
    let giving = give(ours, &own, vec![7, 6], &take);
    let theirs = theirs.into_std().unwrap();
    theirs.set_nonblocking(false).unwrap();
    let asking = tokio::task::spawn_blocking(move || {
        let mut theirs = theirs;
        theirs.write_all(&asking_for(&[address(443), wanted]).unwrap()).unwrap();
        let hello: DatagramsHello = read_with_length(&mut theirs).unwrap();
        assert_eq!((hello.sockets, &*hello.processes), (1, &[7, 6][..]));
        let mut received = Vec::new();
        receive(&theirs, &mut received).unwrap();
        let received: Vec<_> = received.into_iter().map(UdpSocket::from).collect();
        assert_eq!((received.len(), received[0].local_addr().unwrap()), (1, wanted));
        theirs.write_all(&bytes).unwrap();
        // The end of the process, once all was read.
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        theirs.read_to_end(&mut Vec::new()).ok();
    });
    let outcome = giving.await;
    assert_eq!(*own.given.lock(), [address(443), wanted]);
    asking.await.unwrap();
    (taken.into_inner(), outcome)
}

#[test]
fn packets_are_read_as_they_were_written() {
    for ecn in [None, Some(EcnCodepoint::Ect0), Some(EcnCodepoint::Ect1), Some(EcnCodepoint::Ce)] {
        let packet = passed(b"bytes", ecn);
        let expected = words(&packet);
        let bytes = written(packet).unwrap();
        let (all, head, rest) = split(&bytes);
        assert_eq!(all, rest.len());
        assert_eq!(words(&read(rest, head).unwrap()), expected);
    }
}

#[test]
fn a_packet_that_is_cut_or_has_wrong_lengths_is_none() {
    let bytes = written(passed(b"bytes", None)).unwrap();
    let (_, head, rest) = split(&bytes);
    for cut in 0..head {
        assert!(read(&rest[..cut], head).is_err(), "cut at {cut}");
    }
    for wrong in (0..rest.len() + 10).filter(|length| *length != head) {
        assert!(read(rest, wrong).is_err(), "a head of {wrong} bytes, not {head}");
    }
    assert!(read(rest, usize::MAX).is_err());
    assert!(read(&rest[..head], head).is_ok_and(|passed| passed.packet.bytes.is_empty()));
}

#[test]
fn an_older_process_tells_no_numbers() {
    let mut hello = serde_json::to_value(DatagramsHello::default()).unwrap();
    hello.as_object_mut().unwrap().remove("processes");
    let hello: DatagramsHello = serde_json::from_value(hello).unwrap();
    assert!(hello.processes.is_empty());
}

#[tokio::test]
async fn a_successor_that_breaks_off_anywhere_has_passed_whole_packets_only() {
    let packets = [passed(b"one", None), passed(b"", None), passed(&[1; 1_400], None)];
    let expected = packets.each_ref().map(words);
    let parts: Vec<_> = packets.into_iter().map(|packet| written(packet).unwrap()).collect();
    let ends: Vec<usize> = (1..=parts.len()).map(|count| parts[..count].concat().len()).collect();
    let all = parts.concat();
    for cut in (0..ends[1] + 20).chain([all.len() - 1, all.len()]) {
        let (taken, outcome) = given(all[..cut].to_vec()).await;
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(taken, expected[..whole], "cut at {cut}");
        assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
    }
}

#[tokio::test]
async fn lengths_beyond_the_maximum_end_the_way() {
    for [all, head] in [[u32::MAX, 1], [u32::MAX, u32::MAX], [10, 11], [(66 << 10) + 1, 1], [0, 0], [2, 2]] {
        let mut bytes = [all.to_le_bytes(), head.to_le_bytes()].concat();
        bytes.extend_from_slice(&[b'{'; 100]);
        let (taken, outcome) = given(bytes).await;
        assert!(taken.is_empty() && outcome.is_err(), "{all}, {head}");
    }
}

#[tokio::test]
async fn another_protocol_gets_nothing() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"TGQ9").await.unwrap();
    let own = OwnDatagrams { secrets: SECRETS, sockets: Arc::default(), given: Arc::default() };
    let outcome = give(ours, &own, Vec::new(), &|_| panic!("no packet")).await;
    assert!(own.given.lock().is_empty());
    assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::Unsupported));
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).await.unwrap();
    assert!(sent.is_empty());
}

/// What asks is cut at each byte, or changed in one.
#[tokio::test]
async fn addresses_are_whole_or_none() {
    let asked = |bytes: Vec<u8>| async move {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&bytes).await.unwrap();
        drop(theirs);
        asked_for(&mut ours).await
    };
    let addresses = [address(443), "[2001:db8::1]:8443".parse().unwrap()];
    let bytes = asking_for(&addresses).unwrap();
    assert_eq!(asked(bytes.clone()).await.unwrap(), addresses);
    for at in 0..bytes.len() {
        assert!(asked(bytes[..at].to_vec()).await.is_err(), "cut at {at}");
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        let _read_or_refused = asked(changed).await.is_ok();
    }
    let long = [&DATAGRAMS[..], &u64::MAX.to_le_bytes(), b"[]"].concat();
    assert_eq!(asked(long).await.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
}

proptest! {
    #[test]
    fn any_bytes_are_a_packet_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200), head in 0..250_usize) {
        let _packet_or_none = read(&bytes, head).is_ok();
    }

    /// A head that another version may have written: changed in one place.
    #[test]
    fn a_changed_head_is_a_packet_or_none(at in 0..200_usize, byte: u8) {
        let bytes = written(passed(b"bytes", None)).unwrap();
        let (_, head, rest) = split(&bytes);
        let mut rest = rest.to_vec();
        let at = at % rest.len();
        rest[at] = byte;
        let _packet_or_none = read(&rest, head).is_ok();
    }

    #[test]
    fn any_hello_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in 0..400_usize) {
        let _read_or_refused = serde_json::from_slice::<DatagramsHello>(&bytes).is_ok();
        let hello = serde_json::to_vec(&DatagramsHello { processes: vec![1, 2], ..DatagramsHello::default() }).unwrap();
        let cut = cut % hello.len();
        prop_assert!(serde_json::from_slice::<DatagramsHello>(&hello[..cut]).is_err());
    }
}
