//! Text of clients, as a terminal may show it.

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
