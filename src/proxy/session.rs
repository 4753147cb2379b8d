//! The client's side of a request: one arm for HTTP/1.1 and HTTP/2.
//!
//! `request_reader` reads heads and bodies, `response_writer` sends responses, and a [`Session`] holds both with what the
//! connection keeps from one request to the next. What is above asks it for bytes and does not know which version the
//! client speaks: a GET over HTTP/2 has a session of its own, which a stream serves, and one over HTTP/1.1 has that of its
//! connection.

pub(super) mod grpc;
pub(super) mod passing_fields;
pub(super) mod peer;
pub(super) mod request_body;
pub(super) mod request_reader;
pub(super) mod response_options;
pub(super) mod response_writer;
pub(super) mod server_stream;

use std::rc::Rc;

use bytes::BytesMut;
use tokio::time::Instant;

use super::worker::Worker;
use super::worker::buffer_pool::Buffers;
use crate::upstream::private::PrivateConnections;
use peer::ConnectionPeer;
use request_reader::{RequestReader, Source};
use response_writer::{ResponseWriter, SocketWriter};

/// The client's side of a request, with the state kept for its next.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: Rc<Worker>,
    pub(crate) peer: Rc<ConnectionPeer>,
    pub(crate) reader: RequestReader,
    pub(crate) writer: ResponseWriter,
    /// Backend connections that carry this client's logins.
    pub(crate) private: PrivateConnections,
    /// Empty while no request is under way.
    pub(crate) buffers: Option<Box<Buffers>>,
    /// The connection may stay open after the present response.
    pub(crate) may_keep: bool,
    /// The client has declared that it sends nothing after the present request (RFC 9112 §9.6), which has no body. Old
    /// clients send an empty line after one (§2.2).
    pub(crate) is_last: bool,
}

impl Session {
    pub(crate) fn new(source: Source, peer: Rc<ConnectionPeer>, worker: Rc<Worker>, now: Instant) -> Self {
        let plan = worker.plan();
        let writer = match &source {
            Source::Http1(stream) => {
                ResponseWriter::Http1(SocketWriter::new(Rc::clone(stream), plan.server.write_timeout))
            }
            Source::Stream(stream) => ResponseWriter::Stream(Rc::clone(stream)),
        };
        Self {
            reader: RequestReader::new(source, Rc::clone(&plan.read_bounds), now),
            writer,
            peer,
            private: PrivateConnections::default(),
            buffers: None,
            may_keep: true,
            is_last: false,
            worker,
        }
    }

    /// The peer and the bytes that it has sent; the rest of the session is not needed any more.
    pub(crate) fn into_received(self: Box<Self>) -> (Rc<ConnectionPeer>, BytesMut) {
        (self.peer, self.buffers.map(|buffers| buffers.inbound).unwrap_or_default())
    }
}
