//! A cluster as one worker asks it: the slot says whom, and a node that has not got it (any more) says who has.
//!
//! Each node has a link of its own, so one that is away hurts only the keys it has. Who has what is kept by the [`Survey`].

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::fault::Fault;
use super::health::Healths;
use super::link::{Mode, Reply};
use super::refusal::Code;
use super::resp::{Command, Integers};
use super::script::Script;
use super::settings::{Server, Settings};
use super::slot::Slot;
use super::survey::{Node, Survey};
use crate::clock::deadline::now;

/// Nodes that may name another one before a call is given up.
const MOST_DETOURS: usize = 5;

/// A cluster. Its connections are closed when it is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    survey: Rc<Survey>,
    settings: Arc<Settings>,
    task: AbortHandle,
}

impl Cluster {
    /// Begins to look around. To be called on a local runtime.
    pub(super) fn open(
        listed: &[Server],
        settings: &Arc<Settings>,
        script: &Arc<Script>,
        healths: &Arc<Healths>,
    ) -> Self {
        let survey = Survey::new(listed.to_vec(), settings, script, healths);
        let task = tokio::task::spawn_local(Rc::clone(&survey).run()).abort_handle();
        Self { survey, settings: Arc::clone(settings), task }
    }

    /// Asks, at `asked`, which is now, the node that has the slot.
    pub(super) async fn ask(
        &self,
        asked: Instant,
        slot: Slot,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), Fault> {
        let deadline = asked + self.settings.timeout;
        let Ok(node) = self.survey.node(slot) else {
            return timeout_at(deadline, self.ask_later(slot, write)).await.unwrap_or(Err(Fault::Timeout));
        };
        match node.link.ask(asked, Mode::Own, write).await? {
            Reply::Decided(integers, at) => Ok((integers, at)),
            detour => {
                timeout_at(deadline, self.follow(node, detour, write)).await.unwrap_or(Err(Fault::Timeout))
            }
        }
    }

    /// Asks when it is known who has the slot, or that nobody knows.
    async fn ask_later(
        &self,
        slot: Slot,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), Fault> {
        self.survey.first_look().await;
        let node = self.survey.node(slot)?;
        let reply = node.link.ask(now(), Mode::Own, write).await?;
        self.follow(node, reply, write).await
    }

    /// Asks whom `teller` names, and whom that one names.
    async fn follow(
        &self,
        mut teller: Rc<Node>,
        mut reply: Reply,
        write: &impl Fn(&mut Command<'_>),
    ) -> Result<(Integers, Instant), Fault> {
        for _ in 0..MOST_DETOURS {
            let (node, mode) = match &reply {
                Reply::Decided(..) => break,
                Reply::Moved(slot, named) => {
                    (self.survey.learn(*slot, &named.seen_from(&teller.server))?, Mode::Own)
                }
                Reply::Ask(named) => {
                    (self.survey.node_called(&named.seen_from(&teller.server))?, Mode::Asking)
                }
            };
            reply = node.link.ask(now(), mode, write).await?;
            teller = node;
        }
        match reply {
            Reply::Decided(integers, at) => Ok((integers, at)),
            Reply::Moved(..) | Reply::Ask(_) => Err(Fault::Refused(Code::MOVED)),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}
