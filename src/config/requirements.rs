//! `require` of a route: what its consumers must be or have.

use super::diagnostics::Diagnostics;
use super::jwt;
use super::report::{SourceSpan, quoted};
use super::text::SyntaxError;
use super::value::{ConfigValue, Entry};
use crate::auth::method::AuthMethod;
use crate::plan::auth::Auth;
use crate::plan::requirement::{Attribute, ConsumerRequirement};
use crate::route::claim::ClaimPath;

/// The maximum number of requirements of a route.
const MAX_REQUIREMENTS: usize = 32;

/// A requirement, and where it stands.
pub(super) struct RequirementDraft {
    pub(super) requirement: ConsumerRequirement,
    pub(super) span: SourceSpan,
}

/// Reads a table of requirements.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<Vec<RequirementDraft>> {
    let entries = value.entries()?;
    if entries.is_empty() {
        value.fault("`require` names nothing", "write, for example, `{ scope = \"orders:read\" }`");
        return None;
    }
    if entries.len() > MAX_REQUIREMENTS {
        value.fault("the route requires too much", format!("write at most {MAX_REQUIREMENTS}"));
        return None;
    }
    Some(entries.iter().filter_map(requirement).collect())
}

fn requirement(entry: &Entry<'_>) -> Option<RequirementDraft> {
    let attribute = match entry.key {
        Attribute::CONSUMER => Attribute::Name,
        Attribute::TIER => Attribute::Tier,
        "" => {
            entry.value.fault("a claim has a name", "write, for example, `scope`");
            return None;
        }
        claim => match ClaimPath::parse(claim) {
            Ok(path) => {
                jwt::nested_claim(claim, entry.key_span, entry.value.diagnostics());
                Attribute::Claim(path)
            }
            Err(fault) => {
                let message = format!("{}: {fault}", quoted(claim));
                let diagnostics = entry.value.diagnostics();
                diagnostics.fault(entry.key_span, message, "write, for example, `\"/realm_access/roles\"`");
                return None;
            }
        },
    };
    let is_scope = attribute.claim().is_some_and(ClaimPath::is_scope);
    let any_of = match entry.value.is_list() {
        true => entry.value.some_of(|item| wanted(&item, is_scope))?,
        false => vec![wanted(&entry.value, is_scope)?],
    };
    let requirement = ConsumerRequirement { attribute, any_of: any_of.into() };
    Some(RequirementDraft { requirement, span: entry.key_span })
}

/// A value that is required: a text, a whole number, or `true` or `false`.
fn wanted(value: &ConfigValue<'_>, is_scope: bool) -> Option<Box<str>> {
    if let Some(is_true) = value.written_boolean() {
        return Some(is_true.to_string().into());
    }
    if value.is_whole() {
        return Some(value.whole(0..=u64::MAX)?.to_string().into());
    }
    let text = value.text()?.parse("a value of `require`", |text| match text {
        "" => Err(SyntaxError::new("an empty value is never had", "leave it out")),
        // An empty scope would be had by tokens with two blanks in a row only.
        _ if is_scope && text.split(' ').any(str::is_empty) => {
            Err(SyntaxError::new("scopes have one blank between them", "write `orders:read orders:write`"))
        }
        _ => Ok(text.to_owned()),
    })?;
    Some(text.into())
}

/// Reports requirements that no consumer of a route's auths can meet.
pub(super) fn check(given: &[RequirementDraft], auths: &[&Auth], diagnostics: &Diagnostics<'_>) {
    for RequirementDraft { requirement, span } in given {
        if !auths.iter().any(|auth| may_have(auth, &requirement.attribute)) {
            let attribute = quoted(&requirement.attribute.to_string());
            let message = format!("no auth of the route tells the {attribute} of a consumer");
            let help = match requirement.attribute {
                Attribute::Claim(_) => {
                    "tokens have claims, and files of API keys have columns: name such an auth"
                }
                Attribute::Tier | Attribute::Name => "name an auth whose consumers have tiers",
            };
            diagnostics.fault(*span, message, help);
        } else if auths.iter().all(|auth| auth.api_keys().is_some())
            && !auths.iter().flat_map(|auth| auth.consumers()).any(|one| requirement.is_met_by(one))
        {
            let message = format!("no consumer has {requirement}, so that each request gets 403");
            diagnostics.warn(*span, message, "look at the file of consumers, or require another value");
        }
    }
}

/// Whether a consumer of the auth may have a value of the attribute.
fn may_have(auth: &Auth, attribute: &Attribute) -> bool {
    match (&auth.method, attribute) {
        (_, Attribute::Name) | (AuthMethod::Tokens(_), Attribute::Claim(_)) => true,
        (AuthMethod::ApiKeys(keys), Attribute::Claim(claim)) => keys.consumers.has_column(claim.as_str()),
        (AuthMethod::ApiKeys(keys), Attribute::Tier) => keys.consumers.has_tiers(),
        (AuthMethod::Tokens(tokens), Attribute::Tier) => tokens.claims.tier.is_some(),
        (AuthMethod::Forward(service), Attribute::Tier) => service.tier.is_some(),
        (AuthMethod::Passwords(_), Attribute::Tier)
        | (AuthMethod::Passwords(_) | AuthMethod::Forward(_), Attribute::Claim(_)) => false,
    }
}
