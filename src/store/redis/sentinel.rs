//! Where the master is, as sentinels say. They are asked anew for each connection; nobody listens to their announcements: a master that
//! has lost its role refuses the next call, and that leads here.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::timeout;

use super::fault::Trouble;
use super::handshake::ask_once;
use super::resp::Value;
use super::settings::{Dial, Server};

/// How long one sentinel may take.
const PATIENCE: Duration = Duration::from_millis(300);

/// Asks one sentinel after the other, from the `first`, which then is the one that answered, or the next one if there is no time left.
pub(super) async fn master(
    sentinels: &[Server],
    name: &str,
    first: &Cell<usize>,
    dial: &Dial,
) -> Result<Server, Trouble> {
    let mut last = Trouble::Odd("there is no sentinel");
    for sentinel in sentinels.iter().cycle().skip(first.get()).take(sentinels.len()) {
        match timeout(PATIENCE, ask(sentinel, name, dial)).await.unwrap_or(Err(Trouble::Silence(PATIENCE))) {
            Ok(master) => return Ok(master),
            Err(trouble) => last = trouble,
        }
        first.set((first.get() + 1) % sentinels.len());
    }
    Err(Trouble::NoMaster(Box::new(last)))
}

async fn ask(sentinel: &Server, name: &str, dial: &Dial) -> Result<Server, Trouble> {
    let told = ask_once(sentinel, dial, &[b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()]).await?;
    read(&told).ok_or(Trouble::Odd("it knows no master of this name"))
}

fn read(told: &Value) -> Option<Server> {
    let Value::List(words) = told else { return None };
    let [Value::Bytes(host), Value::Bytes(port)] = &words[..] else { return None };
    let (host, port) = (std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?);
    Some(Server { host: host.into(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::super::resp;
    use super::*;

    #[test]
    fn a_master_is_a_host_and_a_port() {
        for (told, master) in [
            ("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n", Some("127.0.0.1:6379")),
            ("*2\r\n$3\r\n::1\r\n$4\r\n6379\r\n", Some("[::1]:6379")),
            ("*-1\r\n", None),
            ("*2\r\n$1\r\na\r\n$5\r\n65536\r\n", None),
            ("+OK\r\n", None),
        ] {
            let (value, _) = resp::read(told.as_bytes()).unwrap().unwrap();
            assert_eq!(read(&value).map(|server| server.to_string()).as_deref(), master, "{told}");
        }
    }
}
