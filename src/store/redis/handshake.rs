//! What is said on a new connection before it is used: who we are, which database, and one decision as a proof.
//!
//! The proof is the script itself on a counter of its own, which always admits: so it shows that the server knows it, that this user may
//! run it, and that the server takes writes. A replica, a full server, one that still loads: none of them is usable, and each says so
//! by an error. The counter is deleted at once; where that is not allowed it expires within seconds.
//!
//! All of it goes out in one piece. Only where the script is not known, the script (27 kB) and a second proof follow. A
//! server that wants a password closes the connection of who sends that much without one, so it does not come first.

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
use crate::store::{Charge, Group, ParamsId, SharedKeyInfo};

/// What a connection has to show before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A decision over two counters that in a cluster have different slots: so a cluster's node is found out and refused, as it would be
    /// by the first request with two limits.
    Whole {
        /// The server must call itself a master.
        is_master: bool,
    },
    /// A decision in the slot of this hash tag.
    Part(u32),
    /// Nothing: a node that has no slots yet.
    Nothing,
}

/// A connection on which one thing is asked after the other.
struct Handshake {
    wire: Transport,
    inbound: BytesMut,
    /// Something was answered.
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

/// Asks one thing on a connection of its own, which is closed then. Where the server knows no passwords, ours is too much, but no fault.
pub(super) async fn ask_once(
    server: &RedisServer,
    dial: &ConnectOptions,
    words: &[&[u8]],
) -> Result<RespValue, ConnectionTrouble> {
    let mut talk = Handshake::open(server, dial).await?;
    talk.ask(dial, words).await.map_err(|trouble| talk.explain(trouble))
}

/// Writes what comes first; how many answers it has.
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

/// Writes the decision that proves that the server decides, and what deletes its traces. False if there is none to be made.
fn write_proof(out: &mut BytesMut, script: &Script, prefix: &str, proof: &Proof) -> bool {
    // Refilled faster than anybody can ask: it always admits, and so always writes. Its key expires in about a second.
    let (Some(rate), Some(burst)) = (Rate::new(1_000_000, Micros::SECOND), Cost::new(1_000_000)) else {
        return false;
    };
    let algorithm = Algorithm::token_bucket(rate, burst);
    let (numbers, key, remote) = (ParamsId::of(&algorithm), Fingerprint(0), SharedKeyInfo::NONE);
    let charge =
        Charge { algorithm: &algorithm, numbers, key, cost: Cost::ONE, group: Group::Enforced, remote };
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
        call::decide(charges, |argument| command.word(argument));
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

/// Whether it decided; not if it does not know the script.
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

/// Who may not ask for a role finds out by the proof, too, whether there are writes.
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

    /// Says who we are, and has the server prove that it decides.
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

    /// Asks one thing, whatever the server says to our password.
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

    /// A server that wants TLS closes without a word.
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

    /// Reads the answers to a proof: whether the server decided; not if it does not know the script.
    async fn proven(&mut self) -> Result<bool, ConnectionTrouble> {
        let decided = decided(self.answer().await?)?;
        // Whether the counter was deleted makes no difference.
        self.answer().await?;
        Ok(decided)
    }

    /// Hands over the script, and has it proven.
    async fn teach(&mut self, script: &Script, prefix: &str, proof: &Proof) -> Result<(), ConnectionTrouble> {
        let mut out = BytesMut::new();
        load(&mut out, script);
        let proves = write_proof(&mut out, script, prefix, proof);
        self.send(out).await?;
        accepted(self.answer().await?)?;
        if proves && !self.proven().await? {
            return Err(ConnectionTrouble::Odd("it forgets the script at once"));
        }
        Ok(())
    }

    fn into_wire(self) -> Result<Transport, ConnectionTrouble> {
        if self.inbound.is_empty() { Ok(self.wire) } else { Err(resp::MalformedReply::Unasked.into()) }
    }
}

/// Writes the command that hands over the script.
pub(super) fn load(out: &mut BytesMut, script: &Script) {
    Command::write(out, |command| {
        command.word(b"SCRIPT");
        command.word(b"LOAD");
        command.word(script.text().as_bytes());
    });
}
