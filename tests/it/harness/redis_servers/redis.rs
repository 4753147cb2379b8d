//! A real Redis (or Valkey) as a child process that a test can kill, stop, fill and turn read-only, and a client that knows just
//! enough of its protocol.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{TIMEOUT, eventually, tools};

/// A running server with nothing in it, killed when dropped.
///
/// One connection is the test's own, made at the start: [`Self::command`] uses it, so it stays logged in whatever happens to users
/// and passwords, and [`Self::connections`] does not count it.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    address: SocketAddr,
    arguments: Vec<String>,
    control: Mutex<Connection>,
    directory: tempfile::TempDir,
}

impl Redis {
    /// Starts `redis-server`, or what `TOLLGATE_TEST_REDIS` names, on a free port of the loopback and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with further arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_program(&program(), arguments)
    }

    /// As [`Self::start_with`], another program.
    pub(crate) fn start_program(program: &str, arguments: &[&str]) -> Self {
        // Another process may take the port first; then the server exits and the next port is tried.
        (0..10).find_map(|_| Self::start_on(program, free_port(), arguments)).expect("no Redis server starts")
    }

    /// As [`Self::start`], on this port. None if it is taken.
    pub(crate) fn start_at(port: u16) -> Option<Self> {
        Self::start_on(&program(), port, &[])
    }

    /// As [`Self::start_with`], on this port. None if it is taken.
    pub(crate) fn start_on(program: &str, port: u16, arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let arguments: Vec<_> =
            [program].iter().chain(arguments).map(|argument| (*argument).to_owned()).collect();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut child = spawn(&arguments, port, directory.path());
        let control = Mutex::new(first_answer(&mut child, address)?);
        Some(Self { child, address, arguments, control, directory })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `redis://ADDRESS`.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// A store in this server, which gets all the time it needs: the default would let a busy machine count locally.
    pub(crate) fn store_table(&self) -> String {
        format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"5s\"\n", self.url())
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server takes connections")
    }

    /// Sends a command on the test's own connection.
    pub(crate) fn command(&self, words: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Answer {
        self.control().call(words)
    }

    /// Sends a command that must be answered with OK.
    #[track_caller]
    pub(crate) fn set(&self, words: &[&str]) {
        assert_eq!(self.command(words), Answer::Bytes(b"OK".into()), "{words:?}");
    }

    /// Ends the process at once; what it held is gone, and its port refuses.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// Starts it again on the same port, with nothing in it; kills it first where it runs.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let control = eventually("the server's old port", || {
            self.child = spawn(&self.arguments, self.address.port(), self.directory.path());
            first_answer(&mut self.child, self.address)
        });
        self.control = Mutex::new(control);
    }

    /// Replaces the test's own connection: the promotion to master has closed all connections.
    pub(crate) fn reconnect(&mut self) {
        self.control = Mutex::new(self.connect());
    }

    /// Hangs it: the kernel still takes connections and bytes for it, and no answer comes.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on, with all that has come meanwhile.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Makes it a replica of a dead master: it answers, but takes no writes.
    pub(crate) fn read_only(&self) {
        self.set(&["REPLICAOF", "127.0.0.1", "1"]);
    }

    /// Makes it a master again, with what it held.
    pub(crate) fn writable(&self) {
        self.set(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Leaves it no memory: whatever would write is refused.
    pub(crate) fn fill(&self) {
        self.set(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        self.set(&["CONFIG", "SET", "maxmemory", "1"]);
    }

    /// Takes the bound away.
    pub(crate) fn drain(&self) {
        self.set(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    /// How many clients are connected, but for [`Self::command`]'s own connection.
    pub(crate) fn connections(&self) -> usize {
        self.command(["CLIENT", "LIST", "TYPE", "normal"]).text().lines().count() - 1
    }

    /// How many connections it has taken so far, but for [`Self::command`]'s own.
    pub(crate) fn connections_ever(&self) -> u64 {
        self.info("stats")["total_connections_received"].parse::<u64>().expect("a number") - 1
    }

    /// How often a command was called since it started, failures included: `"evalsha"`.
    pub(crate) fn calls_of(&self, command: &str) -> u64 {
        let all = self.info("commandstats");
        let Some(told) = all.get(&format!("cmdstat_{command}")) else { return 0 };
        let calls = told.split(',').find_map(|part| part.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).expect("a number")
    }

    /// A section of `INFO`.
    pub(crate) fn info(&self, section: &str) -> BTreeMap<String, String> {
        let told = self.command(["INFO", section]).text();
        let pairs = told.lines().filter_map(|line| line.trim_end().split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// All keys but the list of gateways, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let Answer::List(keys) = self.command(["KEYS", "*"]) else { panic!("a list") };
        let mut keys: Vec<_> = keys.iter().map(Answer::text).collect();
        // With these, gateways prove to themselves that the server decides.
        keys.retain(|key| !key.contains(":probe:") && !key.contains(":fleet:"));
        keys.sort();
        keys
    }

    fn control(&self) -> MutexGuard<'_, Connection> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process takes signals");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that tests start.
pub(crate) fn program() -> String {
    std::env::var("TOLLGATE_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned())
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("bound").port()
}

fn spawn(arguments: &[String], port: u16, directory: &Path) -> Child {
    let (program, rest) = arguments.split_first().expect("a program");
    tools::needed(program);
    // The server must not outlive a test that is killed, so it asks to be killed with it.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", program])
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|fault| panic!("setpriv (util-linux): {fault}"))
}

/// Waits for the first answer; none if the process ends instead.
pub(crate) fn first_answer(child: &mut Child, address: SocketAddr) -> Option<Connection> {
    let (started, own) = (Instant::now(), i64::from(child.id()));
    while child.try_wait().expect("it can be asked").is_none() {
        if let Ok(mut connection) = Connection::open(address) {
            // Another test's server may stand at this port.
            // It may be ending just now.
            let told = connection.info();
            if told.is_ok_and(|told| told.contains(&format!("process_id:{own}\r"))) {
                return Some(connection);
            }
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        assert!(started.elapsed() < TIMEOUT, "the Redis server does not answer");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    None
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Integer(i64),
    Bytes(Vec<u8>),
    List(Vec<Answer>),
    Nothing,
    Error(String),
}

impl Answer {
    /// The integer that it must be.
    #[track_caller]
    pub(crate) fn integer(&self) -> i64 {
        let Self::Integer(integer) = self else { panic!("no integer: {self:?}") };
        *integer
    }

    /// The integers that it must be a list of.
    #[track_caller]
    pub(crate) fn integers(&self) -> Vec<i64> {
        let Self::List(list) = self else { panic!("no list: {self:?}") };
        list.iter().map(Self::integer).collect()
    }

    /// The list that it must be.
    #[track_caller]
    pub(crate) fn list(&self) -> &[Answer] {
        let Self::List(list) = self else { panic!("no list: {self:?}") };
        list
    }

    /// The text that it must be.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        let Self::Bytes(bytes) = self else { panic!("no text: {self:?}") };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// A connection: one command, one answer.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and reads its answer.
    pub(crate) fn call(&mut self, words: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Answer {
        let words: Vec<_> = words.into_iter().collect();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in &words {
            bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
            bytes.extend_from_slice(word.as_ref());
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes).expect("the server reads");
        self.answer()
    }

    /// What the server says of itself.
    fn info(&mut self) -> std::io::Result<String> {
        self.stream.get_mut().write_all(b"INFO server\r\n")?;
        let mut length = String::new();
        self.stream.read_line(&mut length)?;
        let length: usize = length.trim_start_matches('$').trim_end().parse().unwrap_or(0);
        // A line end follows the text.
        let mut text = vec![0; length + 2];
        self.stream.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server answers");
        let (kind, rest) = line.trim_end().split_at_checked(1).expect("an answer and no end");
        let number = || rest.parse::<i64>().expect("a number");
        match kind {
            "+" => Answer::Bytes(rest.into()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Integer(number()),
            "$" => usize::try_from(number()).map_or(Answer::Nothing, |length| self.bytes(length)),
            "*" => Answer::List((0..number()).map(|_| self.answer()).collect()),
            _ => panic!("no answer: {line}"),
        }
    }

    fn bytes(&mut self, length: usize) -> Answer {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).expect("the server answers in full");
        bytes.truncate(length);
        Answer::Bytes(bytes)
    }
}

/// The harness against itself.
#[test]
fn the_server_can_be_killed_stopped_filled_and_made_read_only() {
    let mut redis = Redis::start();
    redis.set(&["SET", "a", "1"]);
    let more = [redis.connect(), redis.connect()];
    eventually("both connections", || {
        ((redis.connections(), redis.connections_ever()) == (2, 2)).then_some(())
    });
    drop(more);
    eventually("closed connections to be forgotten", || (redis.connections() == 0).then_some(()));
    assert_eq!((redis.calls_of("set"), redis.calls_of("evalsha")), (1, 0));
    let refused = |redis: &Redis, word: &str| {
        let told = redis.command(["SET", "b", "1"]);
        assert!(matches!(&told, Answer::Error(told) if told.starts_with(word)), "{told:?}");
        assert_eq!(redis.command(["GET", "a"]).text(), "1");
    };
    redis.fill();
    refused(&redis, "OOM");
    redis.drain();
    redis.read_only();
    refused(&redis, "READONLY");
    redis.writable();
    redis.set(&["CONFIG", "SET", "requirepass", "secret"]);
    redis.set(&["SET", "b", "1"]);
    assert!(matches!(redis.connect().call(["GET", "a"]), Answer::Error(told) if told.starts_with("NOAUTH")));
    redis.restart();
    assert!(redis.keys().is_empty());
    redis.stop();
    let mut waiting = redis.connect();
    redis.resume();
    assert_eq!(waiting.call(["PING"]).text(), "PONG");
    redis.kill();
    assert!(TcpStream::connect(redis.addr()).is_err());
}
