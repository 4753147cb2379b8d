//! One order: from the account to the certificate (RFC 8555 §7).
//!
//! Between [`PendingOrder::begin`] and [`PendingOrder::finish`] its caller publishes the answers to the challenges, so that
//! they can be asked for before the authority is told that they can.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType,
    Error as AcmeError, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
    RetryPolicy,
};
use rustls::pki_types::Der;
use serde::{Deserialize, Serialize};

use super::certificate::{self, StoredCertificate, plain};
use super::challenges::ChallengeAnswer;
use super::http::AuthorityClient;
use super::settings::{AcmeSettings, ChallengeKind, ExternalAccount};

/// How long the authority may take to look at the challenges, and to issue.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often it is asked for its state at first, and how much more seldom each time.
const FIRST_POLL: Duration = Duration::from_millis(500);
const BACKOFF: f32 = 1.4;
/// Characters of an authority's explanation in a log line.
const MAX_DETAIL: usize = 500;

/// Why an order failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct OrderFailure {
    /// A sentence, with the authority's explanation.
    pub text: String,
    /// The authority asks for at least this wait.
    pub wish: Option<Duration>,
    /// The authority does not know the account: another one has to be made.
    pub has_no_account: bool,
    /// The authority rejects nonces, also of the library's further tries: the order may be made again at once.
    pub is_nonce: bool,
}

impl OrderFailure {
    /// A failure that is none of the authority's answers.
    pub fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), wish: None, has_no_account: false, is_nonce: false }
    }

    /// The failure of a step.
    fn at(step: &str, error: &AcmeError, client: &AuthorityClient) -> Self {
        let problem = match error {
            AcmeError::Api(problem) => Some(problem),
            _ => None,
        };
        let text = problem.map_or_else(|| error.to_string(), explained);
        let kind = problem.and_then(|problem| problem.r#type.as_deref()).unwrap_or_default();
        Self {
            text: format!("{step}: {}", plain(&text, MAX_DETAIL)),
            wish: client.seen().retry_after,
            has_no_account: kind.ends_with(":accountDoesNotExist"),
            is_nonce: problem.is_some_and(is_nonce),
        }
    }
}

/// What the authority says of a problem.
fn explained(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or("a problem without a type");
    let kind = kind.rsplit(':').next().unwrap_or(kind);
    let mut text = format!("{} ({kind})", problem.detail.as_deref().unwrap_or("no detail"));
    for one in problem.subproblems.iter().take(3) {
        let detail = one.detail.as_deref().unwrap_or("no detail");
        match &one.identifier {
            Some(Identifier::Dns(name)) => text.push_str(&format!("; {name}: {detail}")),
            _ => text.push_str(&format!("; {detail}")),
        }
    }
    text
}

/// The account as it is kept.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: String,
    /// The external account that it is bound to.
    external: Option<String>,
    credentials: AccountCredentials,
}

/// The account with the authority: the stored one, or a new one, which is returned as it is to be kept.
///
/// # Errors
///
/// The authority cannot be asked, or refuses the account. [`OrderFailure::has_no_account`]: the stored one is unusable.
pub async fn account(
    settings: &AcmeSettings,
    client: &AuthorityClient,
    stored: Option<&[u8]>,
) -> Result<(Account, Option<Vec<u8>>), OrderFailure> {
    let external = settings.external_account.as_ref();
    let key_id = external.map(|external| external.key_id.clone());
    let builder = Account::builder_with_http(Box::new(client.clone()));
    if let Some(stored) = stored {
        let read = serde_json::from_slice::<StoredAccount>(stored).ok();
        let unusable =
            || OrderFailure { has_no_account: true, ..OrderFailure::of("the stored account is damaged") };
        let StoredAccount { directory, external, credentials } = read.ok_or_else(unusable)?;
        if directory == settings.directory && external == key_id {
            let found = builder.from_credentials(credentials).await;
            let account = found.map_err(|error| match error {
                AcmeError::KeyRejected => unusable(),
                error => OrderFailure::at("the directory", &error, client),
            })?;
            return Ok((account, None));
        }
    }
    let contact = settings.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<_> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let binding = external
        .map(|ExternalAccount { key_id, hmac_key }| ExternalAccountKey::new(key_id.clone(), hmac_key));
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let created = builder.create(&new, settings.directory.clone(), binding.as_ref()).await;
    let (account, credentials) = created.map_err(|error| OrderFailure::at("the account", &error, client))?;
    let kept = StoredAccount { directory: settings.directory.clone(), external: key_id, credentials };
    let kept = serde_json::to_vec(&kept).map_err(|error| OrderFailure::of(error.to_string()))?;
    Ok((account, Some(kept)))
}

/// An order whose challenges are to be answered.
pub struct PendingOrder {
    order: Order,
    client: AuthorityClient,
    names: Vec<String>,
    kind: ChallengeKind,
    /// What the authority may ask for.
    pub answers: Vec<ChallengeAnswer>,
}

impl PendingOrder {
    /// Orders a certificate for these names. `replaces`: the id of the certificate that it replaces.
    ///
    /// # Errors
    ///
    /// The authority refuses it, or offers no such challenge.
    pub async fn begin(
        account: &Account,
        client: &AuthorityClient,
        names: &[String],
        kind: ChallengeKind,
        replaces: Option<&str>,
    ) -> Result<Self, OrderFailure> {
        let failed = |error: &AcmeError| OrderFailure::at("the order", error, client);
        let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
        let replaced = replaces.filter(|_| client.seen().renewal_info.is_some()).and_then(identifier);
        let order = match replaced {
            Some(replaced) => {
                let order = account.new_order(&NewOrder::new(&identifiers).replaces(replaced)).await;
                match order {
                    // An authority may not know the certificate, or an order has replaced it.
                    Err(AcmeError::Api(problem)) if !is_limit(&problem) => None,
                    Err(AcmeError::Other(_)) => None,
                    order => Some(order.map_err(|error| failed(&error))?),
                }
            }
            None => None,
        };
        let mut order = match order {
            Some(order) => order,
            None => account.new_order(&NewOrder::new(&identifiers)).await.map_err(|error| failed(&error))?,
        };
        client.forget_wish();
        let answers = answers(&mut order, client, names, kind).await?;
        let (client, names) = (client.clone(), names.to_vec());
        Ok(Self { order, client, names, kind, answers })
    }

    /// Tells the authority that the challenges are answered, and gets the certificate.
    ///
    /// # Errors
    ///
    /// It does not issue one, or one that cannot be used.
    pub async fn finish(mut self) -> Result<StoredCertificate, OrderFailure> {
        let Self { order, client, names, kind, answers } = &mut self;
        let client = &*client;
        let failed = |step: &'static str| move |error: AcmeError| OrderFailure::at(step, &error, client);
        let mut waiting: BTreeSet<_> = answers.iter().map(|answer| answer.name.as_str()).collect();
        let (mut authorizations, mut refused) = (order.authorizations(), None);
        while let Some(next) = authorizations.next().await {
            let mut one = next.map_err(failed("an authorization"))?;
            if !waiting.remove(one.identifier().to_string().as_str()) {
                continue;
            }
            if let Some(mut challenge) = one.challenge(wanted(*kind))
                && let Err(error) = challenge.set_ready().await
            {
                refused = Some(error);
                break;
            }
        }
        match refused {
            Some(AcmeError::Api(problem)) if !is_nonce(&problem) => {
                return Err(rejected(order, client, Some(&problem)).await);
            }
            Some(error) => return Err(OrderFailure::at("a challenge", &error, client)),
            None => {}
        }
        let policy = RetryPolicy::new().initial_delay(FIRST_POLL).backoff(BACKOFF).timeout(PATIENCE);
        match order.poll_ready(&policy).await {
            Ok(OrderStatus::Ready) => {}
            Ok(_) => return Err(rejected(order, client, None).await),
            Err(AcmeError::Api(problem)) if !is_nonce(&problem) => {
                return Err(rejected(order, client, Some(&problem)).await);
            }
            Err(error) => return Err(OrderFailure::at("the challenges", &error, client)),
        }
        let (request, key) =
            certificate::request(names).map_err(|error| OrderFailure::of(error.to_string()))?;
        order.finalize_csr(&request).await.map_err(failed("the request for the certificate"))?;
        let chain = order.poll_certificate(&policy).await.map_err(failed("the certificate"))?;
        let received = StoredCertificate::from_pem(&format!("{}\n{key}", chain.trim_end()));
        received
            .map_err(|fault| OrderFailure::of(format!("the authority's certificate cannot be used: {fault}")))
    }
}

/// Whether the authority rejects the nonce, and nothing else.
fn is_nonce(problem: &Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":badNonce"))
}

/// Whether an order would be refused in any form.
fn is_limit(problem: &Problem) -> bool {
    problem
        .r#type
        .as_deref()
        .is_some_and(|kind| kind.ends_with(":rateLimited") || kind.ends_with(":accountDoesNotExist"))
}

/// What RFC 9773 calls a certificate.
fn identifier(id: &str) -> Option<CertificateIdentifier<'static>> {
    let (authority, serial) = id.split_once('.')?;
    let decoded = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let (authority, serial) = (decoded(authority)?, decoded(serial)?);
    Some(CertificateIdentifier::new(Der::from_slice(&authority), Der::from_slice(&serial)).into_owned())
}

fn wanted(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Http01 => ChallengeType::Http01,
    }
}

/// The answers to the challenges of an order for these names.
async fn answers(
    order: &mut Order,
    client: &AuthorityClient,
    names: &[String],
    kind: ChallengeKind,
) -> Result<Vec<ChallengeAnswer>, OrderFailure> {
    if order.state().authorizations.len() > names.len() {
        return Err(OrderFailure::of("the authority asks for more names than were ordered"));
    }
    let mut answers: Vec<ChallengeAnswer> = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut one = next.map_err(|error| OrderFailure::at("an authorization", &error, client))?;
        let name = one.identifier().to_string().to_ascii_lowercase();
        if !names.contains(&name) {
            let other = plain(&name, MAX_DETAIL);
            return Err(OrderFailure::of(format!("the authority asks for `{other}`, which was not ordered")));
        }
        match one.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                return Err(OrderFailure::of(format!("the authority says that `{name}` is {status:?}")));
            }
        }
        let Some(challenge) = one.challenge(wanted(kind)) else {
            let text = format!("the authority offers no challenge `{}` for `{name}`", kind.as_str());
            return Err(OrderFailure::of(text));
        };
        let key_authorization = challenge.key_authorization().as_str().to_owned();
        let answer = ChallengeAnswer { name, token: challenge.token.clone(), key_authorization, kind };
        if !answer.is_sound() {
            return Err(OrderFailure::of("the token of a challenge is malformed"));
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// Why the authority rejected an order: of each name what it found.
async fn rejected(order: &mut Order, client: &AuthorityClient, problem: Option<&Problem>) -> OrderFailure {
    let mut texts: Vec<String> = Vec::new();
    let wish = client.seen().retry_after;
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut one)) = authorizations.next().await {
        if texts.len() >= 3 {
            break;
        }
        let name = one.identifier().to_string();
        let Ok(state) = one.refresh().await else { continue };
        let problems = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        texts.extend(problems.map(|problem| format!("`{name}`: {}", explained(problem))));
    }
    let whole = problem.map_or_else(|| "no reason is given".to_owned(), explained);
    let text = if texts.is_empty() { whole } else { texts.join("; ") };
    OrderFailure {
        wish,
        ..OrderFailure::of(format!("the authority rejects the order: {}", plain(&text, MAX_DETAIL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of a test alone.
    const ACCOUNT: &str = r#"{"directory":"https://ca.example/dir","external":null,"credentials":{"id":"https://ca.example/1","key_pkcs8":"AAAA","directory":"https://ca.example/dir"}}"#;

    #[test]
    fn an_account_that_is_cut_anywhere_is_none() {
        assert!(serde_json::from_str::<StoredAccount>(ACCOUNT).is_ok());
        for end in 0..ACCOUNT.len() {
            assert!(serde_json::from_str::<StoredAccount>(&ACCOUNT[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn ids_of_certificates_are_those_of_their_text() {
        let id = identifier("AQID.BAUG").unwrap();
        assert_eq!(id.to_string(), "AQID.BAUG");
        for faulty in ["", "AQID", "AQID.BAUG.BAUG", "AQ=ID.BAUG", "é.BAUG", "AQID. "] {
            assert!(identifier(faulty).is_none(), "{faulty}");
        }
    }
}
