//! `[acme]`, and `acme` of `[[server.tls]]`.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::keys::{Schema, choice, flag, keys};
use super::report::{SourceSpan, quoted};
use super::service_url;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::tls::{self, TRUST};
use super::value::ConfigValue;
use crate::acme::http::is_loopback;
use crate::acme::settings::{AcmeSecret, AcmeSettings, ChallengeKind, ExternalAccount};

keys! {
    /// Certificates from an authority that speaks ACME (RFC 8555), for the names in `acme` of [[server.tls]]. Default:
    /// none.
    pub(super) ACME: AcmeKeys = "[acme]" {
        /// Where the authority reaches a person. Default: it is told none.
        email = Schema::Name;
        /// The URL of the authority's directory. Default: that of Let's Encrypt.
        directory = Schema::Matching(r"^https?://|\$\{");
        /// The directory for the account's key, the certificates with their keys, and failed orders; made with mode
        /// 0700. A relative path begins where this file lies.
        state = Schema::Text, required "\"/var/lib/tollgate/acme\"";
        /// How the authority is shown that a name is ours: by a TLS handshake at port 443, or by HTTP at port 80.
        challenge: ChallengeKind = choice(&ChallengeKind::WORDS) => ChallengeKind::TlsAlpn01;
        /// true: the authority's terms of service are agreed to.
        agree_tos: bool = flag(), required "true";
        /// The account with the authority that the gateway's is bound to. Default: none.
        eab = Schema::Table(&EAB);
        /// Encrypts private keys in the shared store, so that a fleet has one certificate: at least 32 bytes, the same
        /// in the whole fleet. Default: no key is in the store, and each gateway has a certificate of its own.
        secret = Schema::Name;
        /// How TLS is spoken with the authority. Default: the system's authorities.
        tls = Schema::Table(&TRUST);
    }
}

keys! {
    /// External account binding (RFC 8555 §7.3.4): the authority gives both values.
    pub(super) EAB: EabKeys = "eab" {
        /// The name of the key.
        key_id = Schema::Name, required "\"${EAB_KEY_ID}\"";
        /// The key, in base64url.
        hmac_key = Schema::Name, required "\"${EAB_HMAC_KEY}\"";
    }
}

/// The directory of Let's Encrypt.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The form of a directory's URL.
const DIRECTORY_HELP: &str = "write the URL that the authority gives, such as \
                              `https://acme-staging-v02.api.letsencrypt.org/directory`";
/// A shorter `secret` could be guessed.
const MIN_SECRET: usize = 32;
/// Names in the file.
const MAX_NAMES: usize = 100;
/// Bytes of a name, and of a label in it (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
/// Bytes of an address of mail.
const MAX_EMAIL: usize = 254;

/// The name of the section in messages.
pub(super) const TITLE: &str = "`[acme]`";

/// `[acme]` of the file.
pub(super) struct AcmeDraft {
    /// `None`: it has faults, or unknown values.
    pub(super) settings: Option<Arc<AcmeSettings>>,
    pub(super) span: SourceSpan,
}

/// Reads `[acme]`.
pub(super) fn read(value: &ConfigValue<'_>) -> AcmeDraft {
    let settings = value.table(TITLE).and_then(|table| settings(table, value));
    AcmeDraft { settings: settings.map(Arc::new), span: value.span() }
}

fn settings(mut table: ConfigTable<'_>, place: &ConfigValue<'_>) -> Option<AcmeSettings> {
    let diagnostics = table.diagnostics();
    let before = (diagnostics.errors(), diagnostics.unknown());
    let email = table.optional(&ACME.email, |value| value.text()?.parse("an address of mail", email));
    let state = table.require(&ACME.state, |value| state(&value));
    let challenge = table.value(&ACME.challenge);
    table.require(&ACME.agree_tos, |value| {
        if !value.boolean()? {
            let help = "read the terms of service of the authority, then write `agree_tos = true`";
            value.fault("an authority issues certificates only to those who agree to its terms", help);
        }
        Some(())
    });
    let external_account = table.optional(&ACME.eab, |value| value.table("`eab`").and_then(external_account));
    let secret = table.optional(&ACME.secret, |value| secret(&value));
    let directory =
        table.or(&ACME.directory, DIRECTORY.to_owned(), |value| value.text()?.parse("a URL", directory));
    let is_plain = directory.starts_with("http://");
    let trust = table.take(&ACME.tls);
    if let Some(trust) = trust.as_ref().filter(|_| is_plain) {
        trust.fault("`tls` has no effect: the directory begins with `http://`", "leave it out");
    }
    let tls = match is_plain {
        true => None,
        false => tls::client(trust.as_ref(), place, &[b"http/1.1"]),
    };
    let is_sound = table.finish() && (diagnostics.errors(), diagnostics.unknown()) == before;
    (is_sound && (is_plain || tls.is_some())).then_some(())?;
    Some(AcmeSettings { email, directory, is_plain, tls, state: state?, challenge, external_account, secret })
}

fn email(text: &str) -> Result<String, SyntaxError> {
    let is_plain = |c: char| c.is_ascii_graphic() && !r#",;:<>"?%\"#.contains(c);
    let is_sound = text.len() <= MAX_EMAIL
        && text.chars().all(is_plain)
        && text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    is_sound.then(|| text.to_owned()).ok_or_else(|| {
        let help = "write one address, without `mailto:`: `admin@example.com`";
        SyntaxError::new(format!("{} is not an address of mail", quoted(text)), help)
    })
}

fn directory(text: &str) -> Result<String, SyntaxError> {
    let url = service_url::parse(text, "directory", DIRECTORY_HELP)?;
    if !url.secure && !is_loopback(&url.server.host) {
        let message = format!("{} is not asked over TLS, so anyone on the way could answer", quoted(text));
        return Err(SyntaxError::new(
            message,
            "write `https://`; `http://` is for authorities on this machine",
        ));
    }
    Ok(text.to_owned())
}

/// The state directory, which is made when the gateway starts.
fn state(value: &ConfigValue<'_>) -> Option<PathBuf> {
    let written = value.text()?;
    if written.as_str().is_empty() {
        value.fault("`state` names no directory", "name one, such as `/var/lib/tollgate/acme`");
        return None;
    }
    Some(value.diagnostics().path(written.as_str(), value.span()))
}

fn external_account(mut table: ConfigTable<'_>) -> Option<ExternalAccount> {
    let key_id = table.require(&EAB.key_id, |value| {
        let text = value.text()?.into_string();
        let is_sound =
            !text.is_empty() && text.len() <= MAX_EMAIL && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_sound {
            value.fault("this is not the name of a key", "copy what the authority shows as the key id");
        }
        is_sound.then_some(text)
    });
    let hmac_key = table.require(&EAB.hmac_key, |value| {
        let text = value.text()?;
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(text.as_str().trim_end_matches('='));
        let decoded = decoded.ok().filter(|key| !key.is_empty());
        if decoded.is_none() {
            // The text is not repeated.
            let help = "copy what the authority shows: letters, digits, `-` and `_`";
            value.fault("this is not a key in base64url", help);
        }
        decoded
    });
    table.finish().then_some(())?;
    Some(ExternalAccount { key_id: key_id?, hmac_key: hmac_key? })
}

fn secret(value: &ConfigValue<'_>) -> Option<AcmeSecret> {
    let text = value.text()?;
    if text.as_str().len() < MIN_SECRET {
        value.fault(
            format!("`secret` has fewer than {MIN_SECRET} bytes, so it could be guessed"),
            "take a random one, the same for all gateways of the fleet: `openssl rand -base64 32`",
        );
        return None;
    }
    Some(AcmeSecret::new(text.as_str().as_bytes()))
}

/// Reads the names of one certificate, in alphabetical order. `seen` has those of the certificates before it.
pub(super) fn names(value: &ConfigValue<'_>, seen: &mut Vec<String>) -> Option<Vec<String>> {
    let mut sound = true;
    let names = value.some_of(|item| {
        let name = item.text().and_then(|text| text.parse("the name of a server", name));
        sound &= name.is_some();
        let name = name?;
        if seen.contains(&name) {
            item.fault(format!("{} has a certificate already", quoted(&name)), "name it once");
        }
        seen.push(name.clone());
        if seen.len() == MAX_NAMES + 1 {
            let help = "one certificate for many names, or fewer gateways in one, keeps within an authority's limits";
            item.fault(format!("`acme` has more than {MAX_NAMES} names in this file"), help);
        }
        Some(name)
    });
    let mut names = names.filter(|_| sound)?;
    names.sort();
    Some(names)
}

fn name(text: &str) -> Result<String, SyntaxError> {
    let refuse = |message: &str, help: &str| {
        Err(SyntaxError::new(format!("{} {message}", quoted(text)), help.to_owned()))
    };
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.contains('*') {
        return refuse(
            "is a wildcard, which neither challenge can prove",
            "list the names, or use a certificate from a file: `cert` and `key`",
        );
    }
    if text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() {
        return refuse("is an address, not a name", "write the name that clients ask for");
    }
    if !text.is_ascii() {
        return refuse("has letters beyond ASCII", "write it as DNS has it, with `xn--`");
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let lower = text.to_ascii_lowercase();
        return refuse("has upper-case letters", &format!("write {}", quoted(&lower)));
    }
    match text.len() <= MAX_NAME && text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => refuse(
            "is not the name of a server",
            "write a name as in DNS, without a final dot: `example.com`",
        ),
    }
}
