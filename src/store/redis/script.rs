//! The script that decides in the server.

use std::fmt::Write as _;

use crate::limit::lua;

/// The modules that know of Redis, as [`lua::modules`].
const MODULES: [(&str, &str); 4] = [
    ("log", include_str!("log.lua")),
    ("transaction", include_str!("transaction.lua")),
    ("several", include_str!("several.lua")),
    ("bans", include_str!("bans.lua")),
];

/// What stands before the modules.
const HEAD: [&str; 4] =
    [lua::SHARED, include_str!("clock.lua"), include_str!("call.lua"), include_str!("state.lua")];

/// What stands after them.
const TAIL: [&str; 2] = [include_str!("use.lua"), include_str!("main.lua")];

/// The script's text and the name that the server calls it by. To be made once.
///
/// It needs Redis 6.2 or newer, or Valkey. It calls the server's clock itself, so its answers can't be replayed; its effects are
/// replicated, not the call.
#[derive(Clone, Debug)]
pub struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// Puts the parts together. Each module is a branch of one function: a function that is passed by need not be made, and a
    /// call needs few of them.
    pub fn new() -> Self {
        let mut text = HEAD.concat();
        text.push_str("local function run(name)\n");
        for (name, body) in lua::modules().chain(MODULES) {
            // Infallible: a `String` takes anything.
            let _ = write!(text, "if name == '{name}' then\n{body}end\n");
        }
        text.push_str("end\n");
        text.extend(TAIL);
        let sha1 = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha1 }
    }

    /// What `SCRIPT LOAD` or `EVAL` takes.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What `EVALSHA` takes: forty hexadecimal digits.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}
