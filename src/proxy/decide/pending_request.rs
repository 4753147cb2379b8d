//! A request that is not decided yet.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use bytes::BytesMut;

use super::undecided::HeldBytes;
use crate::http1::request::RequestHead;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::worker::WorkerPlan;
use crate::proxy::worker::buffer_pool::LastHead;
use crate::route::client::ClientAddress;
use crate::route::content::RequestContent;
use crate::route::identity::Identity;

/// A request that is not decided yet, and what is found out about it before it is charged.
#[derive(Clone, Copy)]
pub(crate) struct PendingRequest<'p, 'r> {
    pub(crate) plan: &'p WorkerPlan,
    pub(crate) peer: &'r ConnectionPeer,
    pub(crate) head: &'r RequestHead<'r>,
    /// What was found out about the head before it, if it is equal.
    pub(crate) last_head: &'r Cell<Option<LastHead>>,
    /// What its credential says, once it was verified.
    pub(crate) identity: &'p OnceCell<Arc<Identity>>,
    /// Its body, once it was read.
    pub(crate) body: &'r OnceCell<Box<ReadBody>>,
    /// The bytes received after its head.
    pub(crate) ahead: &'r [u8],
    /// What it holds meanwhile.
    pub(crate) held: &'r HeldBytes,
    /// Another proxy forwards it, or would: `peer` asks about it.
    pub(crate) asked: Option<AskedFor>,
}

/// For whom a proxy or an application asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedFor {
    /// The client.
    pub(crate) client: ClientAddress,
    /// Whether it uses TLS.
    pub(crate) secure: bool,
    /// Nothing is charged.
    pub(crate) peeks: bool,
}

/// The body of a request, as keys see it.
#[derive(Debug)]
pub(crate) struct ReadBody {
    pub(crate) content: RequestContent,
    /// The bytes received after the part that was read; `None`: nothing was read.
    pub(crate) received: Option<BytesMut>,
}
