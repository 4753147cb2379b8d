//! Whether output gets colours: by the command line, then the environment, then whether the output is a terminal.

use std::io;
use std::sync::OnceLock;

use crate::labels::labels;

labels! {
    /// `--color`.
    pub enum ColourChoice {
        /// The environment decides, then the terminal.
        Auto = "auto",
        /// Everywhere.
        Always = "always",
        /// Nowhere.
        Never = "never",
    }
}

/// The choice of the command line, set once before any output.
static CHOICE: OnceLock<ColourChoice> = OnceLock::new();

/// Sets the choice of the command line. Only the first call has an effect.
pub fn choose(choice: ColourChoice) {
    let _ = CHOICE.set(choice);
}

/// The choice of the command line, or else of the environment: `CLICOLOR_FORCE` (<https://bixense.com/clicolors>), then
/// `NO_COLOR` (<https://no-color.org>).
pub fn resolve(choice: ColourChoice) -> ColourChoice {
    let is_set = |name: &str, empty: &[&str]| {
        std::env::var_os(name).is_some_and(|value| !empty.iter().any(|empty| value == *empty))
    };
    match choice {
        ColourChoice::Auto if is_set("CLICOLOR_FORCE", &["", "0"]) => ColourChoice::Always,
        ColourChoice::Auto if is_set("NO_COLOR", &[""]) => ColourChoice::Never,
        choice => choice,
    }
}

/// Whether `stream` gets colours.
pub fn colour_on(stream: &impl io::IsTerminal) -> bool {
    match resolve(CHOICE.get().copied().unwrap_or(ColourChoice::Auto)) {
        ColourChoice::Auto => stream.is_terminal(),
        choice => choice == ColourChoice::Always,
    }
}
