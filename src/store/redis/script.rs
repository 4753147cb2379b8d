//! The script that decides in the server.

use std::fmt::Write as _;

use crate::limit::lua;

/// The parts of the script that know of Redis, as [`lua::MODULES`].
const MODULES: [(&str, &str); 6] = [
    ("clock", include_str!("clock.lua")),
    ("expiry", include_str!("expiry.lua")),
    ("whole", include_str!("whole.lua")),
    ("log", include_str!("log.lua")),
    ("account", include_str!("account.lua")),
    ("ballot", include_str!("ballot.lua")),
];

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
    /// Puts the modules together.
    pub fn new() -> Self {
        let mut text = [lua::SHARED, include_str!("modules.lua"), "modules = {\n"].concat();
        for (name, body) in lua::MODULES.iter().chain(&MODULES) {
            // Infallible: a `String` takes anything.
            let _ = write!(text, "{name} = function()\n{body}end,\n");
        }
        text.push_str("}\n");
        text.push_str(include_str!("main.lua"));
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
