use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

const LOST: &str = "-NOSCRIPT No matching script.\r\n";

/// How many times `name` has been received as a word of a command, once another command has come to its end.
fn count(received: &[u8], name: &str) -> usize {
    let word = format!("\r\n{name}\r\n");
    received.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
}

/// A server that accepts each load and has lost the script `losses` times when the proof comes.
fn forgetful(mut client: TcpStream, losses: usize) {
    let (mut received, mut buffer, mut answered) = (Vec::new(), [0; 65536], 0);
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        received.extend_from_slice(&buffer[..length]);
        // The deletion ends each proof; the first comes without a load before it.
        while answered < count(&received, "DEL") {
            let load = if answered == 0 { "" } else { "$2\r\nit\r\n" };
            let decision = if answered < losses { LOST } else { "*1\r\n:1\r\n" };
            client.write_all(format!("{load}{decision}:1\r\n").as_bytes()).unwrap();
            answered += 1;
        }
    }
}

fn connect_to_forgetful(losses: usize) -> Result<(), ConnectionTrouble> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = RedisServer { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    std::thread::spawn(move || forgetful(listener.accept().unwrap().0, losses));
    let dial = ConnectOptions { login: None, database: 0, tls: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(connect(&server, &dial, &Script::new(), "it", &Proof::Part(1))).map(drop)
}

#[test]
fn a_script_that_is_lost_before_its_proof_is_loaded_again() {
    for losses in [0, 1, 2, 10] {
        assert!(connect_to_forgetful(losses).is_ok(), "{losses}");
    }
}

#[test]
fn a_server_that_loses_the_script_each_time_is_given_up() {
    let trouble = connect_to_forgetful(usize::MAX).unwrap_err();
    assert_eq!(trouble.to_string(), "it forgets the script each time it is loaded");
}
