//! The challenges that the authority may ask about now: what workers answer by.
//!
//! A gateway without an order under way reads one flag.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoClientAuth, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use super::certificate;
use super::settings::ChallengeKind;
use crate::limit::wall_clock::WallTime;
use crate::net::crypto;

/// The protocol of the handshake that answers a challenge (RFC 8737).
pub const ACME_TLS: &[u8] = b"acme-tls/1";
/// What the path of a challenge by http-01 begins with.
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";
/// The length of a token: at least 128 bits (RFC 8555 §8.3).
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 22..=256;
/// The most challenges at a time.
const MAX_CHALLENGES: usize = 1_000;

/// What proves one name to the authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeAnswer {
    /// The name, in lower case.
    pub name: String,
    /// The authority's token.
    pub token: String,
    /// The token with the fingerprint of the account's key.
    pub key_authorization: String,
    /// How it is proven.
    #[serde(with = "kind")]
    pub kind: ChallengeKind,
}

mod kind {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::ChallengeKind;

    pub(super) fn serialize<S: Serializer>(kind: &ChallengeKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kind.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ChallengeKind, D::Error> {
        let text = String::deserialize(deserializer)?;
        let found = ChallengeKind::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| D::Error::custom("an unknown kind"))
    }
}

impl ChallengeAnswer {
    /// Whether it has the form of one: others may have made it.
    pub fn is_sound(&self) -> bool {
        let is_plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let thumbprint =
            self.key_authorization.strip_prefix(&self.token).and_then(|rest| rest.strip_prefix('.'));
        let is_token = TOKEN_LENGTHS.contains(&self.token.len()) && is_plain(&self.token);
        is_token
            && thumbprint.is_some_and(|print| print.len() <= 128 && is_plain(print))
            && self.name.len() <= 253
    }

    /// What the certificate of tls-alpn-01 holds.
    fn digest(&self) -> Option<[u8; 32]> {
        let digest = crypto::digest::digest(&crypto::digest::SHA256, self.key_authorization.as_bytes());
        digest.as_ref().try_into().ok()
    }
}

/// All that can be answered now, of orders of this gateway and of others.
#[derive(Default)]
pub struct Challenges {
    has_http: AtomicBool,
    has_tls: AtomicBool,
    known: ArcSwap<KnownAnswers>,
    sources: Mutex<AnswerSources>,
}

#[derive(Default)]
struct AnswerSources {
    own: Vec<ChallengeAnswer>,
    fleet: Vec<ChallengeAnswer>,
}

#[derive(Default)]
struct KnownAnswers {
    /// By token.
    http: HashMap<String, Arc<str>>,
    /// By name.
    tls: HashMap<String, Arc<CertifiedKey>>,
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenges").finish_non_exhaustive()
    }
}

impl Challenges {
    /// Answers these, in place of those of this gateway's earlier order.
    pub fn set_own(&self, answers: Vec<ChallengeAnswer>, now: WallTime) {
        let mut sources = self.sources.lock();
        sources.own = answers;
        self.publish(&sources, now);
    }

    /// Answers these, in place of those that other gateways had. Malformed ones are left out.
    pub fn set_fleet(&self, mut answers: Vec<ChallengeAnswer>, now: WallTime) {
        answers.retain(ChallengeAnswer::is_sound);
        answers.truncate(MAX_CHALLENGES);
        let mut sources = self.sources.lock();
        if sources.fleet != answers {
            sources.fleet = answers;
            self.publish(&sources, now);
        }
    }

    fn publish(&self, sources: &AnswerSources, now: WallTime) {
        let (mut http, mut tls) = (HashMap::new(), HashMap::new());
        // This gateway's own come last: they stand.
        for answer in sources.fleet.iter().chain(&sources.own) {
            match answer.kind {
                ChallengeKind::Http01 => {
                    http.insert(answer.token.clone(), Arc::from(&*answer.key_authorization));
                }
                ChallengeKind::TlsAlpn01 => {
                    let made =
                        answer.digest().map(|digest| certificate::challenge(&answer.name, &digest, now));
                    match made {
                        Some(Ok(key)) => _ = tls.insert(answer.name.clone(), key),
                        Some(Err(error)) => tracing::warn!("a challenge cannot be answered: {error}"),
                        None => {}
                    }
                }
            }
        }
        let (has_http, has_tls) = (!http.is_empty(), !tls.is_empty());
        self.known.store(Arc::new(KnownAnswers { http, tls }));
        self.has_http.store(has_http, Ordering::Release);
        self.has_tls.store(has_tls, Ordering::Release);
    }

    /// The answer to a request for this path, if it is one to a challenge that is under way.
    #[inline]
    pub fn answer(&self, path: &str) -> Option<Arc<str>> {
        if self.has_http.load(Ordering::Relaxed) { self.find(path) } else { None }
    }

    #[cold]
    fn find(&self, path: &str) -> Option<Arc<str>> {
        self.known.load().http.get(path.strip_prefix(WELL_KNOWN)?).cloned()
    }

    /// Whether a handshake may be one of a challenge.
    #[inline]
    pub fn has_tls(&self) -> bool {
        self.has_tls.load(Ordering::Relaxed)
    }

    /// How to answer a client that begins like this, if it asks for a challenge that is under way: its handshake is made
    /// with this, and then the connection ends.
    pub fn for_handshake(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut protocols = hello.alpn()?;
        let is_challenge = protocols.next() == Some(ACME_TLS) && protocols.next().is_none();
        let name = hello.server_name().filter(|_| is_challenge)?.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let key = self.known.load().tls.get(name).cloned()?;
        challenge_config(key)
    }
}

/// A handshake that shows this certificate, asks for none (the authority has none), and ends in no session.
fn challenge_config(key: Arc<CertifiedKey>) -> Option<Arc<ServerConfig>> {
    let provider = Arc::new(crypto::tls::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let builder = builder.with_client_cert_verifier(Arc::new(NoClientAuth));
    let mut config = builder.with_cert_resolver(Arc::new(ChallengeCertificate(key)));
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Some(Arc::new(config))
}

#[derive(Debug)]
struct ChallengeCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for ChallengeCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_790_000_000_000_000);

    fn answer(name: &str, token: &str, kind: ChallengeKind) -> ChallengeAnswer {
        ChallengeAnswer {
            name: name.to_owned(),
            token: token.to_owned(),
            key_authorization: format!("{token}.thumb"),
            kind,
        }
    }

    const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";

    #[test]
    fn only_known_tokens_are_answered_and_only_meanwhile() {
        let challenges = Challenges::default();
        let path = format!("{WELL_KNOWN}{TOKEN}");
        assert_eq!(challenges.answer(&path), None);
        challenges.set_own(vec![answer("a.example", TOKEN, ChallengeKind::Http01)], NOW);
        assert_eq!(challenges.answer(&path).as_deref(), Some(&*format!("{TOKEN}.thumb")));
        for other in
            ["/", WELL_KNOWN, &path[1..], &format!("{path}/"), &format!("{path}a"), &path.to_uppercase()]
        {
            assert_eq!(challenges.answer(other), None, "{other}");
        }
        let other = TOKEN.replace('e', "f");
        challenges.set_fleet(vec![answer("b.example", &other, ChallengeKind::Http01)], NOW);
        challenges.set_own(Vec::new(), NOW);
        assert_eq!(challenges.answer(&path), None);
        assert!(challenges.answer(&format!("{WELL_KNOWN}{other}")).is_some());
        challenges.set_fleet(Vec::new(), NOW);
        assert!(!challenges.has_http.load(Ordering::Relaxed));
    }

    #[test]
    fn malformed_answers_of_others_are_left_out() {
        let sound = answer("a.example", TOKEN, ChallengeKind::TlsAlpn01);
        assert!(sound.is_sound());
        let faulty = [
            ChallengeAnswer { token: "short".into(), ..sound.clone() },
            ChallengeAnswer { token: TOKEN.replace('-', "/"), ..sound.clone() },
            ChallengeAnswer { key_authorization: "other.thumb".into(), ..sound.clone() },
            ChallengeAnswer { key_authorization: format!("{TOKEN}.a\r\nb"), ..sound.clone() },
            ChallengeAnswer { name: "a".repeat(254), ..sound.clone() },
        ];
        assert!(faulty.iter().all(|one| !one.is_sound()));
        let challenges = Challenges::default();
        challenges.set_fleet(faulty.to_vec(), NOW);
        assert!(!challenges.has_tls());
        let text = serde_json::to_string(&sound).unwrap();
        assert_eq!(serde_json::from_str::<ChallengeAnswer>(&text).unwrap(), sound);
        assert!(serde_json::from_str::<ChallengeAnswer>(&text.replace("tls-alpn-01", "dns-01")).is_err());
    }

    #[test]
    fn answers_that_are_cut_anywhere_are_none() {
        let text = serde_json::to_string(&[answer("a.example", TOKEN, ChallengeKind::TlsAlpn01)]).unwrap();
        for end in 0..text.len() {
            assert!(serde_json::from_str::<Vec<ChallengeAnswer>>(&text[..end]).is_err(), "cut at {end}");
        }
        let whole = answer("a.example", TOKEN, ChallengeKind::Http01);
        for end in 0..TOKEN.len() {
            let cut = ChallengeAnswer { token: TOKEN[..end].into(), ..whole.clone() };
            assert!(!cut.is_sound(), "the token is cut at {end}");
        }
    }
}
