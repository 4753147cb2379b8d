//! A real Redis (or Valkey) as a child process, and a client that knows just enough of its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::PATIENCE;

/// A running server with nothing in it, killed when dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Redis {
    /// Starts `redis-server`, or what `TOLLGATE_TEST_REDIS` names, on a free port of the loopback and waits until it answers.
    pub(crate) fn start() -> Self {
        // Another process may take the port first; then the server exits and the next port is tried.
        (0..10)
            .find_map(|_| Self::try_start())
            .expect("no Redis server starts; `make tools` installs what the tests need")
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server takes connections")
    }

    fn try_start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).ok()?.port();
        let program = std::env::var("TOLLGATE_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
        // The server must not outlive a test that is killed, so it asks to be killed with it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", &program])
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|fault| panic!("setpriv (util-linux): {fault}"));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut redis = Self { child, address, _directory: directory };
        redis.answers().then_some(redis)
    }

    /// Waits for the first answer; false if the process ends instead.
    fn answers(&mut self) -> bool {
        let (started, own) = (Instant::now(), i64::from(self.child.id()));
        while self.child.try_wait().expect("it can be asked").is_none() {
            if let Ok(mut connection) = Connection::open(self.address) {
                // Another test's server may stand at this port.
                return connection.call(["INFO", "server"]).text().contains(&format!("process_id:{own}\r"));
            }
            assert!(started.elapsed() < PATIENCE, "the Redis server does not answer");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
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
