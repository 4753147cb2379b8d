use std::net::{IpAddr, TcpListener};

use super::super::dns::ResolvedName;
use super::*;

impl UpstreamConnection {
    fn line(&self) -> &RawConnection {
        match &self.carrier {
            Carrier::Http1(line) => line,
            Carrier::Http2(_) => panic!("a stream has no line of its own"),
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(100_000);

fn at(last: u8) -> IpAddr {
    [127, 0, 0, last].into()
}

fn connected_to(last: u8) -> ConnectedAddress {
    ConnectedAddress::Ip(at(last))
}

/// Listeners at 127.0.0.1 to 127.0.0.`count` with one port, and a pool for a name that stands for them.
fn listening(count: u8) -> (Vec<TcpListener>, Arc<ResolvedName>, Rc<EndpointPool>) {
    listening_to(count, None)
}

/// Listeners on one port of the first addresses.
fn listeners(count: u8) -> Option<(Vec<TcpListener>, u16)> {
    let first = TcpListener::bind((at(1), 0)).ok()?;
    let port = first.local_addr().ok()?.port();
    let others = (2..=count).map(|last| TcpListener::bind((at(last), port)).ok());
    Some((std::iter::once(Some(first)).chain(others).collect::<Option<_>>()?, port))
}

fn listening_to(
    count: u8,
    http2_pool: Option<Http2Pool>,
) -> (Vec<TcpListener>, Arc<ResolvedName>, Rc<EndpointPool>) {
    // Another process may use the port on one of the addresses.
    let (listeners, port) = (0..50).find_map(|_| listeners(count)).expect("a free port");
    let name = Arc::new(ResolvedName::new("a.test"));
    let authority = format!("a.test:{port}").into();
    let endpoint =
        Endpoint { host: "a.test".to_owned(), port, authority, weight: 1, unix_socket: None, tls: None };
    let pool = Rc::new(EndpointPool::new(&endpoint, HostAddress::Name(Arc::clone(&name)), None, http2_pool));
    (listeners, name, pool)
}

#[tokio::test]
async fn all_addresses_of_a_name_are_used_in_turn() {
    let (_listeners, name, pool) = listening(3);
    // The last address has no listener.
    name.update(Ok(vec![at(1), at(2), at(3), at(9)])).expect("known");
    let mut reached = Vec::new();
    for _ in 0..8 {
        reached.push(pool.connect(None, None, TIMEOUT).await.expect("a connection").line().address);
    }
    assert_eq!(reached, [1, 2, 3, 1, 1, 2, 3, 1].map(connected_to), "one that refuses gives way to the next");
}

#[tokio::test]
async fn shared_connections_lead_to_all_addresses_of_a_name() {
    let (_listeners, name, pool) = listening_to(3, Some(Http2Pool::new(8, IDLE)));
    name.update(Ok(vec![at(1), at(2), at(3)])).expect("known");
    let asking = async {
        let mut asked = Vec::new();
        for _ in 0..400 {
            let mut connection = pool
                .connection(None, None, Timeouts { connect: TIMEOUT, response: TIMEOUT })
                .await
                .expect("a connection");
            asked.push(connection.http2().expect("a stream").address());
            if [1, 2, 3].iter().all(|last| asked.contains(&connected_to(*last))) {
                return asked;
            }
            drop(connection);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        asked
    };
    let asked = tokio::task::LocalSet::new().run_until(asking).await;
    assert_eq!(asked.first(), Some(&connected_to(1)), "the first opens one alone");
    assert!(asked.contains(&connected_to(2)) && asked.contains(&connected_to(3)), "{asked:?}");
}

#[tokio::test]
async fn connections_to_an_address_that_is_gone_are_used_up() {
    let (_listeners, name, pool) = listening(2);
    name.update(Ok(vec![at(1), at(2)])).expect("known");
    let now = clock::now();
    let connect = async || pool.connect(None, None, TIMEOUT).await.expect("a connection");
    let (first, second, third) = (connect().await, connect().await, connect().await);
    first.keep(now, IDLE);
    second.keep(now, IDLE);
    name.update(Ok(vec![at(2)])).expect("known");
    third.keep(now, IDLE);
    assert_eq!(pool.idle.borrow().len(), 2, "the third was to the first address, too");
    pool.expire(now);
    assert_eq!(pool.take(true).expect("the second").line().address, connected_to(2));
    assert!(pool.take(true).is_none());
}

#[tokio::test]
async fn an_hour_is_all_that_a_connection_is_used() {
    let (_listeners, name, pool) = listening(1);
    name.update(Ok(vec![at(1)])).expect("known");
    let connection = pool.connect(None, None, TIMEOUT).await.expect("a connection");
    let since = connection.line().since;
    connection.keep(since + MAX_AGE - Duration::from_secs(1), IDLE);
    let connection = pool.take(true).expect("it is young enough");
    assert_eq!(connection.line().since, since, "use does not make it younger");
    connection.keep(since + MAX_AGE, IDLE);
    assert!(pool.take(true).is_none());
    let connection = pool.connect(None, None, TIMEOUT).await.expect("a connection");
    let since = connection.line().since;
    connection.keep(since, IDLE);
    pool.expire(since + MAX_AGE);
    assert!(pool.take(true).is_none(), "nor does it lie there for longer");
}
