//! The logins that a real server accepts, and the errors for the others.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tollgate::net::TlsClientConfig;
use tollgate::store::redis::settings::{ConnectOptions, Login, RedisServers, RedisSettings};

use crate::harness::asker::{Asker, logged, run, server, settings, single};
use crate::harness::{Certificates, Redis, TlsRedis};

const PASSWORD: &str = "correct horse battery staple";

fn login(user: Option<&str>, password: &str) -> ConnectOptions {
    let login = Login { user: user.map(Into::into), password: password.into() };
    ConnectOptions { login: Some(login), ..ConnectOptions::default() }
}

/// Is answered, and has one connection.
fn is_let_in(settings: RedisSettings, redis: &Redis) {
    run(async {
        let asker = Asker::open(settings);
        asker.until_answered(1).await;
        assert_eq!(redis.connections(), 1);
    });
}

/// Is not answered; why not. The password is not told.
fn is_turned_away(settings: RedisSettings, reason: &str) {
    let ((), lines) = run(logged(async {
        let asker = Asker::open(settings);
        asker.until_down(1).await;
        assert_eq!(asker.reasons(), reason);
    }));
    assert!(lines.len() == 1 && lines[0].contains(reason) && !lines[0].contains(PASSWORD), "{lines:?}");
}

#[test]
fn by_a_password() {
    let redis = Redis::start();
    redis.set(&["CONFIG", "SET", "requirepass", PASSWORD]);
    is_let_in(RedisSettings { dial: login(None, PASSWORD), ..single(&redis) }, &redis);
    is_turned_away(
        RedisSettings { dial: login(None, &format!("{PASSWORD}!")), ..single(&redis) },
        "the user or the password is wrong (WRONGPASS)",
    );
    is_turned_away(single(&redis), "it wants a password (NOAUTH)");
}

#[test]
fn as_a_user_with_just_the_rights_that_are_needed() {
    let redis = Redis::start();
    let password = format!(">{PASSWORD}");
    let user = ["ACL", "SETUSER", "gate", "on", &password, "~test:*", "-@all"];
    let rights = ["+evalsha", "+script|load", "+time", "+get", "+set"];
    redis.set(&[&user[..], &rights].concat());
    is_let_in(RedisSettings { dial: login(Some("gate"), PASSWORD), ..single(&redis) }, &redis);
    redis.set(&["SCRIPT", "FLUSH"]);
    redis.set(&["ACL", "SETUSER", "gate", "-script|load"]);
    is_turned_away(
        RedisSettings { dial: login(Some("gate"), PASSWORD), ..single(&redis) },
        "the user may not run the commands or use the keys it takes (NOPERM)",
    );
}

#[test]
fn into_a_database_of_another_number() {
    let redis = Redis::start();
    is_let_in(
        RedisSettings { dial: ConnectOptions { database: 3, ..ConnectOptions::default() }, ..single(&redis) },
        &redis,
    );
    assert!(redis.keys().is_empty());
    redis.set(&["SELECT", "3"]);
    assert_eq!(redis.keys(), ["test:{1}"], "and no proof is left");
    is_turned_away(
        RedisSettings {
            dial: ConnectOptions { database: 99, ..ConnectOptions::default() },
            ..single(&redis)
        },
        "it refuses (ERR)",
    );
}

fn tls(certificates: &Certificates, ca: &str, client: bool) -> ConnectOptions {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.path(ca)).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = if client {
        let certificate = CertificateDer::from_pem_file(certificates.path("client.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(certificates.path("client.key")).unwrap();
        config.with_client_auth_cert(vec![certificate], key).unwrap()
    } else {
        config.with_no_client_auth()
    };
    ConnectOptions {
        tls: Some(TlsClientConfig { config: Arc::new(config), server_name: None, files: [0; 32] }),
        ..ConnectOptions::default()
    }
}

#[test]
fn over_tls() {
    let certificates = Certificates::make();
    let redis = TlsRedis::start(&certificates, true);
    let settings = |dial| RedisSettings { dial, ..settings(RedisServers::Single(server(redis.addr()))) };
    is_let_in(settings(tls(&certificates, "ca.pem", true)), &redis.redis);
    is_turned_away(
        settings(tls(&certificates, "other-ca.pem", true)),
        "invalid peer certificate: UnknownIssuer",
    );
    let plain = "it closed the connection without a word; perhaps it wants TLS (`rediss://`)";
    is_turned_away(settings(ConnectOptions::default()), plain);
}

/// Calls of many at once over TLS: what is encrypted is flushed, and what came is read to its end.
#[test]
fn over_tls_in_a_crowd() {
    let certificates = Certificates::make();
    let redis = TlsRedis::start(&certificates, false);
    let dial = tls(&certificates, "ca.pem", false);
    run(async {
        let asker =
            Asker::open(RedisSettings { dial, ..settings(RedisServers::Single(server(redis.addr()))) });
        let answers = crate::harness::asker::together(&asker, 1_000, 1).await;
        let expected: Vec<_> = (0..1_000).map(|number| Ok(999_999 - number)).collect();
        assert_eq!(answers, expected);
        assert_eq!(redis.redis.connections(), 1);
    });
}
