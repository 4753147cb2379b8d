//! One worker's connection to one server: all its calls are pipelined on it.
//!
//! A call appends its command to the unsent bytes and waits for its own reply. The connection's task ([`driver`]) sends
//! at once the commands of one tick, distributes the replies in order, and maintains the connection: only the task
//! connects, gives up and reconnects. A call costs no task, no timer, no channel and no allocation.
//!
//! - A call has `timeout` from its start, for every wait: for a connection, to be sent, for the reply, for the script.
//! - While the server is known to be down, a call fails at once.
//! - A call that loses its connection after it was sent fails: it may have been charged, so it is not sent again.
//! - A server that has lost the script is sent it once for all calls that find this out, and the calls are repeated.
//!
//! Elsewhere: which server to call ([`nodes`](super::nodes)), and the decision without a reply (the store).

mod driver;
mod pending;
mod queue;

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::endpoint::RedisEndpoint;
use super::errors::CallError;
use super::handshake;
use super::health::ServerHealths;
use super::resp::{Command, Integers, RespValue};
use super::script::Script;
use super::server_error::{ClusterRedirect, ErrorKind, ServerError};
use super::settings::RedisSettings;
use super::slot::HashSlot;
use crate::clock::now;
use driver::ConnectionDriver;
use pending::{ReplySlot, TimedReply};
use queue::PipelineQueue;

/// A connection that reconnects by itself. Closed when it is dropped.
#[derive(Debug)]
pub(super) struct Pipeline {
    queue: Rc<RefCell<PipelineQueue>>,
    script: Arc<Script>,
    timeout: Duration,
    task: AbortHandle,
}

/// A server's reply to a call.
#[derive(Debug)]
pub(super) enum PipelineReply {
    /// The decision, and the time of the reply.
    Decided(Integers, Instant),
    /// In a cluster: another node has the slot.
    Moved(HashSlot, ClusterRedirect),
    /// In a cluster: another node is to be asked for this call only.
    Ask(ClusterRedirect),
}

impl PipelineReply {
    /// The decision. Another node is not called for it: no server names one unless it belongs to a cluster.
    pub(super) fn decided(self) -> Result<(Integers, Instant), CallError> {
        match self {
            Self::Decided(integers, at) => Ok((integers, at)),
            Self::Moved(..) | Self::Ask(_) => Err(CallError::Refused(ErrorKind::MOVED)),
        }
    }
}

/// Whether a cluster's node is called because of an `ASK` redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallMode {
    /// The node has the slot.
    Own,
    /// The node is about to take the slot over.
    Asking,
}

impl Pipeline {
    /// Begins to connect. Must be called on a local runtime.
    pub(super) fn open(
        target: RedisEndpoint,
        settings: &Arc<RedisSettings>,
        script: &Arc<Script>,
        healths: &ServerHealths,
    ) -> Self {
        let queue = Rc::new(RefCell::new(PipelineQueue::new()));
        let health = healths.of(&target.name());
        let driver = ConnectionDriver::new(
            Rc::clone(&queue),
            target,
            Arc::clone(settings),
            Arc::clone(script),
            health,
        );
        let task = tokio::task::spawn_local(driver.run()).abort_handle();
        Self { queue, script: Arc::clone(script), timeout: settings.timeout, task }
    }

    /// Calls the server at `asked`, the present time. `write` writes the command: once, or again if the server had lost
    /// the script.
    pub(super) async fn ask(
        &self,
        asked: Instant,
        mode: CallMode,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<PipelineReply, CallError> {
        let loads = self.queue.borrow().loads();
        match self.call(asked, mode, write)?.await {
            (Ok(RespValue::Refused(ServerError::NoScript)), _) => {
                let again = self.ask_again(loads, mode, write);
                read(timeout_at(asked + self.timeout, again).await.map_err(|_| CallError::Timeout)??)
            }
            reply => read(reply),
        }
    }

    /// Repeats the call after loading the script. The first call that found it lost loads it: `loads` is the number of
    /// loads before. The server may lose the script again meanwhile.
    async fn ask_again(
        &self,
        mut loads: u64,
        mode: CallMode,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<TimedReply, CallError> {
        let mut tries = 0;
        loop {
            let asked = now();
            loads = self.hand_over(asked, loads);
            let reply = self.call(asked, mode, write)?.await;
            tries += 1;
            if tries == handshake::MAX_LOADS
                || !matches!(reply, (Ok(RespValue::Refused(ServerError::NoScript)), _))
            {
                return Ok(reply);
            }
        }
    }

    /// Loads the script, unless it was loaded since the count was `loads`. Returns the present count.
    fn hand_over(&self, asked: Instant, loads: u64) -> u64 {
        let mut queue = self.queue.borrow_mut();
        if queue.loads() == loads {
            queue.command(asked, |out| handshake::load(out, &self.script));
            queue.count_load();
        }
        queue.loads()
    }

    fn call(
        &self,
        asked: Instant,
        mode: CallMode,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<Call<'_>, CallError> {
        let mut queue = self.queue.borrow_mut();
        if mode == CallMode::Asking {
            queue.command(asked, |out| Command::write(out, |command| command.word(b"ASKING")));
        }
        Ok(Call { queue: &self.queue, slot: Some(queue.call(asked, write)?) })
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn read((reply, at): TimedReply) -> Result<PipelineReply, CallError> {
    match reply? {
        RespValue::Integers(integers) => Ok(PipelineReply::Decided(integers, at)),
        RespValue::Refused(ServerError::Moved(slot, node)) => Ok(PipelineReply::Moved(slot, node)),
        RespValue::Refused(ServerError::Ask(node)) => Ok(PipelineReply::Ask(node)),
        RespValue::Refused(ServerError::NoScript) => Err(CallError::Refused(ErrorKind::NOSCRIPT)),
        RespValue::Refused(ServerError::Other(code)) => Err(CallError::Refused(code)),
        _ => Err(CallError::Unreadable),
    }
}

/// A call that waits for its reply.
#[derive(Debug)]
struct Call<'l> {
    queue: &'l RefCell<PipelineQueue>,
    slot: Option<ReplySlot>,
}

impl Future for Call<'_> {
    type Output = TimedReply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TimedReply> {
        let Some(slot) = self.slot else { return Poll::Pending };
        let reply = self.queue.borrow_mut().callers.poll(slot, context);
        if reply.is_ready() {
            self.slot = None;
        }
        reply
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.queue.borrow_mut().callers.forget(slot);
        }
    }
}
