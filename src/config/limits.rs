//! `[limits.NAME]`.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::algorithm::ALGORITHM;
use super::ban::BAN;
use super::calendar::CALENDAR;
use super::content::REJECT;
use super::diagnostics::Diagnostics;
use super::keys::{ANY, NamedSchema, Schema, choice, count, duration, flag, keys, share};
use super::leases::{LEASE, SYNC, Sync};
use super::maps::MapDraft;
use super::rated::{RATED, Rated, RatedLimit, RatedTier};
use super::report::{SourceSpan, quoted};
use super::store::{ON_ERROR, StoreDraft};
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::usage::UsageDraft;
use super::value::{ConfigValue, Entry};
use super::{
    algorithm, ban, before_auth, conditions, content, jwt, leases, maps, name, networks, path_spelling,
    remedies, shares,
};
use crate::clock::micros;
use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::limit::units::{Cost, Micros};
use crate::plan::trial::Trial;
use crate::plan::{Limit, Mode, Policy, Tier, policy};
use crate::route::exemptions::{Exemption, Exemptions};
use crate::route::key::{Key, Missing, Part, Repeated};
use crate::store::OnError;

keys! {
    /// How many requests of a key are admitted.
    pub(super) LIMIT: LimitKeys = "[limits.NAME]" {
        /// The share of keys for which the limit is enforced, from 0 to 1. For the others it is in shadow. Default:
        /// all keys.
        trial: f64 = share();
        /// The most that is added to `retry-after` of a refusal, at random, up to "1h". Default: nothing.
        retry_jitter: Duration = duration();
        /// Whether the limit is charged before a credential is looked at or a service is asked, apart from the
        /// other limits, and also for requests that are then answered 401 or 403.
        before_auth: bool = flag() => false;
        /// The most keys of this limit that are counted in memory at once, of `max_keys` of `[store]`; each of
        /// several rates counts. When they are used up, the least used one of the limit leaves. Default: no bound
        /// of its own.
        max_keys: u64 = count(1, Cost::MAX as u64);
        /// After too many refusals of a key within a span, all its requests under this limit are refused for a
        /// time. Default: none.
        ban = Schema::Table(&BAN);
        /// Whose allowance is spent: "ip", "country", "asn", "header:NAME", "cookie:NAME", "query:NAME", "host",
        /// "path", "method", "route", "upstream", "global", "consumer", "consumer:COLUMN", "jwt:CLAIM", "json:/POINTER",
        /// "form:NAME", "tls:subject", "descriptor:NAME" (in [[descriptors]]); or a list of up to 16 of these.
        key = KEY, required "\"ip\"";
        /// When the header, cookie, query or consumer is absent: the client's address stands in, all such requests
        /// share one counter, the limit is skipped, or 429.
        missing: Missing = choice(&MISSING) => Missing::Ip;
        /// When a header, cookie or query of the key comes more than once with different values: 400, treated as
        /// missing, or one key together. Default "deny", of cookies "missing".
        repeated: Repeated = choice(&REPEATED);
        /// When the body, which json: and form: read, is too large (413), of another type (415) or broken (400): it
        /// is refused, or treated as missing.
        unreadable: bool = choice(&UNREADABLE) => false;
        /// The values of the key are compared in lower case, without blanks and NUL around them, and without
        /// differences of compatibility (NFKC). Default: byte for byte.
        fold: () = choice(&FOLD);
        /// concurrency and leaky-bucket: the places and the queue are divided among the keys that want them, by the
        /// weights of their tiers. Keys as in `key`. Default: first come, first served.
        share_by = KEY;
        /// Whose tier a request has: "map:NAME(PART)", the tier of a value of the request in `[maps.NAME]`, with a part
        /// as in `key`. Default: that of its consumer.
        tier = Schema::Matching(r"^map:.+\(.+\)$|\$\{");
        /// Exempt requests: "ip:10.0.0.0/8", "header:x-internal=1" (the value is a pattern), "path:/health",
        /// "consumer:NAME". Default: none.
        exempt = Schema::List(ANY, &Schema::Matching(r"^(ip|header|path|consumer):|\$\{"));
        /// shadow: decide, count and log, but let through.
        mode: Mode = choice(&Mode::WORDS) => Mode::Enforce;
        /// Whether admin views show the values of header, cookie and query keys whole.
        reveal: bool = flag() => false;
        /// What happens while the shared store is unreachable: "local" counts in memory, "allow" lets through,
        /// "deny" refuses with 503. Default: that of `[store]`.
        on_error: OnError = choice(&ON_ERROR);
        /// How gateways share the counters of a fleet: "exact", the store decides each request; "lease", each gateway
        /// takes units in advance and decides by itself.
        sync: Sync = choice(&SYNC) => Sync::Exact;
        /// How long a gateway has units in advance, "100ms" to "60s", with `sync = "lease"`.
        lease: Duration = duration() => LEASE;
        /// fixed-window by the calendar with `key = "consumer"`: the names of consumers and their units are kept, window
        /// by window, for the admin API.
        usage: bool = flag() => false;
        /// How many windows before the present one `usage` keeps.
        keep_windows: u8 = count(1, 12) => 1;
        /// How a refusal looks. Default: 429 with a problem+json body.
        reject = Schema::Table(&REJECT);
        + ALGORITHM;
        + RATED;
        + CALENDAR;
    }
}

/// The key of a limit in the schema: a part or a list of them.
pub(super) const KEY: Schema =
    Schema::Either(&[Schema::Named(&KEY_PART), Schema::Set((1, MAX_PARTS), &Schema::Named(&KEY_PART))]);
static KEY_PART: NamedSchema = NamedSchema {
    name: "key",
    description: "",
    schema: Schema::Matching(
        r"^(ip|ip/[0-9]+(,[0-9]+)?|country|asn|host|path|method|route|upstream|global|consumer|tls:subject)$|^(header|cookie|query|consumer|jwt|form|descriptor):.|^json:/|\$\{",
    ),
};

/// Clients that are refused wait at most this much longer than needed.
const MAX_RETRY_JITTER: Duration = Duration::from_secs(3600);
/// Parts of a composite key.
const MAX_PARTS: u32 = 16;

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
    pub(super) places: LimitPlaces,
    /// `None` if it has faults.
    pub(super) limit: Option<Limit>,
}

/// The places of keys of a limit that are checked later.
#[derive(Default)]
pub(super) struct LimitPlaces {
    /// Of its exemptions, in their order.
    pub(super) exempt: Vec<SourceSpan>,
    pub(super) on_error: Option<SourceSpan>,
    /// Of a limit with leases.
    pub(super) sync: Option<SourceSpan>,
}

/// Reads one entry of `[limits]`, which inherits from `[store]`.
pub(super) fn read(entry: &Entry<'_>, store: &StoreDraft, maps: &[MapDraft]) -> LimitDraft {
    name::check_limit(entry.key, entry.key_span, entry.value.diagnostics());
    let limit = entry
        .value
        .table(&quoted(&format!("[limits.{}]", entry.key)))
        .and_then(|table| limit(entry.key, table, store.on_error, maps));
    let (limit, places) = limit.unzip();
    LimitDraft { name: entry.key.into(), span: entry.key_span, places: places.unwrap_or_default(), limit }
}

/// The limit, and the places of its keys.
fn limit(
    name: &str,
    mut table: ConfigTable<'_>,
    inherited: OnError,
    maps: &[MapDraft],
) -> Option<(Limit, LimitPlaces)> {
    let diagnostics = table.diagnostics();
    let rated = algorithm::read(&mut table);
    let key = key(&mut table);
    let ban = table.optional(&LIMIT.ban, |value| ban::read(&value));
    let on_error = table.get(&LIMIT.on_error).unwrap_or(inherited);
    let exempt = table.or(&LIMIT.exempt, Vec::new(), |value| {
        value.each(|item| Some((written_exemption(&item)?, item.span())))
    });
    let mode = table.value(&LIMIT.mode);
    let tier_place = table.given("tier");
    let mapped_tier = table.optional(&LIMIT.tier, |value| maps::tier(&value, maps));
    let reject = table.optional(&LIMIT.reject, |value| content::reject(&value));
    let reveal = table.value(&LIMIT.reveal);
    let trial = table.optional(&LIMIT.trial, |value| trial(&value, name, mode));
    let retry_jitter = table.optional(&LIMIT.retry_jitter, |value| jitter(&value));
    let max_keys = table.get(&LIMIT.max_keys).and_then(NonZeroU64::new);
    let (ban_place, on_error_place) = (table.given("ban"), table.given("on_error"));
    let share_by = table.optional(&LIMIT.share_by, |value| Some((share_key(&value)?, value.span())));
    let before_auth = table.optional(&LIMIT.before_auth, |value| Some((value.boolean()?, value.span())));
    let (lease, sync_place) = lease(&mut table).unzip();
    let usage = usage(&mut table);
    table.finish().then_some(())?;
    let key = key?;
    let (policies, tiers) = policies_of((name, &key, on_error), rated?);
    let (exempt, exempt_places): (Vec<_>, Vec<_>) = exempt.into_iter().unzip();
    let exempt = Exemptions::new(exempt);
    let ban = ban.map(|ban| ban.of(name, &key, on_error, diagnostics));
    let (share_by, share_place) = share_by.unzip();
    let mut limit = Limit {
        name: name.into(),
        identity: policy::limit_identity(name, &policies, &key),
        policies,
        tiers,
        mapped_tier,
        ban,
        key,
        share_by,
        exempt,
        mode,
        trial,
        on_error,
        reject,
        retry_jitter,
        max_keys,
        reveal,
        before_auth: before_auth.is_some_and(|(on, _)| on),
        usage: None,
    };
    limit.usage = usage.of(&limit, diagnostics);
    lease.into_iter().for_each(|lease| limit.set_lease(lease));
    sync_place.inspect(|span| leases::check(&limit, *span, diagnostics));
    if let Some(span) = tier_place.filter(|_| limit.tiers.is_empty()) {
        idle_tier(name, span, diagnostics);
    }
    if let Some(span) = share_place {
        shares::check(&limit, span, diagnostics);
    }
    if let Some(span) = ban_place.filter(|_| limit.protects_backend()) {
        let message = "an overload of the backend is no offence of a client: `ban` counts nothing here";
        diagnostics.fault(span, message, "leave `ban` out, or write a number as `max` and another `key`");
    }
    if let Some(span) = on_error_place.filter(|_| limit.is_adaptive()) {
        let message =
            "`on_error` means nothing with `max = \"auto\"`: each gateway counts these requests itself";
        diagnostics.fault(span, message, "leave `on_error` out, or write a number as `max`");
    }
    before_auth.inspect(|(_, span)| before_auth::check(&limit, *span, diagnostics));
    Some((limit, LimitPlaces { exempt: exempt_places, on_error: on_error_place, sync: sync_place }))
}

/// `tier` stands at `span`, and there are no tiers.
fn idle_tier(name: &str, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    let message = "`tier` has no effect: the limit has no tiers";
    diagnostics.fault(span, message, format!("add `[limits.{name}.tiers.NAME]`, or leave it out"));
}

/// How long units are taken in advance, and the place that says so.
fn lease(table: &mut ConfigTable<'_>) -> Option<(Lease, SourceSpan)> {
    let place = table.given(LIMIT.sync.name).unwrap_or(table.span());
    let (sync, lease) = (table.value(&LIMIT.sync), table.take(&LIMIT.lease));
    let is_known = !table.is_uncertain(LIMIT.sync.name);
    is_known.then(|| leases::lease(sync, lease.as_ref(), place)).flatten()
}

/// `usage` and `keep_windows`.
fn usage(table: &mut ConfigTable<'_>) -> UsageDraft {
    let usage = table.optional(&LIMIT.usage, |value| Some((value.boolean()?, value.span())));
    UsageDraft {
        usage: usage.filter(|(on, _)| *on).map(|(_, span)| span),
        kept: table.given(LIMIT.keep_windows.name),
        keep_windows: table.value(&LIMIT.keep_windows),
        is_uncertain: table.is_uncertain(LIMIT.usage.name),
    }
}

/// The policies of a limit, and its tiers by name.
fn policies_of(
    of: (&str, &Key, OnError),
    RatedLimit { rates, tiers }: RatedLimit,
) -> (Vec<Policy>, Vec<Tier>) {
    let rates = written(rates);
    let longest = policy::longest_period(&rates);
    let tier = |RatedTier { name, rates, weight }: RatedTier| Tier {
        name: name.into(),
        policies: policy::policies(of, written(rates), longest),
        weight,
    };
    let mut tiers: Vec<_> = tiers.into_iter().map(tier).collect();
    tiers.sort_by(|one, other| one.name.cmp(&other.name));
    (policy::policies(of, rates, longest), tiers)
}

/// The key of shares. Each request has one: the client's address stands in for what is missing or ambiguous.
fn share_key(value: &ConfigValue<'_>) -> Option<Key> {
    let parts = parts_of_requests(value)?;
    let repeated = Some(Repeated::Missing);
    Some(Key { repeated, unreadable_is_missing: true, ..Key::new(parts) })
}

/// The rates, each with its text.
fn written(rates: Vec<Rated>) -> Vec<(String, Algorithm)> {
    rates.into_iter().map(|Rated { rate, algorithm }| (rate, algorithm)).collect()
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
    let parts = table.require(&LIMIT.key, |value| parts(&value));
    let given = table.take(&LIMIT.missing);
    let missing = given.as_ref().map_or(Some(Missing::Ip), |value| value.choice(&MISSING))?;
    let repeats = table.take(&LIMIT.repeated);
    let repeated = match &repeats {
        Some(value) => Some(value.choice(&REPEATED)?),
        None => None,
    };
    let unreadable = table.take(&LIMIT.unreadable);
    let unreadable_is_missing = match &unreadable {
        Some(value) => value.choice(&UNREADABLE)?,
        None => false,
    };
    let fold_span = table.given(LIMIT.fold.name);
    let folds_case = table.get(&LIMIT.fold).is_some();
    let parts = parts.filter(|_| !table.is_uncertain("key"))?;
    if let Some(span) = fold_span
        && !parts.iter().any(Part::has_spellings)
    {
        table.diagnostics().warn(
            span,
            "`fold` has no effect: no part of this key has more than one spelling",
            "leave it out; it is about `header:`, `cookie:`, `query:`, `json:`, `form:` and names of consumers",
        );
    }
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
    if parts.len() > MAX_PARTS as usize {
        value.fault("the key has too many parts", format!("name at most {MAX_PARTS}"));
    }
    Some(parts)
}

/// The same of a key by which a backend is chosen.
pub(super) fn parts_before_upstream(value: &ConfigValue<'_>) -> Option<Vec<Part>> {
    let parts = parts_of_requests(value)?;
    if parts.contains(&Part::Upstream) {
        value.fault(
            "the upstream is not known yet",
            "write `ip`, `header:NAME` or another part of the request",
        );
        return None;
    }
    Some(parts)
}

/// The same of a key that only requests have.
pub(super) fn parts_of_requests(value: &ConfigValue<'_>) -> Option<Vec<Part>> {
    let parts = parts(value)?;
    let other = parts.iter().find(|part| part.descriptor().is_some());
    if let Some(part) = other {
        value.fault(format!("no request has `{part}`"), "it is for limits of `[[descriptors]]`");
        return None;
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
        jwt::nested_claim(claim.as_str(), text.span(), text.diagnostics());
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
