//! A cluster as one worker asks it: the slot says whom, and a node that has not got it (any more) says who has.
//!
//! Each node has a link of its own, so one that is away hurts only the keys it has. Who has what is kept by the [`Survey`].

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::errors::CallError;
use super::health::ServerHealths;
use super::pipeline::{CallMode, PipelineReply};
use super::resp::{Command, Integers};
use super::script::Script;
use super::server_error::ErrorKind;
use super::settings::{RedisServer, RedisSettings};
use super::slot::HashSlot;
use super::topology::{Node, Topology};
use crate::clock::deadline::now;

/// Nodes that may name another one before a call is given up.
const MOST_DETOURS: usize = 5;

/// A cluster. Its connections are closed when it is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    survey: Rc<Topology>,
    settings: Arc<RedisSettings>,
    task: AbortHandle,
}

impl Cluster {
    /// Begins to look around. To be called on a local runtime.
    pub(super) fn open(
        listed: &[RedisServer],
        settings: &Arc<RedisSettings>,
        script: &Arc<Script>,
        healths: &Arc<ServerHealths>,
    ) -> Self {
        let survey = Topology::new(listed.to_vec(), settings, script, healths);
        let task = tokio::task::spawn_local(Rc::clone(&survey).run()).abort_handle();
        Self { survey, settings: Arc::clone(settings), task }
    }

    /// Asks, at `asked`, which is now, the node that has the slot.
    pub(super) async fn ask(
        &self,
        asked: Instant,
        slot: HashSlot,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), CallError> {
        let deadline = asked + self.settings.timeout;
        let Ok(node) = self.survey.node(slot) else {
            return timeout_at(deadline, self.ask_later(slot, write))
                .await
                .unwrap_or(Err(CallError::Timeout));
        };
        match node.link.ask(asked, CallMode::Own, write).await? {
            PipelineReply::Decided(integers, at) => Ok((integers, at)),
            detour => timeout_at(deadline, self.follow(node, detour, write))
                .await
                .unwrap_or(Err(CallError::Timeout)),
        }
    }

    /// Asks when it is known who has the slot, or that nobody knows.
    async fn ask_later(
        &self,
        slot: HashSlot,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), CallError> {
        self.survey.first_look().await;
        let node = self.survey.node(slot)?;
        let reply = node.link.ask(now(), CallMode::Own, write).await?;
        self.follow(node, reply, write).await
    }

    /// Asks whom `teller` names, and whom that one names.
    async fn follow(
        &self,
        mut teller: Rc<Node>,
        mut reply: PipelineReply,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), CallError> {
        for _ in 0..MOST_DETOURS {
            let (node, mode) = match &reply {
                PipelineReply::Decided(..) => break,
                PipelineReply::Moved(slot, named) => {
                    (self.survey.learn(*slot, &named.seen_from(&teller.server))?, CallMode::Own)
                }
                PipelineReply::Ask(named) => {
                    (self.survey.node_called(&named.seen_from(&teller.server))?, CallMode::Asking)
                }
            };
            reply = node.link.ask(now(), mode, write).await?;
            teller = node;
        }
        match reply {
            PipelineReply::Decided(integers, at) => Ok((integers, at)),
            PipelineReply::Moved(..) | PipelineReply::Ask(_) => Err(CallError::Refused(ErrorKind::MOVED)),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}
