//! `[auth.NAME]`, and `auth` of a route.

use std::sync::Arc;

use super::consumers::{self, ConsumersFile};
use super::forward::FORWARD;
use super::jwt::TOKENS;
use super::keys::{DefaultedKey, SOME, Schema, choice, flag, keys};
use super::name::{self, Directory};
use super::report::{SourceSpan, quoted};
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::{ConfigValue, Entry};
use super::{basic, forward, jwt, requirements};
use crate::auth::method::{ApiKeys, AuthMethod};
use crate::plan::auth::{Auth, AuthIndex, RouteAuth};
use crate::plan::{LimitIndex, Mode};
use crate::route::claim::ClaimPath;
use crate::route::credential::CredentialSource;

keys! {
    /// The credentials that a route asks for.
    pub(super) ROUTE_AUTH: RouteAuthKeys = "auth of a route" {
        /// The [auth.NAME] that name the consumer: a name or a list. The first whose credential the request carries
        /// decides. Default: none.
        auth = Schema::Either(&[Schema::Name, Schema::Set((1, 16), &Schema::Name)]);
        /// Whether a request without a credential is admitted as anonymous. A wrong credential gets 401 all the
        /// same.
        auth_optional: bool = flag() => false;
        /// Whether the upstream gets the credential too.
        forward_credentials: bool = flag() => false;
        /// What the consumer must have, all of these: "consumer" (its name), "tier", claims of its token by name or
        /// JSON pointer, or columns of its file, each with a value or a list of which one suffices; else 403.
        /// Default: nothing.
        require = Schema::Map(SOME, &Schema::Name, &Schema::Either(&REQUIRED));
    }
}

keys! {
    /// Credentials, each of which names a consumer: API keys or passwords of a file, or tokens of an issuer.
    pub(super) AUTH: AuthKeys = "[auth.NAME]" {
        /// api-key: the file lists the keys. basic: the file lists users with hashes of their passwords. forward: a
        /// service decides about each request. jwt: the signature of a token is verified.
        kind as "type": AuthType = choice(&TYPES), required "\"api-key\"";
        /// Where requests carry the credential: "header:NAME", "bearer" (`authorization: Bearer KEY`; the default
        /// of jwt), "query:NAME", "cookie:NAME".
        source as "from" = Schema::Matching(r"^bearer$|^(header|query|cookie):.|\$\{"), example "\"header:x-api-key\"";
        /// api-key: a CSV file with a header line: the columns `key` (8 characters or more, or sha256: and its
        /// digits), `name`, `tier`, and any others; # begins a comment line, and ${NAME} is filled in. basic: an
        /// htpasswd file, name:hash, with hashes of bcrypt or Argon2. Read again on reload. A relative path begins
        /// where this file lies.
        file = Schema::Name, example "\"consumers.csv\"";
        /// The realm of `www-authenticate`: printable ASCII. Default: the name of the auth.
        realm = Schema::Name;
        /// A limit with the key `ip` that is charged for each wrong credential. Once it is used up, wrong ones get
        /// 429; good ones still pass. Default: none.
        failures = Schema::Name;
        /// enforce: requests without a right credential are refused. shadow: they are counted and logged, and admitted
        /// as anonymous; upstreams get the credential, unless forward_credentials = false. The auths of a route have one
        /// mode.
        mode: Mode = choice(&Mode::WORDS) => Mode::Enforce;
        + FORWARD;
        + TOKENS;
    }
}

/// A value that `require` asks for, or several.
const REQUIRED: [Schema; 4] = [
    Schema::Name,
    Schema::Flag,
    Schema::Whole(0, u64::MAX),
    Schema::List(SOME, &Schema::Either(&[Schema::Name, Schema::Flag, Schema::Whole(0, u64::MAX)])),
];
const TYPES: [(&str, AuthType); 4] = [
    ("api-key", AuthType::ApiKey),
    ("basic", AuthType::Basic),
    ("forward", AuthType::Forward),
    ("jwt", AuthType::Jwt),
];
/// The maximum number of auths of a route.
const MAX_AUTHS: usize = 16;

/// The type of an auth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthType {
    ApiKey,
    Basic,
    Forward,
    Jwt,
}

/// An auth of the file.
pub(super) struct AuthDraft {
    pub(super) name: Arc<str>,
    pub(super) span: SourceSpan,
    /// The place of `failures`.
    pub(super) failures: Option<(LimitIndex, SourceSpan)>,
    /// The tiers of its consumers, with the number of keys of each.
    pub(super) tiers: Vec<(String, usize)>,
    /// `None` if it has faults.
    pub(super) auth: Option<Auth>,
}

/// Reads one entry of `[auth]`. `counted` are the claims by which limits count.
pub(super) fn read(entry: &Entry<'_>, limits: &Directory<'_>, counted: &[ClaimPath]) -> AuthDraft {
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut draft = AuthDraft {
        name: entry.key.into(),
        span: entry.key_span,
        failures: None,
        tiers: Vec::new(),
        auth: None,
    };
    let table = entry.value.table(&quoted(&format!("[auth.{}]", entry.key)));
    draft.auth = table.and_then(|table| auth(table, limits, counted, &mut draft));
    draft
}

fn auth(
    mut table: ConfigTable<'_>,
    limits: &Directory<'_>,
    counted: &[ClaimPath],
    draft: &mut AuthDraft,
) -> Option<Auth> {
    let kind = table.require(&AUTH.kind, |value| value.choice(&TYPES));
    // Without it the other keys cannot be interpreted.
    let (source, method) = match kind? {
        AuthType::ApiKey => {
            let source = table.require(&AUTH.source, source);
            let file = table.require(&AUTH.file, |value| consumers::read(&value));
            let keys = file.map(|ConsumersFile { consumers, tiers, version }| {
                draft.tiers = tiers;
                AuthMethod::ApiKeys(ApiKeys { consumers: Arc::new(consumers), version })
            });
            (source, keys)
        }
        AuthType::Basic => {
            let passwords = table.require_as(&AUTH.file, "\"users.htpasswd\"", |value| basic::read(&value));
            let passwords = passwords.map(|passwords| AuthMethod::Passwords(Arc::new(passwords)));
            (Some(CredentialSource::Basic), passwords)
        }
        AuthType::Forward => {
            let forward = forward::read(&mut table);
            (Some(CredentialSource::Request), forward.map(|forward| AuthMethod::Forward(Arc::new(forward))))
        }
        AuthType::Jwt => {
            let source = match table.take(&AUTH.source) {
                Some(value) => source(value),
                None => Some(CredentialSource::Bearer),
            };
            (
                source,
                jwt::read(&mut table, &draft.name, counted)
                    .map(|tokens| AuthMethod::Tokens(Arc::new(tokens))),
            )
        }
    };
    let realm = table.or(&AUTH.realm, draft.name.to_string(), |value| value.text()?.parse("a realm", realm));
    let mode = table.value(&AUTH.mode);
    draft.failures = table.optional(&AUTH.failures, |value| {
        let limit = LimitIndex(limits.find(&value.text()?)?);
        Some((limit, value.span()))
    });
    table.finish().then_some(())?;
    let (source, method) = (source?, method?);
    let realm = printable(&realm);
    let (challenge, challenge_invalid) = match (&method, &source) {
        (AuthMethod::Tokens(_), _) | (_, CredentialSource::Bearer) => {
            let challenge = format!("Bearer realm=\"{realm}\"");
            let invalid = format!("{challenge}, error=\"invalid_token\"");
            (challenge, invalid)
        }
        (AuthMethod::Forward(_), _) => {
            let challenge = format!("Forward realm=\"{realm}\"");
            (challenge.clone(), challenge)
        }
        (AuthMethod::Passwords(_), _) => {
            // RFC 7617 §2.1: names and passwords are UTF-8.
            let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
            (challenge.clone(), challenge)
        }
        _ => (format!("ApiKey realm=\"{realm}\""), format!("ApiKey realm=\"{realm}\"")),
    };
    Some(Auth {
        name: Arc::clone(&draft.name),
        source,
        method,
        challenge: challenge.into(),
        challenge_invalid: challenge_invalid.into(),
        failures: draft.failures.map(|(limit, _)| limit),
        mode,
    })
}

fn source(value: ConfigValue<'_>) -> Option<CredentialSource> {
    value.text()?.parse("the place of a credential", CredentialSource::parse)
}

/// A quoted string of a header (RFC 9110 §5.6.4) without escapes.
fn realm(text: &str) -> Result<String, SyntaxError> {
    if !text.is_empty() && text == printable(text) {
        return Ok(text.to_owned());
    }
    Err(SyntaxError::new(
        format!("{} cannot be a realm", quoted(text)),
        "it is sent in `www-authenticate`: use printable ASCII without `\"` and `\\`",
    ))
}

/// The characters of a name that a quoted string holds without escapes.
fn printable(text: &str) -> String {
    text.chars().filter(|char| matches!(char, ' '..='~') && !matches!(char, '"' | '\\')).collect()
}

/// Reads `auth`, `auth_optional` and `forward_credentials` of a route.
pub(super) fn of_route(
    table: &mut ConfigTable<'_>,
    auths: &Directory<'_>,
    drafts: &[AuthDraft],
) -> Option<RouteAuth> {
    let named = table.optional(&ROUTE_AUTH.auth, |value| auth_names(&value, auths, drafts));
    let is_unknown = table.is_uncertain("auth");
    let mut flag = |key: &DefaultedKey<bool>| {
        let value = table.take(key)?;
        if named.is_none() && !is_unknown {
            value.fault(
                format!("`{}` has no effect without `auth`", key.name),
                "name an `[auth.NAME]`: `auth = \"NAME\"`",
            );
        }
        key.value.read(&value)
    };
    let optional = flag(&ROUTE_AUTH.auth_optional).unwrap_or(false);
    let forwards_credentials = flag(&ROUTE_AUTH.forward_credentials);
    let asks_service = |auth: &AuthIndex| {
        let auth = drafts.get(auth.0).and_then(|draft| draft.auth.as_ref());
        auth.is_some_and(|auth| auth.forward().is_some())
    };
    if optional && named.iter().flatten().any(asks_service) {
        table.diagnostics().warn(
            table.span(),
            "`auth_optional` has no effect: a service is asked also about requests without a credential",
            "leave it out, and let the service answer 2xx to those that it admits",
        );
    }
    let required = table.take(&ROUTE_AUTH.require).and_then(|value| {
        if named.is_none() && !is_unknown {
            value.fault("`require` has no effect without `auth`", "name an `[auth.NAME]`: `auth = \"NAME\"`");
        }
        if optional {
            let help = "leave `auth_optional` out";
            value.fault("`require` admits no request without a credential", help);
        }
        requirements::read(&value)
    });
    let auths = named?;
    let sound: Option<Vec<&Auth>> = auths.iter().map(|auth| drafts.get(auth.0)?.auth.as_ref()).collect();
    let required = required.unwrap_or_default();
    if let Some(sound) = sound {
        requirements::check(&required, &sound, table.diagnostics());
    }
    let requirements = required.into_iter().map(|required| required.requirement).collect();
    let first = auths.first().and_then(|auth| drafts.get(auth.0)?.auth.as_ref());
    let mode = first.map_or(Mode::Enforce, |auth| auth.mode);
    // A backend that checks credentials itself goes on to do so.
    let forwards_credentials = forwards_credentials.unwrap_or(mode == Mode::Shadow);
    Some(RouteAuth { auths: auths.into_iter().collect(), optional, forwards_credentials, mode, requirements })
}

/// One name or a list of names.
fn auth_names(
    value: &ConfigValue<'_>,
    auths: &Directory<'_>,
    drafts: &[AuthDraft],
) -> Option<Vec<AuthIndex>> {
    let find = |text: &Cursor<'_>| auths.find(text).map(AuthIndex);
    if !value.is_list() {
        return find(&value.text()?).map(|auth| vec![auth]);
    }
    let auth_at = |auth: AuthIndex| drafts.get(auth.0)?.auth.as_ref();
    let asks_service = |auth: AuthIndex| auth_at(auth).is_some_and(|auth| auth.forward().is_some());
    let source = |auth: AuthIndex| auth_at(auth).map(|auth| &auth.source);
    // A key and a token are told apart by their form.
    let are_alike = |one: AuthIndex, other: AuthIndex| {
        source(one).is_some()
            && source(one) == source(other)
            && auth_at(one).is_some_and(|auth| auth.tokens().is_some())
                == auth_at(other).is_some_and(|auth| auth.tokens().is_some())
    };
    let mut named: Vec<AuthIndex> = Vec::new();
    value.some_of(|item| {
        let auth = find(&item.text()?)?;
        if named.contains(&auth) {
            item.fault("this route names the same auth twice", "leave one of the two out");
        } else if let Some(other) = named.iter().find(|other| are_alike(auth, **other)) {
            let message = format!(
                "{} and {} both read `{}`: only the first would ever decide",
                quoted(&drafts[other.0].name),
                quoted(&drafts[auth.0].name),
                source(auth)?,
            );
            item.fault(message, "give one of the two another `from`, or write the keys into one file");
        }
        let mode = |auth: AuthIndex| Some(auth_at(auth)?.mode);
        let differs =
            |other: &&AuthIndex| mode(auth).zip(mode(**other)).is_some_and(|(one, other)| one != other);
        if let Some(other) = named.iter().find(differs) {
            let message = format!(
                "of {} and {} only one is in shadow: it would be open whether a request is refused",
                quoted(&drafts[other.0].name),
                quoted(&drafts[auth.0].name),
            );
            item.fault(message, "give all auths of a route one `mode`");
        }
        // A service is asked about each request that comes to it.
        if let Some(before) = named.iter().find(|auth| asks_service(**auth)) {
            let message = format!(
                "{} is asked about all requests: no later auth decides",
                quoted(&drafts[before.0].name)
            );
            item.fault(message, "name it last");
        }
        named.push(auth);
        Some(())
    })?;
    if named.len() > MAX_AUTHS {
        value.fault("the route names too many auths", format!("name at most {MAX_AUTHS}"));
    }
    Some(named)
}
