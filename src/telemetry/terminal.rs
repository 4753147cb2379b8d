//! Output to a terminal: whether it gets colours (by the command line, then the environment, then whether the output is
//! a terminal), and how it shows text of clients.

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
pub fn choose_colour(choice: ColourChoice) {
    let _ = CHOICE.set(choice);
}

/// The choice of the command line, or else of the environment: `CLICOLOR_FORCE` (<https://bixense.com/clicolors>), then
/// `NO_COLOR` (<https://no-color.org>).
pub fn resolve_colour(choice: ColourChoice) -> ColourChoice {
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
    match resolve_colour(CHOICE.get().copied().unwrap_or(ColourChoice::Auto)) {
        ColourChoice::Auto => stream.is_terminal(),
        choice => choice == ColourChoice::Always,
    }
}

/// The text without characters that control a terminal or reorder its line, cut after `max` characters.
pub fn safe_text(text: &str, max: usize) -> String {
    let mut safe = String::with_capacity(text.len().min(max));
    let mut chars = text.chars();
    for char in chars.by_ref().take(max) {
        if char == ' ' || !is_invisible(char) {
            safe.push(char);
        } else {
            safe.extend(char.escape_unicode());
        }
    }
    if chars.next().is_some() {
        safe.push('…');
    }
    safe
}

/// Controls, separators, and what Unicode uses to hide text or to turn its direction.
fn is_invisible(char: char) -> bool {
    char.is_control()
        || char.is_whitespace()
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(char, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
