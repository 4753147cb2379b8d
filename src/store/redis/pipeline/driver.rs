//! The connection driver: the task that connects, sends, distributes replies, expires calls, and reconnects.
//!
//! There is at most one connection: the old one is closed before the next is opened.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::{Instant, timeout_at};

use super::queue::{CommandOwner, PipelineQueue};
use crate::clock::{Deadline, now};
use crate::store::redis::breaker::Breaker;
use crate::store::redis::endpoint::RedisEndpoint;
use crate::store::redis::errors::ConnectionTrouble;
use crate::store::redis::handshake;
use crate::store::redis::health::{Health, OutageGuard};
use crate::store::redis::resp::{self, MalformedReply, RespValue};
use crate::store::redis::script::Script;
use crate::store::redis::server_error::{ErrorKind, ServerError};
use crate::store::redis::settings::RedisSettings;
use crate::store::redis::transport::Transport;

/// The timeout of a connection attempt, or that of a call if longer; but attempts must begin at most 2 s apart.
const TRY: Duration = Duration::from_secs(1);
/// The maximum timeout of a connection attempt; see [`TRY`].
const LONGEST_TRY: Duration = Duration::from_millis(1_800);
/// A connection that breaks within this time and without a reply counts as a failed attempt.
const STEADY: Duration = Duration::from_secs(1);

/// A timer that fires this much too late was delayed by the machine, not by itself.
const HELD_UP: Duration = Duration::from_millis(5);

pub(super) struct ConnectionDriver {
    queue: Rc<RefCell<PipelineQueue>>,
    target: RedisEndpoint,
    settings: Arc<RedisSettings>,
    script: Arc<Script>,
    health: Arc<Health>,
    breaker: Breaker,
    /// Held while the breaker is open.
    down: Option<OutageGuard>,
    /// When the oldest pending call times out.
    deadline: Deadline,
    /// No call times out before this.
    lent: Option<Instant>,
    /// Received bytes not distributed yet.
    inbound: BytesMut,
    /// The present connection has received a reply.
    answered: bool,
    /// A connection was usable before.
    spoke: bool,
}

impl ConnectionDriver {
    pub(super) fn new(
        queue: Rc<RefCell<PipelineQueue>>,
        target: RedisEndpoint,
        settings: Arc<RedisSettings>,
        script: Arc<Script>,
        health: Arc<Health>,
    ) -> Self {
        Self {
            queue,
            target,
            settings,
            script,
            health,
            breaker: Breaker::default(),
            down: None,
            deadline: Deadline::default(),
            lent: None,
            inbound: BytesMut::new(),
            answered: false,
            spoke: false,
        }
    }

    /// Keeps the connection until the task is aborted.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let mut last_try = now();
            match self.connect(last_try).await {
                Ok(wire) => {
                    self.begin();
                    let connected = now();
                    let trouble = self.serve(wire).await;
                    last_try = now();
                    self.lose(&trouble, last_try);
                    if !self.answered && last_try < connected + STEADY {
                        self.give_up(&trouble);
                    }
                }
                // The server has replied before, so TLS is not the reason.
                Err(ConnectionTrouble::Wordless) if self.spoke => self.give_up(&ConnectionTrouble::Closed),
                Err(trouble) => self.give_up(&trouble),
            }
            if self.breaker.is_open() {
                let next_try = last_try + self.breaker.rest(fastrand::u64(..));
                // Either event ends the wait.
                let _ = timeout_at(next_try, self.health.another_is_back()).await;
            }
        }
    }

    /// One connection attempt. Pending calls may time out meanwhile.
    async fn connect(&mut self, start: Instant) -> Result<Transport, ConnectionTrouble> {
        let (target, settings, script) =
            (self.target.clone(), Arc::clone(&self.settings), Arc::clone(&self.script));
        let bound = settings.timeout.clamp(TRY, LONGEST_TRY);
        let connecting = async {
            let server = target.locate(&settings.dial).await?;
            let proof = target.proof();
            handshake::connect(&server, &settings.dial, &script, &settings.prefix, &proof).await
        };
        let mut connecting = pin!(timeout_at(start + bound, connecting));
        poll_fn(|context| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(context) {
                return Poll::Ready(connected.unwrap_or(Err(ConnectionTrouble::Silence(bound))));
            }
            self.queue.borrow_mut().set_sender(context.waker());
            if let Poll::Ready(trouble) = self.poll_expiry(context, None) {
                self.give_up(&trouble);
            }
            self.queue.borrow_mut().forget_expired();
            Poll::Pending
        })
        .await
    }

    /// The connection is established, and the server decides.
    fn begin(&mut self) {
        self.answered = false;
        self.spoke = true;
        self.inbound.clear();
        self.breaker.close();
        let mut queue = self.queue.borrow_mut();
        queue.open();
        queue.count_load();
        self.down.take().into_iter().for_each(OutageGuard::over);
    }

    /// Sends commands and distributes replies, until the connection is no longer usable.
    async fn serve(&mut self, mut wire: Transport) -> ConnectionTrouble {
        poll_fn(|context| self.poll_serve(context, &mut wire)).await
    }

    fn poll_serve(&mut self, context: &mut Context<'_>, wire: &mut Transport) -> Poll<ConnectionTrouble> {
        {
            let mut queue = self.queue.borrow_mut();
            queue.set_sender(context.waker());
            if let Poll::Ready(Err(error)) = wire.poll_send(context, &mut queue.outbound) {
                return Poll::Ready(error.into());
            }
            queue.shrink();
        }
        loop {
            match wire.poll_read(context, &mut self.inbound) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Poll::Ready(ConnectionTrouble::Closed),
                Poll::Ready(Ok(_)) => {
                    if let Err(trouble) = self.hand_out() {
                        return Poll::Ready(trouble);
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
            }
        }
        self.poll_expiry(context, Some(wire))
    }

    /// Distributes all replies received completely.
    fn hand_out(&mut self) -> Result<(), ConnectionTrouble> {
        let now = now();
        let mut checked = Ok(());
        while let Some((value, length)) = resp::read(&self.inbound)? {
            self.inbound.advance(length);
            let owner = self.queue.borrow_mut().next().ok_or(MalformedReply::Unasked)?;
            if let CommandOwner::Caller(_) = owner {
                checked = checked.and(self.check(&value));
            }
            self.queue.borrow_mut().tell(owner, Ok(value), now);
        }
        checked
    }

    /// Judges by a reply whether the server is still usable.
    fn check(&mut self, value: &RespValue) -> Result<(), ConnectionTrouble> {
        let (failed, trouble) = match value {
            RespValue::Integers(_) => {
                self.answered = true;
                self.breaker.answered();
                return Ok(());
            }
            RespValue::Refused(ServerError::Other(code)) => {
                (!code.is_of_the_call(), ConnectionTrouble::Refused(*code))
            }
            RespValue::Refused(_) => (false, ConnectionTrouble::Closed),
            _ => (true, ConnectionTrouble::Odd("its answers are not the script's")),
        };
        let opens = failed && self.breaker.failed();
        // After a failover, the name may lead to the new master.
        let demoted = matches!(trouble, ConnectionTrouble::Refused(ErrorKind::READONLY));
        if opens || demoted { Err(trouble) } else { Ok(()) }
    }

    /// Fails calls that have timed out. Ready if the breaker opens by that.
    fn poll_expiry(
        &mut self,
        context: &mut Context<'_>,
        wire: Option<&Transport>,
    ) -> Poll<ConnectionTrouble> {
        let timeout = self.settings.timeout;
        loop {
            let Some(oldest) = self.queue.borrow().oldest() else { return Poll::Pending };
            let due = (oldest + timeout).max(self.lent.unwrap_or(oldest));
            if self.deadline.poll(context, due).is_pending() {
                return Poll::Pending;
            }
            let now = now();
            // If the gateway itself is late, since the whole machine was held up, the server is given that much extra
            // time. Once.
            let lost = now.saturating_duration_since(due);
            if lost > HELD_UP && due == oldest + timeout {
                self.lent = Some(now + lost.min(timeout));
                continue;
            }
            // The reply may be in the socket already: the runtime reads it next.
            if now < due + timeout && wire.is_some_and(Transport::has_unread) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // At least the oldest call, since its timer has fired.
            let until = now.checked_sub(timeout).map_or(oldest, |until| until.max(oldest));
            let calls = self.queue.borrow_mut().expire(until, now);
            if calls > 0 && self.breaker.timed_out(now, timeout) {
                return Poll::Ready(ConnectionTrouble::Silence(timeout));
            }
        }
    }

    /// Handles a lost connection.
    fn lose(&mut self, trouble: &ConnectionTrouble, now: Instant) {
        tracing::debug!("the connection to the store at {} is lost: {trouble}", self.health.name());
        if self.breaker.is_open() {
            self.give_up(trouble);
        } else {
            self.queue.borrow_mut().lose(now);
        }
        self.target.suspect();
    }

    /// Marks the server as unavailable.
    fn give_up(&mut self, trouble: &ConnectionTrouble) {
        self.breaker.open();
        self.queue.borrow_mut().shut(now());
        self.down.get_or_insert_with(|| self.health.down(trouble));
        self.target.suspect();
    }
}
