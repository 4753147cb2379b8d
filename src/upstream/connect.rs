//! Opens a connection to a server: TCP to one of its addresses, or its Unix socket; then TLS if configured.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Failure;
use super::dns::{ConnectedAddress, HostAddress};
use crate::clock::now;
use crate::net::{Socket, Stream, set_ack_timeout};
use crate::plan::Endpoint;

/// Addresses that are tried for one connection. More would leave too little time for each.
const MAX_TRIES: usize = 3;
/// The pause before another attempt at a Unix socket whose queue is full.
const FULL_QUEUE_REST: Duration = Duration::from_millis(1);
/// A server that acknowledges nothing of what was sent for so long is gone. A server that reads nothing counts as well, so
/// this is longer than a slow upload pauses.
const ACK_TIMEOUT: Duration = Duration::from_secs(120);
/// A connection older than this serves no further request, so that load balancers before the servers can move it.
pub(super) const MAX_AGE: Duration = Duration::from_secs(3600);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The connection was refused, the server is unreachable, or its name does not resolve.
    #[error("no connection: {0}")]
    Connect(io::Error),
    /// No address accepted a connection, or the TLS handshake did not end, in time.
    #[error("no connection in time")]
    Timeout,
    /// TLS failed: the server's certificate is not trusted, the server rejects the gateway's, or speaks no TLS.
    #[error("no TLS: {0}")]
    Tls(io::Error),
}

impl ConnectError {
    /// The failure of a request that needed the connection.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Connect(_) => Failure::Connect,
            Self::Timeout => Failure::ConnectTimeout,
            Self::Tls(_) => Failure::Tls,
        }
    }
}

/// Connects to the server's address number `turn`, or to one of the next, sends the PROXY protocol header, and performs
/// the TLS handshake; all within `max_wait`.
pub(super) async fn connect(
    endpoint: &Endpoint,
    host_address: &HostAddress,
    turn: usize,
    proxy_header: Option<&[u8]>,
    max_wait: Duration,
) -> Result<(Stream, ConnectedAddress), ConnectError> {
    let end = now() + max_wait;
    let dialling = async {
        if let HostAddress::UnixSocket(path) = host_address {
            let mut socket = open_unix_socket(path).await.map_err(ConnectError::Connect)?;
            announce(&mut socket, proxy_header).await?;
            return Ok((Stream::Plain(Socket::attached(socket)), ConnectedAddress::UnixSocket));
        }
        let addresses = host_address.addresses().await;
        let opened = open_socket(&addresses, turn, endpoint.port, end).await;
        let (mut socket, address) = opened.inspect_err(|_| host_address.report_unreachable())?;
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a socket that refuses works, but small requests wait for acknowledgements"
        )]
        let _ = socket.set_nodelay(true);
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a kernel without the option waits longer for a server that is gone"
        )]
        let _ = set_ack_timeout(&socket, ACK_TIMEOUT);
        announce(&mut socket, proxy_header).await?;
        Ok((secure(endpoint, socket).await?, ConnectedAddress::Ip(address)))
    };
    timeout_at(end, dialling).await.unwrap_or(Err(ConnectError::Timeout))
}

/// Leaves the next address as much time as an address that does not answer had itself.
async fn open_socket(
    addresses: &[IpAddr],
    turn: usize,
    port: u16,
    end: Instant,
) -> Result<(TcpStream, IpAddr), ConnectError> {
    let mut left = u32::try_from(addresses.len().min(MAX_TRIES)).unwrap_or(1);
    let turn = turn.checked_rem(addresses.len()).unwrap_or(0);
    let mut fault = ConnectError::Connect(io::Error::new(io::ErrorKind::NotFound, "its name has no address"));
    for &address in addresses.iter().cycle().skip(turn).take(addresses.len().min(MAX_TRIES)) {
        let share = end.saturating_duration_since(now()) / left.max(1);
        left = left.saturating_sub(1);
        fault = match timeout(share, TcpStream::connect((address, port))).await {
            Ok(Ok(socket)) => return Ok((socket, address)),
            Ok(Err(error)) => ConnectError::Connect(error),
            Err(_) => ConnectError::Timeout,
        };
    }
    Err(fault)
}

/// Sends the PROXY protocol header.
async fn announce(socket: &mut TcpStream, proxy_header: Option<&[u8]>) -> Result<(), ConnectError> {
    match proxy_header {
        None => Ok(()),
        Some(header) => socket.write_all(header).await.map_err(ConnectError::Connect),
    }
}

/// Connects to a Unix socket. While its queue of connections is full, Linux refuses at once instead of waiting; so it is
/// tried again, until the caller's time is over.
///
/// The socket is used through the type of TCP sockets: the calls that read and write it are the same, and the hot path
/// needs no further case.
async fn open_unix_socket(path: &Path) -> io::Result<TcpStream> {
    loop {
        match UnixStream::connect(path).await {
            Ok(socket) => return TcpStream::from_std(OwnedFd::from(socket.into_std()?).into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(FULL_QUEUE_REST).await,
            Err(error) => return Err(error),
        }
    }
}

async fn secure(endpoint: &Endpoint, socket: TcpStream) -> Result<Stream, ConnectError> {
    let Some(trust) = &endpoint.tls else { return Ok(Stream::Plain(Socket::attached(socket))) };
    let nameless = || io::Error::new(io::ErrorKind::InvalidInput, "no certificate can be for its name");
    let name = trust.name(&endpoint.host).ok_or_else(|| ConnectError::Tls(nameless()))?;
    Stream::connect_tls(socket, trust.config.clone(), name).await.map_err(ConnectError::Tls)
}
