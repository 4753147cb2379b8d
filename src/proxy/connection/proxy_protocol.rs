//! PROXY protocol, versions 1 and 2: a proxy that relays bytes sends the client's address before the first of them
//! (HAProxy's `proxy-protocol.txt`).
//!
//! The header is read from the connections of listeners with `proxy_protocol = true`, and only from trusted peers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::net::Socket;
use crate::proxy::session::peer::ConnectionEnds;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::ConnectionHandle;
use crate::telemetry::metrics::ConnectionRejectReason;
use crate::upstream::proxy_protocol::SIGNATURE;

/// The addresses in the PROXY protocol header of a connection; those of its peer if the header names none. `None`: the
/// connection is to be closed.
pub(crate) async fn announced(
    handle: &ConnectionHandle,
    socket: &mut Socket,
    peer: SocketAddr,
    worker: &Worker,
) -> Option<ConnectionEnds> {
    let (plan, listener) = (worker.plan(), handle.listener());
    let server = &plan.server;
    if !server.client.trusts(peer.ip()) {
        tracing::debug!(%peer, "a peer that is not a trusted proxy connected where PROXY protocol is spoken");
        plan.metrics.connection_rejected(listener, ConnectionRejectReason::Untrusted);
        return None;
    }
    match timeout(server.header_timeout, handle.idle_during(read(socket))).await {
        Ok(Some(Ok(ProxyHeader { ends: Some((client, local)), .. }))) => {
            Some(ConnectionEnds { client, local: Some(local) })
        }
        Ok(Some(Ok(_))) => Some(ConnectionEnds::of(peer)),
        Ok(None) => None,
        Ok(Some(Err(_))) | Err(_) => {
            tracing::debug!(%peer, "no PROXY protocol header came, or a malformed one");
            plan.metrics.connection_rejected(listener, ConnectionRejectReason::Preamble);
            None
        }
    }
}

/// Reads the header from the stream, and no byte after it.
async fn read(socket: &mut Socket) -> io::Result<ProxyHeader> {
    let stream = socket.attach_mut()?;
    let mut bytes = vec![0; MAX_PREAMBLE];
    let mut consumed = 0;
    loop {
        let received = stream.peek(bytes.get_mut(consumed..).unwrap_or_default()).await?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let seen = bytes.get(..consumed + received).unwrap_or_default();
        let whole = parse(seen).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let end = whole.map_or(consumed + received, |header| header.length);
        stream.read_exact(bytes.get_mut(consumed..end).unwrap_or_default()).await?;
        consumed = end;
        if let Some(header) = whole {
            return Ok(header);
        }
    }
}

/// Version 1 begins with this.
const WORD: &[u8; 6] = b"PROXY ";
/// The longest line of version 1, with its line end.
const MAX_LINE: usize = 107;
/// Bytes of version 2 before the addresses.
const FIXED: usize = 16;
/// The maximum number of bytes after those: addresses, and TLVs, which are skipped.
const MAX_REST: usize = 4 << 10;
/// The longest PROXY protocol header.
pub const MAX_PREAMBLE: usize = FIXED + MAX_REST;

/// A whole PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client's address, and the one that it connected to; `None`: the proxy connects for itself, or does not know
    /// them.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Its length in bytes.
    pub length: usize,
}

/// The bytes are no PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedProxyHeader;

/// Reads the PROXY protocol header that `bytes` begins with. `None`: the header is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    if bytes.starts_with(SIGNATURE) {
        return parse_2(bytes);
    }
    if bytes.starts_with(WORD) {
        return parse_1(bytes);
    }
    let may_become = SIGNATURE.starts_with(bytes) || WORD.starts_with(bytes);
    if may_become { Ok(None) } else { Err(MalformedProxyHeader) }
}

fn parse_1(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let head = bytes.get(..MAX_LINE).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', head) else {
        return if head.len() < MAX_LINE { Ok(None) } else { Err(MalformedProxyHeader) };
    };
    let line =
        head.get(WORD.len()..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(MalformedProxyHeader)?;
    let line = std::str::from_utf8(line).map_err(|_| MalformedProxyHeader)?;
    Ok(Some(ProxyHeader { ends: ends_1(line)?, length: end + 1 }))
}

/// `TCP4 192.0.2.1 192.0.2.2 56324 443`, `TCP6 …`, or `UNKNOWN` with any text after it.
fn ends_1(line: &str) -> Result<Option<(SocketAddr, SocketAddr)>, MalformedProxyHeader> {
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or(MalformedProxyHeader);
    let address: fn(&str) -> Option<IpAddr> = match next()? {
        "UNKNOWN" => return Ok(None),
        "TCP4" => |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return Err(MalformedProxyHeader),
    };
    let source = address(next()?).ok_or(MalformedProxyHeader)?;
    let destination = address(next()?).ok_or(MalformedProxyHeader)?;
    let (source_port, destination_port) = (port(next()?)?, port(next()?)?);
    let ends = (SocketAddr::new(source, source_port), SocketAddr::new(destination, destination_port));
    if words.next().is_none() { Ok(Some(ends)) } else { Err(MalformedProxyHeader) }
}

fn port(text: &str) -> Result<u16, MalformedProxyHeader> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(MalformedProxyHeader)
}

fn parse_2(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let Some((head, rest)) = bytes.split_first_chunk::<FIXED>() else { return Ok(None) };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_REST {
        return Err(MalformedProxyHeader);
    }
    let known = matches!(family, 0x00 | 0x11 | 0x12 | 0x21 | 0x22 | 0x31 | 0x32);
    let speaks_for = match command {
        0x20 => false,
        0x21 if known => true,
        _ => return Err(MalformedProxyHeader),
    };
    // The source's address, the destination's, their ports; then TLVs.
    let min = match family {
        0x11 if speaks_for => 12,
        0x21 if speaks_for => 36,
        _ => 0,
    };
    if length < min {
        return Err(MalformedProxyHeader);
    }
    let Some(rest) = rest.get(..length) else { return Ok(None) };
    let ends = match family {
        0x11 if speaks_for => ends_2(rest, |octets: [u8; 4]| octets.into()),
        0x21 if speaks_for => ends_2(rest, |octets: [u8; 16]| octets.into()),
        // Health checks of the proxy itself; sockets that are not TCP over IP.
        _ => None,
    };
    Ok(Some(ProxyHeader { ends, length: FIXED + length }))
}

/// The addresses, each of `N` bytes, and their ports.
fn ends_2<const N: usize>(rest: &[u8], address: fn([u8; N]) -> IpAddr) -> Option<(SocketAddr, SocketAddr)> {
    let (source, rest) = rest.split_first_chunk()?;
    let (destination, rest) = rest.split_first_chunk()?;
    let (source_port, rest) = rest.split_first_chunk()?;
    let destination_port = rest.first_chunk()?;
    let end = |octets: &[u8; N], port: &[u8; 2]| SocketAddr::new(address(*octets), u16::from_be_bytes(*port));
    Some((end(source, source_port), end(destination, destination_port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_line(line: &str) -> Result<Option<Option<IpAddr>>, MalformedProxyHeader> {
        parse(line.as_bytes()).map(|whole| whole.map(|preamble| preamble.ends.map(|(source, _)| source.ip())))
    }

    /// A PROXY protocol header of version 2.
    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE.as_slice(), &[command, family], &length, rest].concat()
    }

    #[test]
    fn lines_of_version_1() {
        let address = |text: &str| Ok(Some(Some(text.parse().unwrap())));
        assert_eq!(of_line("PROXY TCP4 192.0.2.1 192.0.2.2 1 65535\r\nGET"), address("192.0.2.1"));
        assert_eq!(of_line("PROXY TCP6 2001:db8::1 ::1 0 443\r\n"), address("2001:db8::1"));
        for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff:f::1 x 1 2\r\n"] {
            assert_eq!(of_line(unknown), Ok(Some(None)), "{unknown:?}");
        }
        for part in ["", "P", "PROXY", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r"] {
            assert_eq!(of_line(part), Ok(None), "{part:?}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE));
        for bad in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY \r\n",
            long.as_str(),
        ] {
            assert_eq!(of_line(bad), Err(MalformedProxyHeader), "{bad:?}");
        }
    }

    #[test]
    fn both_versions_name_both_ends() {
        let ends = |bytes: &[u8]| parse(bytes).ok().flatten().and_then(|header| header.ends);
        let expected = Some(("192.0.2.1:258".parse().unwrap(), "192.0.2.2:443".parse().unwrap()));
        assert_eq!(ends(b"PROXY TCP4 192.0.2.1 192.0.2.2 258 443\r\n"), expected);
        assert_eq!(ends(&binary(0x21, 0x11, &[192, 0, 2, 1, 192, 0, 2, 2, 1, 2, 1, 187])), expected);
    }

    #[test]
    fn preambles_of_version_2() {
        let (v4, mut v6) = ([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2], [0; 36]);
        v6[15] = 1;
        let source_of = |bytes: &[u8]| {
            parse(bytes).map(|whole| whole.map(|preamble| preamble.ends.map(|(source, _)| source.ip())))
        };
        let address = |text: &str| Ok(Some(Some(text.parse().unwrap())));
        assert_eq!(source_of(&binary(0x21, 0x11, &v4)), address("192.0.2.1"));
        assert_eq!(source_of(&binary(0x21, 0x21, &v6)), address("::1"));
        let with_values = [v4.as_slice(), &[3, 0, 4, 1, 2, 3, 4]].concat();
        assert_eq!(source_of(&binary(0x21, 0x11, &with_values)), address("192.0.2.1"));
        assert_eq!(source_of(&binary(0x20, 0x11, &v4)), Ok(Some(None)), "the proxy speaks for itself");
        for family in [0x00, 0x12, 0x31] {
            assert_eq!(source_of(&binary(0x21, family, &[])), Ok(Some(None)), "{family:#x}");
        }
        for (command, family, rest) in
            [(0x22, 0x11, v4.as_slice()), (0x11, 0x11, &v4), (0x21, 0x41, &v4), (0x21, 0x11, &v4[1..])]
        {
            assert_eq!(
                source_of(&binary(command, family, rest)),
                Err(MalformedProxyHeader),
                "{command:#x} {family:#x}"
            );
        }
        assert_eq!(source_of(&binary(0x21, 0x21, &[0; 35])), Err(MalformedProxyHeader));
        assert_eq!(source_of(&binary(0x20, 0, &[0; MAX_REST + 1])), Err(MalformedProxyHeader));
        assert!(source_of(&binary(0x20, 0, &[0; MAX_REST])).is_ok());
    }

    /// Reads a stream that arrives in these segments: returns the header, or the error, as soon as it is known.
    fn in_segments(segments: &[&[u8]]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
        let mut received = Vec::new();
        for segment in segments {
            received.extend_from_slice(segment);
            match parse(&received) {
                Ok(None) => {}
                known => return known,
            }
        }
        Ok(None)
    }

    /// The result does not depend on the segments: in two at every byte, in three at some, or byte by byte.
    fn is_read_the_same_under_every_cut(bytes: &[u8]) {
        let whole = in_segments(&[bytes]);
        for index in 1..bytes.len() {
            let (one, other) = bytes.split_at(index);
            assert_eq!(in_segments(&[one, other]), whole, "{} cut at {index}", bytes.escape_ascii());
            let (other, last) = other.split_at(index * 7 % other.len());
            assert_eq!(in_segments(&[one, other, last]), whole, "{} cut at {index}", bytes.escape_ascii());
        }
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(in_segments(&each), whole, "{} byte by byte", bytes.escape_ascii());
    }

    /// Headers of both versions, whole before a test changes them, followed by a request.
    fn preambles() -> Vec<Vec<u8>> {
        let addresses = [192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2];
        let lines = [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY TCP6 2001:db8::1 ::1 0 443\r\n",
            "PROXY UNKNOWN\r\n",
            "PROXY UNKNOWN ffff:f::1 x 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        ];
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE));
        let lines = lines.into_iter().chain([long.as_str()]).map(|line| line.as_bytes().to_vec());
        let binaries = [
            binary(0x21, 0x11, &addresses),
            binary(0x21, 0x21, &[1; 36]),
            binary(0x21, 0x11, &[addresses.as_slice(), &[3, 0, 4, 1, 2, 3, 4]].concat()),
            binary(0x20, 0x00, &[]),
            binary(0x21, 0x41, &addresses),
            binary(0x21, 0x11, &addresses[1..]),
            binary(0x21, 0x31, &[0; 216]),
        ];
        let all = lines.chain(binaries);
        all.map(|preamble| [&preamble[..], b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"].concat()).collect()
    }

    #[test]
    fn preambles_are_read_the_same_under_every_cut() {
        preambles().iter().for_each(|bytes| is_read_the_same_under_every_cut(bytes));
    }

    proptest! {
        #[test]
        fn damaged_preambles_are_read_the_same_under_every_cut(
            mut bytes in prop::sample::select(preambles()),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
        ) {
            for (index, byte, kind) in damage {
                let index = index.index(bytes.len());
                match kind {
                    0 => bytes[index] = byte,
                    1 => bytes.insert(index, byte),
                    _ => drop(bytes.remove(index)),
                }
            }
            is_read_the_same_under_every_cut(&bytes);
        }

        #[test]
        fn whatever_comes_is_bounded(
            start in prop::sample::select(vec![&b""[..], WORD, b"PROXY TCP4 ", SIGNATURE, b"\r\n\r\n\0\r\nQUIT\n\x21\x11"]),
            tail in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [start, &tail].concat();
            match parse(&bytes) {
                Ok(Some(preamble)) => {
                    prop_assert!(preamble.length <= bytes.len() && preamble.length <= MAX_PREAMBLE);
                    // Bytes after the header change nothing, and without its last byte the header is incomplete.
                    prop_assert_eq!(parse(&bytes[..preamble.length]), Ok(Some(preamble)));
                    prop_assert_eq!(parse(&bytes[..preamble.length - 1]), Ok(None));
                }
                Ok(None) => prop_assert!(bytes.len() < MAX_PREAMBLE),
                Err(MalformedProxyHeader) => {}
            }
        }
    }
}
