//! A client that sends frames of HTTP/2 written by hand, the forbidden ones above all.

use std::net::SocketAddr;

use super::hpack::put_string;
use crate::harness::Client;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One connection.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) client: Client,
}

/// A frame (RFC 9113 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// What became of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was answered with this status.
    Answered(u16),
    /// It was reset with this code.
    Reset(u32),
    /// The connection was ended with this code.
    GoneAway(u32),
    /// The connection was closed without a word.
    Closed,
}

impl Frame {
    /// The first 32 bits of the payload, or the last of a GOAWAY's first 64: an error's code.
    fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

/// A frame as it goes over the wire.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Fields as literals that no table keeps (RFC 7541 §6.2.2).
pub(crate) fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        put_string(name.as_ref(), false, &mut block);
        put_string(value.as_ref(), false, &mut block);
    }
    block
}

/// The head of a request: `GET path` from `test`, and more fields behind.
pub(crate) fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block_ =
        block(&[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "test")]);
    block_.extend(block(more));
    block_
}

impl Frames {
    /// Connects and sends the preface with empty settings.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(Client::connect(address), &[])
    }

    /// Speaks on this connection; the preface has these settings.
    pub(crate) fn over(mut client: Client, settings: &[(u16, u32)]) -> Self {
        let setting = |&(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let settings: Vec<u8> = settings.iter().flat_map(setting).collect();
        client.write([PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat());
        Self { client }
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.client.write(frame(kind, flags, stream, payload));
    }

    /// Sends frames that arrive together.
    pub(crate) fn send_together(&mut self, frames: &[Vec<u8>]) {
        self.client.write(frames.concat());
    }

    /// Sends a whole request without body.
    pub(crate) fn request(&mut self, stream: u32, block: &[u8]) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, block);
    }

    /// Reads a frame. `None`: the connection is closed.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let header = self.client.read_exact(9).ok()?;
        let [a, b, c, kind, flags, ref stream @ ..] = header[..] else { return None };
        let length = u32::from_be_bytes([0, a, b, c]);
        let payload = self.client.read_exact(usize::try_from(length).expect("small")).ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream.try_into().ok()?), payload })
    }

    /// Reads until there is a frame of this kind.
    #[track_caller]
    pub(crate) fn read_until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.read().expect("the connection is open");
            if frame.kind == kind && (kind != SETTINGS || frame.flags & ACK == 0) {
                return frame;
            }
        }
    }

    /// What becomes of a stream. Its answer must be the first on the connection, as its status is read without tables.
    pub(crate) fn fate(&mut self, stream: u32) -> Fate {
        loop {
            match self.read() {
                None => return Fate::Closed,
                Some(frame) if frame.kind == GOAWAY && frame.code() != 0 => {
                    return Fate::GoneAway(frame.code());
                }
                Some(frame) if frame.stream != stream => {}
                Some(frame) if frame.kind == RST_STREAM => return Fate::Reset(frame.code()),
                Some(frame) if frame.kind == HEADERS => return Fate::Answered(status(&frame.payload)),
                Some(_) => {}
            }
        }
    }

    /// Reads to the end of the connection; gives the last GOAWAY's code.
    pub(crate) fn end(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.read() {
            if frame.kind == GOAWAY {
                code = Some(frame.code());
            }
        }
        code
    }
}

/// The status with which a block begins: indexed, or a literal with an indexed name (RFC 7541 appendix A).
fn status(block: &[u8]) -> u16 {
    match *block {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        [0x48 | 0x08, 3, a, b, c, ..] => {
            [a, b, c].iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
        }
        [0x48 | 0x08, length @ 0x82..=0x83, ref rest @ ..] => {
            huffman_digits(&rest[..usize::from(length & 0x7f)])
        }
        _ => panic!("no status at the front of {block:x?}"),
    }
}

/// `0`, `1` and `2` have codes of five bits, the other digits of six (RFC 7541 appendix B).
fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u16> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| u16::from(byte >> at & 1))).collect();
    let value = |bits: &[u16]| bits.iter().fold(0, |sum, bit| sum * 2 + bit);
    let (mut at, mut number) = (0, 0);
    for _ in 0..3 {
        let short = value(&bits[at..at + 5]);
        let (digit, length) =
            if short < 3 { (short, 5) } else { (value(&bits[at..at + 6]) - 0b01_1001 + 3, 6) };
        number = number * 10 + digit;
        at += length;
    }
    number
}
