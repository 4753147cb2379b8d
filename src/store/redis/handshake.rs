//! The handshake of a new connection: authentication, database, and one decision as a proof.
//!
//! The proof is the script itself on a counter of its own, which always admits. It shows that the server knows the
//! script, that the user may run it, and that the server accepts writes. A replica, a full server and one that still
//! loads are not usable, and each returns an error. The counter is deleted at once; where that is not allowed it
//! expires within seconds.
//!
//! All commands are sent at once. Only if the server does not know the script, the script (27 kB) and a second proof
//! follow. A server that requires a password closes a connection that sends that much without one, so the script is not
//! sent first.

use std::future::poll_fn;

use bytes::{Buf as _, BytesMut};

use super::call;
use super::errors::ConnectionTrouble;
use super::resp::{self, Command, RespValue};
use super::script::Script;
use super::server_error::{ErrorKind, ServerError};
use super::settings::{ConnectOptions, Login, RedisServer};
use super::transport::Transport;
use crate::limit::Algorithm;
use crate::limit::units::{Cost, Fingerprint, Micros, Rate};
use crate::limit::wall_clock::WallTime;
use crate::store::{Charge, Group, ParamsId, SharedKeyInfo, StoreRequest};

/// The proof that a connection has to pass before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A decision over two counters that are in different slots of a cluster. So a cluster's node is detected and
    /// refused at once, not by the first request with two limits.
    Whole {
        /// The server must report the role of master.
        is_master: bool,
    },
    /// A decision in the slot of this hash tag.
    Part(u32),
    /// None: a node without slots.
    Nothing,
}

/// Loads of the script that follow each other before a server that loses it each time is given up.
pub(super) const MAX_LOADS: u32 = 20;

/// A connection on which commands are sent one after the other.
struct Handshake {
    wire: Transport,
    inbound: BytesMut,
    /// A reply was received.
    answered: bool,
}

/// Connects, and makes sure that the server decides.
pub(super) async fn connect(
    server: &RedisServer,
    dial: &ConnectOptions,
    script: &Script,
    prefix: &str,
    proof: &Proof,
) -> Result<Transport, ConnectionTrouble> {
    let mut talk = Handshake::open(server, dial).await?;
    match talk.begin(dial, script, prefix, proof).await {
        Ok(()) => talk.into_wire(),
        Err(trouble) => Err(talk.explain(trouble)),
    }
}

/// Sends one command on a connection of its own, which is then closed. A password is not a fault where the server requires
/// none.
pub(super) async fn ask_once(
    server: &RedisServer,
    dial: &ConnectOptions,
    words: &[&[u8]],
) -> Result<RespValue, ConnectionTrouble> {
    let mut talk = Handshake::open(server, dial).await?;
    talk.ask(dial, words).await.map_err(|trouble| talk.explain(trouble))
}

/// Writes the first commands; returns the number of replies.
fn greet(out: &mut BytesMut, dial: &ConnectOptions) -> usize {
    let mut greetings = 0;
    if let Some(login) = &dial.login {
        authenticate(out, login);
        greetings += 1;
    }
    if dial.database != 0 {
        Command::write(out, |command| {
            command.word(b"SELECT");
            command.number(dial.database.into());
        });
        greetings += 1;
    }
    greetings
}

fn authenticate(out: &mut BytesMut, login: &Login) {
    Command::write(out, |command| {
        command.word(b"AUTH");
        login.user.iter().for_each(|user| command.word(user.as_bytes()));
        command.word(login.password.as_bytes());
    });
}

fn ask_role(out: &mut BytesMut, proof: &Proof) {
    if matches!(proof, Proof::Whole { is_master: true }) {
        Command::write(out, |command| command.word(b"ROLE"));
    }
}

/// Writes the proof and the deletion of its counter. False if no proof is needed.
fn write_proof(out: &mut BytesMut, script: &Script, prefix: &str, proof: &Proof) -> bool {
    // Refilled faster than any client can use it: it always admits, and so always writes. Its key expires in about a
    // second.
    let (Some(rate), Some(burst)) = (Rate::new(1_000_000, Micros::SECOND), Cost::new(1_000_000)) else {
        return false;
    };
    let algorithm = Algorithm::token_bucket(rate, burst);
    let (params, key, shared_key) = (ParamsId::of(&algorithm), Fingerprint(0), SharedKeyInfo::NONE);
    let charge =
        Charge { algorithm: &algorithm, params, key, cost: Cost::ONE, group: Group::Enforced, shared_key };
    let (tags, charges) = match proof {
        Proof::Whole { .. } => ([1, 2], &[charge, charge][..]),
        Proof::Part(tag) => ([*tag, 0], &[charge][..]),
        Proof::Nothing => return false,
    };
    let keys = |command: &mut Command<'_>| {
        for (tag, _) in tags.iter().zip(charges) {
            let mut digits = itoa::Buffer::new();
            command.parts(&[prefix.as_bytes(), b":probe:{", digits.format(*tag).as_bytes(), b"}"]);
        }
    };
    Command::write(out, |command| {
        command.word(b"EVALSHA");
        command.word(script.sha1().as_bytes());
        command.number(charges.len() as u64);
        keys(command);
        call::decide(StoreRequest::of(charges), WallTime(0), |argument| command.word(argument));
    });
    Command::write(out, |command| {
        command.word(b"DEL");
        keys(command);
    });
    true
}

fn accepted(answer: RespValue) -> Result<RespValue, ConnectionTrouble> {
    match answer {
        RespValue::Refused(refusal) => Err(ConnectionTrouble::Refused(code(&refusal))),
        answer => Ok(answer),
    }
}

/// Whether the script decided; false if the server does not know it.
fn decided(answer: RespValue) -> Result<bool, ConnectionTrouble> {
    match answer {
        RespValue::Integers(_) => Ok(true),
        RespValue::Refused(ServerError::NoScript) => Ok(false),
        RespValue::Refused(refusal) => Err(ConnectionTrouble::Refused(code(&refusal))),
        _ => Err(ConnectionTrouble::Odd("its answer is not the script's")),
    }
}

fn code(refusal: &ServerError) -> ErrorKind {
    match refusal {
        ServerError::Other(code) => *code,
        ServerError::NoScript => ErrorKind::NOSCRIPT,
        ServerError::Moved(..) | ServerError::Ask(_) => ErrorKind::MOVED,
    }
}

/// A user without the permission to ask for the role finds out by the proof, too, whether writes are accepted.
fn is_master(answer: &RespValue) -> Result<(), ConnectionTrouble> {
    match answer {
        RespValue::List(words) if words.first() == Some(&RespValue::Bytes(b"master"[..].into())) => Ok(()),
        RespValue::Refused(_) => Ok(()),
        _ => Err(ConnectionTrouble::Odd("the server that the sentinels name is not the master")),
    }
}

impl Handshake {
    async fn open(server: &RedisServer, dial: &ConnectOptions) -> Result<Self, ConnectionTrouble> {
        let wire = Transport::open(server, dial.tls.as_ref()).await?;
        Ok(Self { wire, inbound: BytesMut::new(), answered: false })
    }

    /// Authenticates, and makes sure that the server decides.
    async fn begin(
        &mut self,
        dial: &ConnectOptions,
        script: &Script,
        prefix: &str,
        proof: &Proof,
    ) -> Result<(), ConnectionTrouble> {
        let mut out = BytesMut::new();
        let greetings = greet(&mut out, dial);
        ask_role(&mut out, proof);
        let proves = write_proof(&mut out, script, prefix, proof);
        self.send(out).await?;
        for _ in 0..greetings {
            accepted(self.answer().await?)?;
        }
        if matches!(proof, Proof::Whole { is_master: true }) {
            is_master(&self.answer().await?)?;
        }
        if !proves || !self.proven().await? {
            self.teach(script, prefix, proof).await?;
        }
        Ok(())
    }

    /// Sends one command, whatever the server replies to the password.
    async fn ask(&mut self, dial: &ConnectOptions, words: &[&[u8]]) -> Result<RespValue, ConnectionTrouble> {
        let mut out = BytesMut::new();
        let greetings = dial.login.iter().map(|login| authenticate(&mut out, login)).count();
        Command::write(&mut out, |command| words.iter().for_each(|word| command.word(word)));
        self.send(out).await?;
        for _ in 0..greetings {
            self.answer().await?;
        }
        accepted(self.answer().await?)
    }

    /// A server that requires TLS closes the connection without a reply.
    fn explain(&self, trouble: ConnectionTrouble) -> ConnectionTrouble {
        let breaks = matches!(trouble, ConnectionTrouble::Closed | ConnectionTrouble::Connection(_));
        if breaks && !self.answered && matches!(self.wire, Transport::Plain(_)) {
            ConnectionTrouble::Wordless
        } else {
            trouble
        }
    }

    async fn send(&mut self, mut out: BytesMut) -> Result<(), ConnectionTrouble> {
        Ok(poll_fn(|context| self.wire.poll_send(context, &mut out)).await?)
    }

    async fn answer(&mut self) -> Result<RespValue, ConnectionTrouble> {
        loop {
            if let Some((value, length)) = resp::read(&self.inbound)? {
                self.inbound.advance(length);
                self.answered = true;
                return Ok(value);
            }
            if poll_fn(|context| self.wire.poll_read(context, &mut self.inbound)).await? == 0 {
                return Err(ConnectionTrouble::Closed);
            }
        }
    }

    /// Reads the replies to a proof: whether the script decided; false if the server does not know it.
    async fn proven(&mut self) -> Result<bool, ConnectionTrouble> {
        let decided = decided(self.answer().await?)?;
        // Whether the counter was deleted makes no difference.
        self.answer().await?;
        Ok(decided)
    }

    /// Loads the script, and proves it. The server may lose the script between the two: it reads a script of this length
    /// in several turns, and another client's `SCRIPT FLUSH` may come first.
    async fn teach(&mut self, script: &Script, prefix: &str, proof: &Proof) -> Result<(), ConnectionTrouble> {
        for _ in 0..MAX_LOADS {
            let mut out = BytesMut::new();
            load(&mut out, script);
            let proves = write_proof(&mut out, script, prefix, proof);
            self.send(out).await?;
            accepted(self.answer().await?)?;
            if !proves || self.proven().await? {
                return Ok(());
            }
        }
        Err(ConnectionTrouble::Odd("it forgets the script each time it is loaded"))
    }

    fn into_wire(self) -> Result<Transport, ConnectionTrouble> {
        if self.inbound.is_empty() { Ok(self.wire) } else { Err(resp::MalformedReply::Unasked.into()) }
    }
}

/// Writes the command that loads the script.
pub(super) fn load(out: &mut BytesMut, script: &Script) {
    Command::write(out, |command| {
        command.word(b"SCRIPT");
        command.word(b"LOAD");
        command.word(script.text().as_bytes());
    });
}

#[cfg(test)]
mod tests;
