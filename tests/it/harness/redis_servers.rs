//! Redis servers that a test kills, hangs, restarts and puts together to a cluster; with a client that speaks through the gateway's own
//! `resp`.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command as Program, Stdio};
use std::time::Instant;

use bytes::BytesMut;
use tollgate::store::redis::resp::{self, Command, Value};
use tollgate::store::redis::settings::Server;

use super::{PATIENCE, eventually};

/// A server that can be killed and comes back at the same port. Killed when dropped.
#[derive(Debug)]
pub(crate) struct RedisProcess {
    child: Child,
    port: u16,
    /// With TLS, another one for the gateway.
    pub(crate) tls_port: u16,
    arguments: Vec<String>,
    directory: tempfile::TempDir,
}

impl RedisProcess {
    /// Starts a server on a free port with more arguments, and waits until it answers.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
        // Another process may take a port first; then the server exits and the next is tried.
        let start = || Self::try_start(free_port(), free_port(), &arguments);
        (0..10)
            .find_map(|_| start())
            .expect("no Redis server starts; `make tools` installs what the tests need")
    }

    fn try_start(port: u16, tls_port: u16, arguments: &[String]) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let child = spawn(port, tls_port, arguments, directory.path());
        let mut process = Self { child, port, tls_port, arguments: arguments.to_vec(), directory };
        process.answers().then_some(process)
    }

    pub(crate) fn server(&self) -> Server {
        Server { host: "127.0.0.1".into(), port: self.port }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts again, with nothing in it, at the same port. To be called after `kill`.
    pub(crate) fn restart(&mut self) {
        eventually("the port is free again", || {
            self.child = spawn(self.port, self.tls_port, &self.arguments, self.directory.path());
            self.answers().then_some(())
        });
    }

    /// Sends a signal: `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Program::new("kill").args([&format!("-{name}"), &id]).status().expect("kill");
        assert!(sent.success(), "kill -{name}");
    }

    /// Sends a command on a connection of its own.
    pub(crate) fn command(&self, words: &[&str]) -> Value {
        self.connect().expect("the server takes connections").ask(words)
    }

    /// As [`Self::command`], which must not be refused.
    #[track_caller]
    pub(crate) fn order(&self, words: &[&str]) -> Value {
        let value = self.command(words);
        assert!(!matches!(value, Value::Refused(_)), "{words:?}: {value:?}");
        value
    }

    /// A number in `INFO`: what follows `name` there.
    pub(crate) fn info(&self, section: &str, name: &str) -> u64 {
        let told = text(&self.order(&["INFO", section]));
        let Some((_, rest)) = told.split_once(name) else { return 0 };
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    }

    /// Connections other than the one that asks.
    pub(crate) fn connections(&self) -> u64 {
        self.info("clients", "connected_clients:") - 1
    }

    /// Connections ever made, the one that asks included.
    pub(crate) fn connections_ever(&self) -> u64 {
        self.info("stats", "total_connections_received:")
    }

    /// Calls of a command so far.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.info("commandstats", &format!("cmdstat_{command}:calls="))
    }

    /// A connection that lasts.
    pub(crate) fn connect(&self) -> std::io::Result<RedisClient> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(RedisClient(stream))
    }

    /// Waits for the first answer; false if the process ends instead.
    fn answers(&mut self) -> bool {
        let (started, own) = (Instant::now(), i64::from(self.child.id()));
        while self.child.try_wait().expect("it can be asked").is_none() {
            if let Ok(mut client) = self.connect() {
                // Another test's server may stand at this port.
                return text(&client.ask(&["INFO", "server"])).contains(&format!("process_id:{own}\r"));
            }
            assert!(started.elapsed() < PATIENCE, "the Redis server does not answer");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        false
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection that asks one thing after the other.
pub(crate) struct RedisClient(TcpStream);

impl RedisClient {
    pub(crate) fn ask(&mut self, words: &[&str]) -> Value {
        let mut bytes = BytesMut::new();
        Command::write(&mut bytes, |command| words.iter().for_each(|word| command.word(word.as_bytes())));
        self.0.write_all(&bytes).expect("the server reads");
        let mut answer = Vec::new();
        loop {
            if let Some((value, _)) = resp::read(&answer).expect("the server speaks RESP2") {
                return value;
            }
            let mut part = [0; 4096];
            let read = self.0.read(&mut part).expect("the server answers");
            assert!(read > 0, "the server closes");
            answer.extend_from_slice(&part[..read]);
        }
    }
}

/// Three nodes without replicas, a third of the slots each.
pub(crate) fn cluster() -> [RedisProcess; 3] {
    let nodes = [(); 3].map(|()| cluster_node());
    for (node, range) in nodes.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
        node.order(&["CLUSTER", "ADDSLOTSRANGE", range[0], range[1]]);
    }
    for other in &nodes[1..] {
        meet(&nodes[0], other);
    }
    await_cluster(&nodes.each_ref());
    nodes
}

/// A node that belongs to no cluster yet.
pub(crate) fn cluster_node() -> RedisProcess {
    let bus = free_port().to_string();
    RedisProcess::start(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-require-full-coverage",
        "no",
        "--cluster-node-timeout",
        "2000",
    ])
}

/// Makes them know one another.
pub(crate) fn meet(node: &RedisProcess, other: &RedisProcess) {
    let bus = other.arguments[3].clone();
    node.order(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), &bus]);
}

/// Waits until all nodes agree on who has what.
pub(crate) fn await_cluster(nodes: &[&RedisProcess]) {
    eventually("the cluster is whole", || {
        let knows_all = |node: &&RedisProcess| {
            let info = text(&node.order(&["CLUSTER", "INFO"]));
            info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && info.contains(&format!("cluster_known_nodes:{}", nodes.len()))
        };
        nodes.iter().all(knows_all).then_some(())
    });
}

/// A text, or nothing of it.
pub(crate) fn text(value: &Value) -> String {
    let Value::Bytes(bytes) = value else { return String::new() };
    String::from_utf8_lossy(bytes).into_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn spawn(port: u16, tls_port: u16, arguments: &[String], directory: &std::path::Path) -> Child {
    let program = std::env::var("TOLLGATE_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
    let arguments =
        arguments.iter().map(|it| if it == "TLS-PORT" { tls_port.to_string() } else { it.clone() });
    // The server must not outlive a test that is killed, so it asks to be killed with it.
    Program::new("setpriv")
        .args(["--pdeathsig", "KILL", &program])
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|fault| panic!("setpriv (util-linux): {fault}"))
}
