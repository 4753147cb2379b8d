//! The script that decides in the server.

use std::fmt::Write as _;

use crate::limit::lua;

/// The modules that use Redis, in the form of [`lua::modules`].
const MODULES: [(&str, &str); 11] = [
    ("log", include_str!("log.lua")),
    ("places", include_str!("places.lua")),
    ("refusals", include_str!("refusals.lua")),
    ("transaction", include_str!("transaction.lua")),
    ("several", include_str!("several.lua")),
    ("bans", include_str!("bans.lua")),
    ("overrides", include_str!("overrides.lua")),
    ("fleet", include_str!("fleet.lua")),
    ("leases", include_str!("leases.lua")),
    ("usage", include_str!("usage.lua")),
    ("acme", include_str!("acme.lua")),
];

/// The part before the modules.
const HEAD: [&str; 4] =
    [lua::SHARED, include_str!("clock.lua"), include_str!("call.lua"), include_str!("state.lua")];

/// The part after the modules.
const TAIL: &str = include_str!("main.lua");

/// The script's text and its SHA-1, by which the server knows it. To be made once.
///
/// It needs Redis 6.2 or newer, or Valkey. It reads the server's clock itself, so a replay would decide otherwise; its
/// effects are replicated, not the call.
#[derive(Clone, Debug)]
pub struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// Joins the parts. Each module is a branch of one function: a branch that is not taken is not created, and a call
    /// needs few of them.
    pub fn new() -> Self {
        let mut text = HEAD.concat();
        text.push_str("local function run(name)\n");
        for (name, body) in lua::modules().chain(MODULES) {
            // Infallible: a `String` takes anything.
            let _ = write!(text, "if name == '{name}' then\n{body}end\n");
        }
        text.push_str("end\n");
        text.push_str(TAIL);
        let sha1 = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha1 }
    }

    /// The argument of `SCRIPT LOAD` or `EVAL`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The argument of `EVALSHA`: forty hexadecimal digits.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}
