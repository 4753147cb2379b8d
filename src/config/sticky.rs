//! `sticky` of an upstream.

use std::sync::OnceLock;

use rustix::rand::{GetRandomFlags, getrandom};

use super::keys::{Schema, keys};
use super::value::ConfigValue;
use crate::http1::syntax::is_token;
use crate::plan::StoreSettings;
use crate::plan::sticky::StickyKey;

keys! {
    /// A cookie keeps a client at the server of its first response, as long as that is available. Not with
    /// balance = "hash". Default: none.
    pub(super) STICKY: StickyKeys = "sticky" {
        /// The name of the cookie, 1 to 64 bytes.
        cookie = Schema::Name, required "\"route\"";
        /// The environment variable with the secret of at least 16 bytes that signs the values, so that they
        /// outlive a restart and all gateways of a fleet agree. Default: the secret of the store, else one of the
        /// process.
        secret_env = Schema::Name;
    }
}

/// Bytes of a cookie's name, and the least of a secret.
const MAX_NAME: usize = 64;
const MIN_SECRET: usize = 16;

/// `sticky` as written in the file.
#[derive(Clone, Debug)]
pub(super) struct StickyDraft {
    pub(super) cookie: String,
    /// Its own key; `None`: the fleet's, or one of this process.
    pub(super) key: Option<StickyKey>,
}

/// Reads `{ cookie = "route", secret_env = "NAME" }`.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<StickyDraft> {
    let mut table = value.table("`sticky`")?;
    let cookie = table.require(&STICKY.cookie, |value| {
        let name = value.text()?.into_string();
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_token) {
            let help = format!("write 1 to {MAX_NAME} letters, digits, `-` or `_`: `route`");
            value.fault("this is not the name of a cookie", help);
            return None;
        }
        Some(name)
    });
    let key = table.optional(&STICKY.secret_env, |value| {
        let secret = value.variable()?;
        if secret.len() < MIN_SECRET {
            let help = format!("use at least {MIN_SECRET} bytes: `openssl rand -hex 32` makes a good one");
            value.fault("the secret is too short", help);
            return None;
        }
        Some(StickyKey::new(secret.as_bytes()))
    });
    if process_key().is_none() {
        table.diagnostics().fault(table.span(), "the system has no random numbers", "look at `/dev/urandom`");
    }
    table.finish();
    Some(StickyDraft { cookie: cookie?, key })
}

/// The key where `sticky` has no secret: that of the fleet, so that all its gateways agree, or one of this process.
pub(super) fn shared_key(store: &StoreSettings) -> Option<StickyKey> {
    let fleet = store.shared.as_ref().filter(|shared| shared.has_secret);
    fleet.map(|shared| StickyKey::new(&shared.secret.0)).or_else(process_key)
}

/// Drawn once, so that cookies outlive a reload. `None`: the system has no random numbers.
fn process_key() -> Option<StickyKey> {
    static KEY: OnceLock<Option<StickyKey>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut secret = [0; 32];
        let drawn = getrandom(&mut secret, GetRandomFlags::empty()).ok()?;
        (drawn == secret.len()).then(|| StickyKey::new(&secret))
    })
}
