//! A QUIC connection whose streams carry what a test writes: for frames of HTTP/3 that no library sends.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connecting, Connection, ConnectionError, Endpoint, ReadError, ReadToEndError, RecvStream,
    SendStream, TransportConfig, VarInt,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::harness::{TIMEOUT, eventually};

/// DATA (RFC 9114 §7.2).
pub(crate) const H3_DATA: u64 = 0;
/// HEADERS.
pub(crate) const H3_HEADERS: u64 = 1;
/// SETTINGS.
pub(crate) const H3_SETTINGS: u64 = 4;
/// GOAWAY.
pub(crate) const H3_GOAWAY: u64 = 7;

/// A connection of QUIC, ALPN `h3`.
pub(crate) struct QuicClient {
    runtime: Runtime,
    endpoint: Endpoint,
    connection: Connection,
}

/// One stream in both directions.
#[derive(Debug)]
pub(crate) struct QuicStream {
    pub(crate) sending: SendStream,
    pub(crate) receiving: RecvStream,
}

/// The end of a stream or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuicEnd {
    /// The stream ended after a response with this status.
    Answered(u16),
    /// The stream was reset.
    Reset(u64),
    /// The connection was closed.
    Closed(u64),
}

impl QuicClient {
    /// Connects to a gateway that shows a certificate for `a.test`.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr, tls: &Arc<rustls::ClientConfig>) -> Self {
        Self::try_connect(address, tls).expect("a connection")
    }

    /// As [`Self::connect`]; the gateway may refuse.
    pub(crate) fn try_connect(
        address: SocketAddr,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self, ConnectionError> {
        Self::connect_by(address, tls, TransportConfig::default(), |connecting| connecting)
    }

    /// As [`Self::try_connect`], with these settings, by what `begin` makes of the handshake.
    pub(crate) fn connect_by<F>(
        address: SocketAddr,
        tls: &Arc<rustls::ClientConfig>,
        transport: TransportConfig,
        begin: impl FnOnce(Connecting) -> F,
    ) -> Result<Self, ConnectionError>
    where
        F: Future<Output = Result<Connection, ConnectionError>>,
    {
        let mut config = quic_config(tls);
        config.transport_config(Arc::new(transport));
        Self::connect_as(address, config, begin)
    }

    /// As [`Self::connect_by`], with these settings of all.
    pub(crate) fn connect_as<F>(
        address: SocketAddr,
        config: ClientConfig,
        begin: impl FnOnce(Connecting) -> F,
    ) -> Result<Self, ConnectionError>
    where
        F: Future<Output = Result<Connection, ConnectionError>>,
    {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = threads.expect("a runtime");
        let within = runtime.enter();
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        drop(within);
        let connecting = async {
            let connecting = endpoint.connect_with(config, address, "a.test").expect("good settings");
            tokio::time::timeout(TIMEOUT, begin(connecting)).await.expect("in time")
        };
        let connection = runtime.block_on(connecting)?;
        Ok(Self { runtime, endpoint, connection })
    }

    /// The connection.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends further packets from another port.
    pub(crate) fn change_port(&self) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let _within = self.runtime.enter();
        self.endpoint.rebind(socket).expect("another socket");
    }

    /// Sends further packets from another port, until the gateway has received one.
    #[track_caller]
    pub(crate) fn is_followed_to_another_port(&self) {
        // The gateway asks whether the client receives packets there (RFC 9000 §9.3).
        let asked = || self.connection.stats().frame_rx.path_challenge;
        let before = asked();
        self.change_port();
        eventually("the gateway to follow", || (asked() > before).then_some(()));
    }

    /// Opens a stream in both directions that begins with `bytes`.
    pub(crate) fn open(&self, bytes: &[u8]) -> QuicStream {
        self.block_on(async {
            let (mut sending, receiving) = self.connection.open_bi().await.expect("room for a stream");
            sending.write_all(bytes).await.expect("the gateway reads");
            QuicStream { sending, receiving }
        })
    }

    /// Sends `bytes` as a whole request.
    pub(crate) fn send(&self, bytes: &[u8]) -> QuicStream {
        let mut stream = self.open(bytes);
        stream.sending.finish().expect("the stream is open");
        stream
    }

    /// What becomes of `bytes` as a whole request.
    pub(crate) fn fate(&self, bytes: &[u8]) -> QuicEnd {
        let stream = self.send(bytes);
        self.end_of(stream)
    }

    /// Waits until the gateway has ended a stream.
    pub(crate) fn end_of(&self, mut stream: QuicStream) -> QuicEnd {
        match self.block_on(stream.receiving.read_to_end(1 << 24)) {
            Ok(bytes) => QuicEnd::Answered(final_status(&bytes)),
            Err(ReadToEndError::Read(ReadError::Reset(code))) => QuicEnd::Reset(code.into_inner()),
            Err(ReadToEndError::Read(ReadError::ConnectionLost(error))) => QuicEnd::Closed(code_of(&error)),
            Err(error) => panic!("{error}"),
        }
    }

    /// The next frame of a response. `Ok(None)`: the stream has ended.
    pub(crate) fn next_frame(&self, stream: &mut QuicStream) -> Result<Option<(u64, Vec<u8>)>, QuicEnd> {
        let mut bytes = Vec::new();
        loop {
            if let Some((kind, payload, _)) = read_frame(&bytes) {
                return Ok(Some((kind, payload)));
            }
            let mut byte = [0];
            match self.block_on(stream.receiving.read(&mut byte)) {
                Ok(Some(_)) => bytes.extend(byte),
                Ok(None) => return Ok(None),
                Err(ReadError::Reset(code)) => return Err(QuicEnd::Reset(code.into_inner())),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Opens a stream in one direction that begins with `bytes`.
    pub(crate) fn open_one_way(&self, bytes: &[u8]) -> SendStream {
        self.block_on(async {
            let mut stream = self.connection.open_uni().await.expect("room for a stream");
            stream.write_all(bytes).await.expect("the gateway reads");
            stream
        })
    }

    /// Opens the control stream, with settings that change nothing.
    pub(crate) fn open_control(&self) -> SendStream {
        self.open_one_way(&[&[0][..], &h3_frame(H3_SETTINGS, b"")].concat())
    }

    /// Waits until the gateway closes the connection, and gives the code.
    pub(crate) fn close_code(&self) -> u64 {
        code_of(&self.block_on(self.connection.closed()))
    }

    /// Reads the gateway's control stream until GOAWAY, whose id it gives; before it, those of other kinds.
    pub(crate) fn goaways(&self, count: usize) -> Vec<u64> {
        self.block_on(async {
            let mut stream = self.connection.accept_uni().await.expect("a control stream");
            let (mut held, mut ids) = (Vec::new(), Vec::new());
            let mut is_typed = false;
            while ids.len() < count {
                let chunk = stream.read_chunk(4096, true).await.expect("it is open").expect("it goes on");
                held.extend_from_slice(&chunk.bytes);
                if !is_typed {
                    assert_eq!(held.remove(0), 0, "the control stream");
                    is_typed = true;
                }
                while let Some((kind, payload, length)) = read_frame(&held) {
                    if kind == H3_GOAWAY {
                        ids.push(read_number(&payload).expect("an id").0);
                    }
                    held.drain(..length);
                }
            }
            ids
        })
    }

    /// Closes the connection.
    pub(crate) fn close(&self) {
        self.connection.close(VarInt::from_u32(0x100), b"");
        self.block_on(self.endpoint.wait_idle());
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(future)
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(TIMEOUT, future).await.expect("in time") };
        self.runtime.block_on(bounded)
    }
}

/// The settings of a client.
pub(crate) fn quic_config(tls: &Arc<rustls::ClientConfig>) -> ClientConfig {
    let tls = QuicClientConfig::try_from(Arc::clone(tls)).expect("TLS 1.3");
    ClientConfig::new(Arc::new(tls))
}

/// The code with which the gateway closed a connection.
pub(crate) fn code_of(error: &ConnectionError) -> u64 {
    match error {
        ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        error => panic!("the gateway did not close the connection: {error}"),
    }
}

/// A frame.
pub(crate) fn h3_frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = h3_number(kind);
    frame.extend(h3_number(payload.len() as u64));
    frame.extend_from_slice(payload);
    frame
}

/// An integer (RFC 9000 §16).
pub(crate) fn h3_number(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    match value {
        0..=0x3f => bytes[7..].to_vec(),
        0x40..=0x3fff => vec![bytes[6] | 0x40, bytes[7]],
        0x4000..=0x3fff_ffff => [&[bytes[4] | 0x80][..], &bytes[5..]].concat(),
        _ => [&[bytes[0] | 0xc0][..], &bytes[1..]].concat(),
    }
}

/// A HEADERS frame with these fields, each written out (RFC 9204 §4.5.6).
pub(crate) fn h3_head(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        super::hpack::put_number(name.len(), 0x20, 0x07, &mut section);
        section.extend_from_slice(name.as_bytes());
        super::hpack::put_string(value.as_bytes(), false, &mut section);
    }
    h3_frame(H3_HEADERS, &section)
}

/// The type and payload of the first frame, and its length in all, once it is whole.
fn read_frame(bytes: &[u8]) -> Option<(u64, Vec<u8>, usize)> {
    let (kind, first) = read_number(bytes)?;
    let (length, second) = read_number(bytes.get(first..)?)?;
    let begin = first + second;
    let end = begin + usize::try_from(length).expect("a length");
    Some((kind, bytes.get(begin..end)?.to_vec(), end))
}

fn read_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1_usize << (first >> 6);
    let rest = bytes.get(1..length)?;
    Some((rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), length))
}

/// The status of the last head that is no trailer.
fn final_status(mut bytes: &[u8]) -> u16 {
    let mut statuses = Vec::new();
    while let Some((kind, payload, length)) = read_frame(bytes) {
        if kind == H3_HEADERS {
            statuses.extend(h3_status(&payload));
        }
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "the response ends within a frame");
    statuses.pop().expect("a response")
}

/// The status, which is the first field: an entry of the static table (RFC 9204 appendix A), or a literal.
pub(crate) fn h3_status(section: &[u8]) -> Option<u16> {
    match section.get(2..)? {
        [0xff, index, ..] => [100, 204, 206, 302, 400, 403, 421, 425, 500].get(usize::from(*index)).copied(),
        [index @ 0xd8..=0xdc, ..] => [103, 200, 304, 404, 503].get(usize::from(index - 0xd8)).copied(),
        [0x5f, 0x09, 3, digits @ ..] => std::str::from_utf8(digits.get(..3)?).ok()?.parse().ok(),
        _ => None,
    }
}
