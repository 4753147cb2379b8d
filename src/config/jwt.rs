//! The keys of an `[auth.NAME]` with `type = "jwt"`.

use http::uri::PathAndQuery;

use super::diagnostics::Diagnostics;
use super::keys::{SOME, Schema, keys, words as words_of};
use super::named_file::MAX_BYTES;
use super::report::{SourceSpan, quoted};
use super::service_url;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::auth::fetch::ServiceTarget;
use crate::auth::jwt::{ClaimsRules, KeySet, MIN_SECRET, SecretKey, SignatureAlgorithm};
use crate::auth::tokens::{NamedClaims, TokenSettings, VerificationKeys};
use crate::plan::Endpoint;
use crate::route::claim::ClaimPath;

keys! {
    /// The keys of `type = "jwt"`.
    pub(super) TOKENS: TokenKeys = "type = \"jwt\"" {
        /// jwt: the public keys of the issuer (RFC 7517): an https:// URL (http:// on a loopback address), or a
        /// file. Or secret_env.
        jwks = Schema::Name, example "\"https://idp.example.com/keys\"";
        /// jwt: the environment variable with the secret of HS256, at least 32 bytes, instead of jwks.
        secret_env = Schema::Name;
        /// jwt: the value of the claim `iss`. Default: any.
        issuer = Schema::Text;
        /// jwt: one of the values of the claim `aud`. Default: any.
        audience = Schema::Text;
        /// jwt: the algorithms of signatures that are accepted. Default: RS256, ES256 and EdDSA; with secret_env
        /// HS256.
        algorithms = Schema::List(SOME, &Schema::Words(&ALGORITHMS));
        /// jwt: by how much the clocks of issuer and gateway may differ, at most 5min. Default "30s".
        leeway = Schema::Text;
        /// jwt: the claim that names the consumer, by its name or by a JSON pointer. Default "sub". forward: "header:NAME", the header of the answer
        /// that does. Default: none.
        name = Schema::Name;
        /// jwt: the claim that names the consumer's tier; forward: "header:NAME", the header of the answer.
        /// Default: none.
        tier = Schema::Name;
    }
}

/// The algorithms of public keys that are allowed by default: those in wide use.
const DEFAULT_ALGORITHMS: [SignatureAlgorithm; 3] =
    [SignatureAlgorithm::Rs256, SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa];
/// The default and the maximum of `leeway`, seconds.
const DEFAULT_LEEWAY: u32 = 30;
const MAX_LEEWAY: f64 = 300.0;
/// The values of `algorithms`.
const ALGORITHMS: [&str; 10] = {
    let mut words = ["HS256"; 10];
    let (public, mut at) = (words_of(&SignatureAlgorithm::ALL), 0);
    while at < public.len() {
        words[at] = public[at];
        at += 1;
    }
    words
};
const HELP: &str = "write `https://HOST/PATH`, or the path of a file";

/// Reads all keys but those that auths of any type have. `None` if they have faults. `counted` are the claims by which
/// limits count.
pub(super) fn read(table: &mut ConfigTable<'_>, name: &str, counted: &[ClaimPath]) -> Option<TokenSettings> {
    let algorithms = table.take(&TOKENS.algorithms);
    let keys = match (table.take(&TOKENS.jwks), table.take(&TOKENS.secret_env)) {
        (Some(jwks), None) => public(&jwks, algorithms.as_ref()),
        (None, Some(secret)) => self::secret(&secret, algorithms.as_ref()),
        (None, None) => {
            table.missing(TOKENS.jwks.name, TOKENS.jwks.example);
            None
        }
        (Some(_), Some(secret)) => {
            let help = "leave one of the two out: a key that is published must never be a secret";
            secret.fault("an auth has either `jwks` or `secret_env`", help);
            None
        }
    };
    let issuer = table.optional(&TOKENS.issuer, |value| Some(value.text()?.into_string()));
    let audience = table.optional(&TOKENS.audience, |value| Some(value.text()?.into_string()));
    if audience.is_none()
        && table.given("audience").is_none()
        && matches!(keys, Some(VerificationKeys::Issuer(..)))
    {
        let message = format!(
            "auth {} has no `audience`: it admits tokens for other services of the issuer",
            quoted(name)
        );
        table.diagnostics().warn(
            table.span(),
            message,
            "write the `aud` of tokens for this service: `audience = \"api\"`",
        );
    }
    let leeway = table.or(&TOKENS.leeway, DEFAULT_LEEWAY, |value| leeway(&value));
    let claim = |value: ConfigValue<'_>| {
        let text = value.text()?;
        let claim = text.parse("a claim", self::claim)?;
        nested_claim(claim.as_str(), text.span(), text.diagnostics());
        Some(claim)
    };
    let name = table.or(&TOKENS.name, ClaimPath::Name("sub".into()), claim);
    let tier = table.optional(&TOKENS.tier, claim);
    let rules = ClaimsRules { issuer: issuer.map(Into::into), audience: audience.map(Into::into), leeway };
    let claims = NamedClaims { name, tier, counted: counted.into(), required: Box::default() };
    Some(TokenSettings { keys: keys?, rules, claims })
}

fn public(jwks: &ConfigValue<'_>, algorithms: Option<&ConfigValue<'_>>) -> Option<VerificationKeys> {
    let allowed = match algorithms {
        None => Some(DEFAULT_ALGORITHMS.into()),
        Some(value) => value.some_of(|item| algorithm(&item)).map(Vec::into_boxed_slice),
    };
    let place = jwks.text()?;
    let text = place.as_str();
    if !text.contains("://") {
        let bytes = jwks.file_at(&place, MAX_BYTES)?;
        return match KeySet::parse(&bytes) {
            Ok(keys) => Some(VerificationKeys::File(keys, allowed?)),
            Err(fault) => {
                let message = format!("the file {} has no keys: {fault}", place.quoted());
                jwks.fault(message, "write what the issuer publishes at its `jwks_uri` into it");
                None
            }
        };
    }
    let url = place.parse("the URL of a key set", |text| service_url::parse(text, "key set", HELP))?;
    if !url.secure && !is_loopback(&url.server) {
        let message =
            "the keys of an issuer must not come over `http://`: an attacker between could send other keys";
        jwks.fault(message, "write `https://`; `http://` is for a loopback address");
        return None;
    }
    let path = url.path.clone().unwrap_or(PathAndQuery::from_static("/"));
    let Endpoint { host, port, authority, tls, .. } = url.trusted(jwks)?;
    let default = if tls.is_some() { ":443" } else { ":80" };
    let authority = authority.strip_suffix(default).unwrap_or(&authority).into();
    Some(VerificationKeys::Issuer(ServiceTarget { host, port, authority, tls, path }, allowed?))
}

fn is_loopback(server: &Endpoint) -> bool {
    let address = server.host.parse::<std::net::IpAddr>();
    server.host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn algorithm(value: &ConfigValue<'_>) -> Option<SignatureAlgorithm> {
    let text = value.text()?;
    if let Some(algorithm) = SignatureAlgorithm::named(text.as_str()) {
        return Some(algorithm);
    }
    let names: Vec<_> = SignatureAlgorithm::ALL.iter().map(|(name, _)| format!("`{name}`")).collect();
    let (message, help) = match text.as_str() {
        "none" => {
            ("tokens without a signature are never accepted".to_owned(), format!("use {}", names.join(", ")))
        }
        "HS256" | "HS384" | "HS512" => (
            format!("{} is for a secret, and `jwks` has public keys", text.quoted()),
            "with `secret_env` instead of `jwks`, HS256 is the algorithm".to_owned(),
        ),
        _ => (format!("{} is not an algorithm", text.quoted()), format!("use {}", names.join(", "))),
    };
    value.fault(message, help);
    None
}

fn secret(secret: &ConfigValue<'_>, algorithms: Option<&ConfigValue<'_>>) -> Option<VerificationKeys> {
    let is_hs256 = |item: ConfigValue<'_>| {
        let text = item.text()?;
        if text.as_str() != "HS256" {
            let message = format!("{} is not an algorithm for a secret", text.quoted());
            item.fault(message, "leave `algorithms` out: HS256 is the algorithm of `secret_env`");
        }
        Some(())
    };
    if let Some(value) = algorithms {
        value.some_of(is_hs256)?;
    }
    let key = SecretKey::new(secret.variable()?.as_bytes());
    if key.is_none() {
        let help = format!("use at least {MIN_SECRET} bytes: `openssl rand -hex 32` makes a good one");
        secret.fault("the secret is too short for HS256", help);
    }
    key.map(|key| VerificationKeys::Secret(Box::new(key)))
}

fn leeway(value: &ConfigValue<'_>) -> Option<u32> {
    if value.whole_text() == Some("0s") {
        return Some(0);
    }
    let seconds = value.duration()?.as_secs_f64().ceil();
    if seconds > MAX_LEEWAY {
        value.fault("clocks that differ by so much are not in order", "use at most `5min`");
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the range")]
    let whole = seconds as u32;
    Some(whole)
}

fn claim(name: &str) -> Result<ClaimPath, SyntaxError> {
    if name.is_empty() {
        return Err(SyntaxError::new("a claim has a name", "write, for example, `sub`"));
    }
    let help = "write, for example, `/app_metadata/plan`";
    ClaimPath::parse(name).map_err(|fault| SyntaxError::new(format!("{}: {fault}", quoted(name)), help))
}

/// Claims of tokens that are objects: Supabase, Auth0, Keycloak, Clerk, Firebase, Kubernetes, OpenID Connect.
const OBJECTS: [&str; 13] = [
    "act",
    "address",
    "app_metadata",
    "cnf",
    "firebase",
    "metadata",
    "private_metadata",
    "public_metadata",
    "realm_access",
    "resource_access",
    "unsafe_metadata",
    "user_metadata",
    "verified_claims",
];

/// Warns of a name that is meant as the place of a value within a claim.
pub(super) fn nested_claim(claim: &str, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    if claim.starts_with('/') {
        return;
    }
    let plain = claim.trim_start_matches("$.");
    let outer = plain.split_once(['.', '/']).map(|(outer, _)| outer);
    let is_nested = |outer: &str| OBJECTS.contains(&outer) || plain.len() < claim.len();
    if outer.is_some_and(is_nested) {
        let message = format!("{} names a claim of that whole name", quoted(claim));
        let pointer: Vec<_> = plain.split(['.', '/']).map(|name| name.replace('~', "~0")).collect();
        let help =
            format!("write {} for the value within a claim", quoted(&format!("/{}", pointer.join("/"))));
        diagnostics.warn(span, message, help);
    }
}
