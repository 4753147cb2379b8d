//! The PROXY protocol header that a server is sent before the first byte of a connection (HAProxy's
//! `proxy-protocol.txt`). It names the client, so such a connection serves requests of one client only.

use std::net::{IpAddr, SocketAddr};

use crate::plan::ProxyProtocolVersion;

/// A header of version 2 begins with this.
pub const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2: the header names a connection of a client.
const PROXY: u8 = 0x21;
/// Version 2: the connection is the gateway's own.
const LOCAL: u8 = 0x20;
/// Version 2: TCP over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
/// The length of the addresses and ports of version 2, in bytes.
const IPV4_LENGTH: u8 = 12;
const IPV6_LENGTH: u8 = 36;

/// The header for a connection on behalf of a client. `client`: its address, with port 0 if that is unknown. `local`: the
/// address that it connected to; without one, the header names no client.
pub fn client_header(
    version: ProxyProtocolVersion,
    client: SocketAddr,
    local: Option<SocketAddr>,
) -> Box<[u8]> {
    let Some(local) = local else { return own_header(version) };
    let (mut source, mut destination) = (client.ip().to_canonical(), local.ip().to_canonical());
    // Both have to be of one family.
    if source.is_ipv4() != destination.is_ipv4() {
        (source, destination) = (mapped(source), mapped(destination));
    }
    let ports = (client.port(), local.port());
    match version {
        ProxyProtocolVersion::V1 => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {source} {destination} {} {}\r\n", ports.0, ports.1).into_bytes().into()
        }
        ProxyProtocolVersion::V2 => {
            let (family, length) = if source.is_ipv4() { (TCP4, IPV4_LENGTH) } else { (TCP6, IPV6_LENGTH) };
            let mut header = [SIGNATURE.as_slice(), &[PROXY, family, 0, length]].concat();
            for address in [source, destination] {
                match address {
                    IpAddr::V4(address) => header.extend_from_slice(&address.octets()),
                    IpAddr::V6(address) => header.extend_from_slice(&address.octets()),
                }
            }
            header.extend_from_slice(&ports.0.to_be_bytes());
            header.extend_from_slice(&ports.1.to_be_bytes());
            header.into()
        }
    }
}

/// The header for a connection that names no client: of a health check, or of a client that is not identified.
pub fn own_header(version: ProxyProtocolVersion) -> Box<[u8]> {
    match version {
        ProxyProtocolVersion::V1 => b"PROXY UNKNOWN\r\n".as_slice().into(),
        ProxyProtocolVersion::V2 => [SIGNATURE.as_slice(), &[LOCAL, 0, 0, 0]].concat().into(),
    }
}

fn mapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn version_1(client: &str, local: &str) -> String {
        let header = client_header(ProxyProtocolVersion::V1, address(client), Some(address(local)));
        String::from_utf8(header.into()).expect("text")
    }

    #[test]
    fn version_1_is_a_line() {
        assert_eq!(
            version_1("192.0.2.1:56324", "192.0.2.2:443"),
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"
        );
        assert_eq!(version_1("[2001:db8::1]:0", "[::1]:443"), "PROXY TCP6 2001:db8::1 ::1 0 443\r\n");
        assert_eq!(
            version_1("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2"),
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
        );
        assert_eq!(version_1("192.0.2.1:1", "[::1]:2"), "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n");
        let longest = version_1(
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
        );
        assert!(longest.len() <= 107, "the specification allows 107 bytes");
    }

    #[test]
    fn version_2_is_binary() {
        let header =
            client_header(ProxyProtocolVersion::V2, address("192.0.2.1:258"), Some(address("192.0.2.2:443")));
        let expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x01\x02\x01\xbb";
        assert_eq!(&*header, expected);
        let header =
            client_header(ProxyProtocolVersion::V2, address("192.0.2.1:258"), Some(address("[::1]:443")));
        assert_eq!((header.len(), header[13], header[15]), (16 + 36, 0x21, 36));
    }

    #[test]
    fn the_gateways_own_connections_name_no_client() {
        assert_eq!(&*own_header(ProxyProtocolVersion::V1), b"PROXY UNKNOWN\r\n");
        assert_eq!(&*own_header(ProxyProtocolVersion::V2), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
        let unknown = client_header(ProxyProtocolVersion::V1, address("192.0.2.1:1"), None);
        assert_eq!(&*unknown, b"PROXY UNKNOWN\r\n");
    }
}
