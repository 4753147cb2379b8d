//! A cluster, as one worker uses it: a slot map selects the node, and a node without the slot redirects to the one that
//! has it.
//!
//! Each node has a connection of its own, so an unavailable node affects only the keys in its slots. [`Topology`] keeps
//! the slot map.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::errors::CallError;
use super::health::ServerHealths;
use super::pipeline::{CallMode, PipelineReply};
use super::resp::{Command, Integers};
use super::script::Script;
use super::settings::{RedisServer, RedisSettings};
use super::slot::HashSlot;
use super::topology::{Node, Topology};
use crate::clock::now;

/// The maximum number of redirects of a call.
const MAX_REDIRECTS: usize = 5;

/// A cluster. Its connections are closed when it is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    survey: Rc<Topology>,
    settings: Arc<RedisSettings>,
    task: AbortHandle,
}

impl Cluster {
    /// Begins to read the topology. Must be called on a local runtime.
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

    /// Calls the node of the slot at `asked`, the present time.
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
        match node.pipeline.ask(asked, CallMode::Own, write).await? {
            PipelineReply::Decided(integers, at) => Ok((integers, at)),
            detour => timeout_at(deadline, self.follow(node, detour, write))
                .await
                .unwrap_or(Err(CallError::Timeout)),
        }
    }

    /// Calls once the slot's node is known, or known to be unavailable.
    async fn ask_later(
        &self,
        slot: HashSlot,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), CallError> {
        self.survey.first_look().await;
        let node = self.survey.node(slot)?;
        let reply = node.pipeline.ask(now(), CallMode::Own, write).await?;
        self.follow(node, reply, write).await
    }

    /// Follows a redirect of `teller`, and further redirects.
    async fn follow(
        &self,
        mut teller: Rc<Node>,
        mut reply: PipelineReply,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), CallError> {
        for _ in 0..MAX_REDIRECTS {
            let (node, mode) = match &reply {
                PipelineReply::Decided(..) => break,
                PipelineReply::Moved(slot, named) => {
                    (self.survey.learn(*slot, &named.seen_from(&teller.server))?, CallMode::Own)
                }
                PipelineReply::Ask(named) => {
                    (self.survey.node_called(&named.seen_from(&teller.server))?, CallMode::Asking)
                }
            };
            reply = node.pipeline.ask(now(), mode, write).await?;
            teller = node;
        }
        reply.decided()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}
