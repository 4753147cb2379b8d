//! `[limits.NAME]`.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::rated::RatedLimit;
use super::report::{SourceSpan, quoted};
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::{ConfigValue, Entry};
use super::{
    algorithm, ban, before_auth, conditions, content, jwt, name, networks, path_spelling, policy, remedies,
    store,
};
use crate::clock::micros;
use crate::limit::units::{Cost, Micros};
use crate::plan::trial::Trial;
use crate::plan::{Limit, Mode, Tier};
use crate::route::exemptions::{Exemption, Exemptions};
use crate::route::key::{Key, Missing, Part, Repeated};
use crate::store::OnError;

/// Clients that are refused wait at most this much longer than needed.
const MAX_RETRY_JITTER: Duration = Duration::from_secs(3600);
/// Parts of a composite key.
const MAX_PARTS: usize = 16;

const MISSING: [(&str, Missing); 4] =
    [("ip", Missing::Ip), ("shared", Missing::Shared), ("skip", Missing::Skip), ("deny", Missing::Deny)];

const REPEATED: [(&str, Repeated); 3] =
    [("deny", Repeated::Deny), ("missing", Repeated::Missing), ("join", Repeated::Join)];

const UNREADABLE: [(&str, bool); 2] = [("deny", false), ("missing", true)];

const FOLD: [(&str, ()); 1] = [("lower", ())];

/// A limit of the file.
pub(super) struct LimitDraft {
    pub(super) name: Arc<str>,
    pub(super) span: SourceSpan,
    /// The places of its exemptions, in their order.
    pub(super) exempt_places: Vec<SourceSpan>,
    /// `None` if it has faults.
    pub(super) limit: Option<Limit>,
}

/// Reads one entry of `[limits]`, with the `on_error` of `[store]`.
pub(super) fn read(entry: &Entry<'_>, on_error: OnError) -> LimitDraft {
    name::check_limit(entry.key, entry.key_span, entry.value.diagnostics());
    let limit = entry
        .value
        .table(&quoted(&format!("[limits.{}]", entry.key)))
        .and_then(|table| limit(entry.key, table, on_error));
    let (limit, exempt_places) = limit.unzip();
    let exempt_places = exempt_places.unwrap_or_default();
    LimitDraft { name: entry.key.into(), span: entry.key_span, exempt_places, limit }
}

/// The limit, and the places of its exemptions.
fn limit(name: &str, mut table: ConfigTable<'_>, inherited: OnError) -> Option<(Limit, Vec<SourceSpan>)> {
    let diagnostics = table.diagnostics();
    let rated = algorithm::read(&mut table);
    let key = key(&mut table);
    let ban = table.optional("ban", |value| ban::read(&value));
    let on_error = table.or("on_error", inherited, |value| store::on_error(&value));
    let exempt = table
        .or("exempt", Vec::new(), |value| value.each(|item| Some((written_exemption(&item)?, item.span()))));
    let mode = table.or("mode", Mode::Enforce, |value| value.choice(&Mode::WORDS));
    let reject = table.optional("reject", |value| content::reject(&value));
    let reveal = table.or("reveal", false, |value| value.boolean());
    let trial = table.optional("trial", |value| trial(&value, name, mode));
    let retry_jitter = table.optional("retry_jitter", |value| jitter(&value));
    let max_keys = table.optional("max_keys", |value| NonZeroU64::new(value.count(1, Cost::MAX)?.into()));
    let before_auth = table.optional("before_auth", |value| Some((value.boolean()?, value.span())));
    table.finish().then_some(())?;
    let key = key?;
    let RatedLimit { rates, tiers } = rated?;
    let mut tiers: Vec<Tier> = tiers
        .into_iter()
        .map(|(tier, rates)| Tier {
            name: tier.into(),
            policies: policy::policies(name, &key, on_error, rates),
        })
        .collect();
    tiers.sort_by(|one, other| one.name.cmp(&other.name));
    let policies = policy::policies(name, &key, on_error, rates);
    let (exempt, exempt_places): (Vec<_>, Vec<_>) = exempt.into_iter().unzip();
    let exempt = Exemptions::new(exempt);
    let ban = ban.map(|ban| ban.of(name, &key, on_error, diagnostics));
    let limit = Limit {
        name: name.into(),
        policies,
        tiers,
        ban,
        key,
        exempt,
        mode,
        trial,
        on_error,
        reject,
        retry_jitter,
        max_keys,
        reveal,
        before_auth: before_auth.is_some_and(|(on, _)| on),
    };
    before_auth.inspect(|(_, span)| before_auth::check(&limit, *span, diagnostics));
    Some((limit, exempt_places))
}

/// The share of keys for which the limit is enforced.
fn trial(value: &ConfigValue<'_>, name: &str, mode: Mode) -> Option<Trial> {
    let share = value.share()?;
    if mode == Mode::Shadow {
        value.diagnostics().fault(
            value.span(),
            "`trial` enforces the limit for a share of its keys, but `mode = \"shadow\"` for none",
            "leave one of the two out",
        );
    }
    Some(Trial::new(share, name))
}

fn jitter(value: &ConfigValue<'_>) -> Option<Micros> {
    let jitter = value.duration()?;
    if jitter > MAX_RETRY_JITTER {
        value.fault("`retry_jitter` is longer than an hour", "write a span of at most `\"1h\"`");
        return None;
    }
    Some(micros(jitter))
}

fn key(table: &mut ConfigTable<'_>) -> Option<Key> {
    let parts = table.require("key", "\"ip\"", |value| parts(&value));
    let given = table.take("missing");
    let missing = given.as_ref().map_or(Some(Missing::Ip), |value| value.choice(&MISSING))?;
    let repeats = table.take("repeated");
    let repeated = match &repeats {
        Some(value) => Some(value.choice(&REPEATED)?),
        None => None,
    };
    let unreadable = table.take("unreadable");
    let unreadable_is_missing = match &unreadable {
        Some(value) => value.choice(&UNREADABLE)?,
        None => false,
    };
    let folds_case = table.optional("fold", |value| value.choice(&FOLD)).is_some();
    let parts = parts.filter(|_| !table.is_uncertain("key"))?;
    if let Some(unreadable) = unreadable
        && !parts.iter().any(Part::is_of_body)
    {
        unreadable.diagnostics().warn(
            unreadable.span(),
            "`unreadable` has no effect: no part of this key stands in a body",
            "leave it out; it is about `json:` and `form:`",
        );
    }
    if let Some(repeats) = repeats
        && !parts.iter().any(Part::invented_by_client)
    {
        repeats.diagnostics().warn(
            repeats.span(),
            "`repeated` has no effect: no part of this key can come more than once",
            "leave it out; it is about `header:`, `cookie:`, `query:`, `json:` and `form:`",
        );
    }
    if let Some(given) = given
        && !parts.iter().any(Part::may_be_missing)
    {
        given.diagnostics().warn(
            given.span(),
            "`missing` has no effect: no part of this key can be missing",
            "leave it out; it speaks of `header:`, `cookie:`, `query:`, `json:`, `form:` and `tls:subject`",
        );
    }
    Some(Key { parts, missing, repeated, unreadable_is_missing, folds_case })
}

/// The parts of a key: one word, or a list.
pub(super) fn parts(value: &ConfigValue<'_>) -> Option<Vec<Part>> {
    if !value.is_list() {
        return part(value).map(|part| vec![part]);
    }
    let mut parts: Vec<Part> = Vec::new();
    value.some_of(|item| {
        let part = part(&item)?;
        if parts.contains(&part) {
            item.fault(format!("the key names `{part}` twice"), "leave one of the two out");
        }
        parts.push(part);
        Some(())
    })?;
    if parts.len() > MAX_PARTS {
        value.fault("the key has too many parts", format!("name at most {MAX_PARTS}"));
    }
    Some(parts)
}

fn part(value: &ConfigValue<'_>) -> Option<Part> {
    let text = value.text()?;
    let part = text.parse("a key", |text| {
        Part::parse(text).map_err(|fault| {
            let help = remedies::key_part(text).unwrap_or(fault.help);
            SyntaxError::new(fault.message, help)
        })
    })?;
    if let Part::JwtClaim(claim) = &part {
        jwt::nested_claim(claim, &text);
    }
    Some(part)
}

fn exemption(value: &ConfigValue<'_>) -> Option<Exemption> {
    let text = value.text()?;
    let exemption = text.parse("an exemption", |content| Exemption::parse_with(content, text.variables()))?;
    if let Some(network) = text.as_str().strip_prefix("ip:").and_then(|text| text.parse().ok()) {
        networks::warn_of_host_bits(network, value);
    }
    let path = text.written().strip_prefix("path:").and_then(path_spelling::foreign_parameter);
    if let Some((segment, right)) = path {
        let message = format!("{} in {} is a text, not a parameter", quoted(&segment), text.quoted());
        value.diagnostics().warn(
            value.span(),
            message,
            format!("write {}", quoted(&format!("path:{right}"))),
        );
    }
    if let Exemption::Header(name, patterns) = &exemption {
        conditions::note_exemption(value, text.as_str(), name, patterns);
        value.diagnostics().warn(
            value.span(),
            format!("any client can send the field {} and be exempt", quoted(name.as_str())),
            "exempt by `ip:`, or make sure that a proxy in front drops this field from outside requests",
        );
    }
    Some(exemption)
}

/// As [`exemption`]; one as other proxies have them is answered with what stands for it.
fn written_exemption(value: &ConfigValue<'_>) -> Option<Exemption> {
    match value.written().and_then(|text| Some((text, exemption_remedy(text)?))) {
        None => exemption(value),
        Some((text, help)) => {
            // The text after `=` may be a secret.
            let text = text.split_inclusive('=').next().unwrap_or_default();
            value.fault(format!("`{text}` is not an exemption"), help);
            None
        }
    }
}

/// The remedy for an exemption that is a network without its word, or a condition that routes have.
fn exemption_remedy(text: &str) -> Option<String> {
    if text.parse::<IpNet>().is_ok() || text.parse::<IpAddr>().is_ok() {
        return Some(format!("write `ip:{text}`"));
    }
    remedies::movers_word("=exempt", text.split([':', '=']).next()?).map(str::to_owned)
}
