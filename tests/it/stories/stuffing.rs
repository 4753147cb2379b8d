//! Credential stuffing: 200 addresses try passwords, while 50 people log in.

use std::time::Instant;

use crate::harness::api::api;
use crate::harness::{Backend, Client, Gateway, Load, Next, TIMEOUT, everything_to};

const ATTACKERS: usize = 200;
const PEOPLE: usize = 50;
const LOGINS: usize = 4;

#[test]
fn attackers_are_banned_soon_and_people_go_on_logging_in() {
    let backend = Backend::start(|exchange| {
        let is_good = exchange.read_body() == b"password=right";
        exchange.write(if is_good {
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
        } else {
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"
        });
        Next::KeepAlive
    });
    let limit = "limits = [\"login\"]\n[limits.login]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"5/min\"\n\
                 burst = 5\nban = { after = 10, within = \"1min\", for = \"1h\" }\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                 [server]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&everything_to(&backend, limit));
    let request = |address: String, password: &str| {
        format!(
            "POST /login HTTP/1.1\r\nhost: test\r\nx-forwarded-for: {address}\r\ncontent-length: {}\r\n\r\npassword={password}",
            9 + password.len()
        )
    };
    let (gateway, request) = (&gateway, &request);
    std::thread::scope(|scope| {
        let people = scope.spawn(move || {
            let mut client = Client::connect(gateway.addr());
            for round in 0..LOGINS {
                for person in 0..PEOPLE {
                    let answer = client.exchange(request(format!("198.51.100.{person}"), "right"));
                    assert_eq!(answer.status, 200, "person {person}, login {round}: {}", answer.head);
                }
            }
        });
        let started = Instant::now();
        let load = Load { requests: 30 * ATTACKERS, concurrency: 8 };
        let statuses = load.run(gateway.addr(), |number| {
            request(format!("203.0.113.{}", number % ATTACKERS), &format!("guess-{number}"))
        });
        let banned = api(gateway, "bans?top=1000");
        // One guess of each attacker takes a tenth of a second; the machine may be busy.
        assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
        assert_eq!(banned["total"], ATTACKERS, "{statuses:?}");
        for ban in banned["bans"].as_array().expect("a list") {
            let key = ban["key"][0].as_str().expect("an address");
            assert!(key.starts_with("203.0.113."), "{ban}");
        }
        // A token may have come back meanwhile.
        assert!((5 * ATTACKERS..=6 * ATTACKERS).contains(&statuses[&401]), "{statuses:?}");
        people.join().expect("no login is refused");
    });
}
