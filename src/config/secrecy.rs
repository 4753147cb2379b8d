//! What of a file may be shown to whoever reads a report: all but its secrets, which a report may end up in a log.
//!
//! It looks at the text, not at its meaning, because a file that is no TOML is shown, too. Masked are the user and password of any URL,
//! and what stands on the line behind a key whose name sounds of a secret: `password`, `authorization`, `x-api-key` …

/// The text with `*` in place of secrets, byte for byte, so that every place stays where it is.
pub(super) fn shown(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (start, line) in lines(text) {
        mask_value(line, bytes.get_mut(start..start + line.len()).unwrap_or_default());
        mask_users(line, bytes.get_mut(start..start + line.len()).unwrap_or_default());
    }
    // Only whole characters were replaced; were it otherwise, nothing is better than a secret.
    String::from_utf8(bytes).unwrap_or_default()
}

/// A message without the users and passwords of URLs.
pub(super) fn without_users(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    mask_users(text, &mut bytes);
    String::from_utf8(bytes).unwrap_or_default()
}

/// The lines, each with its place.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let place = start;
        start += line.len();
        (place, line.trim_end_matches(['\n', '\r']))
    })
}

/// `secret = "…"`.
fn mask_value(line: &str, bytes: &mut [u8]) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '"' | '\'');
    for (at, _) in line.match_indices('=') {
        let (before, value) = (line[..at].trim_end(), &line[at + 1..]);
        if is_secret(&before[before.trim_end_matches(is_part).len()..]) {
            let start = line.len() - value.trim_start().len();
            return bytes.get_mut(start..).unwrap_or_default().fill(b'*');
        }
    }
}

/// Whether what is called so is a secret. Names of environment variables are none.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 8] =
        ["secret", "password", "authorization", "cookie", "token", "api-key", "api_key", "apikey"];
    let name = name.to_ascii_lowercase();
    !name.ends_with("_env") && WORDS.iter().any(|word| name.contains(word))
}

/// `redis://user:password@host`: up to the last `@` before the quote that ends the URL.
fn mask_users(line: &str, bytes: &mut [u8]) {
    // Some forget the colon.
    for (at, mark) in line.match_indices("//") {
        let start = at + mark.len();
        let (before, rest) = (&line[..at], &line[start..]);
        let is_scheme = |c: char| c.is_ascii_alphabetic() || matches!(c, '+' | ':');
        let opening = before.trim_end_matches(is_scheme).chars().next_back();
        let ends = |c: char| match opening {
            Some(quote @ ('"' | '\'' | '`')) => c == quote,
            _ => matches!(c, '"' | '\'' | '`'),
        };
        let url = rest.find(ends).map_or(rest, |end| &rest[..end]);
        if let Some(end) = url.rfind('@') {
            bytes.get_mut(start..start + end).unwrap_or_default().fill(b'*');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_passwords_and_secrets_are_masked_in_place() {
        for (text, expected) in [
            ("url = \"redis://u:p@h:1\" # @", "url = \"redis://***@h:1\" # @"),
            (
                "url = [\"redis://:p@ss@a\", 'x://b', \"redis://:p@c\"]",
                "url = [\"redis://*****@a\", 'x://b', \"redis://**@c\"]",
            ),
            ("a = 1\r\n  My_Secret =  \"ü\"\r\nb = 2\n", "a = 1\r\n  My_Secret =  ****\r\nb = 2\n"),
            ("url = \"redis://:pa 'ss@h\" # '", "url = \"redis://*******@h\" # '"),
            ("url = redis://:pass@h", "url = redis://*****@h"),
            ("password= 'x", "password= **"),
            (
                "headers = { x-a = \"b\", authorization = \"Bearer k\" }",
                "headers = { x-a = \"b\", authorization = ************",
            ),
            ("headers = { \"x-API-key\" = 'k' }", "headers = { \"x-API-key\" = *****"),
            ("token_env = \"TOKEN\"", "token_env = \"TOKEN\""),
            ("url = \"http://a/?x=1&token=2\"", "url = \"http://a/?x=1&token=**"),
            ("key = \"ip\" # see http://docs", "key = \"ip\" # see http://docs"),
        ] {
            assert_eq!(shown(text), expected);
            assert_eq!(shown(text).len(), text.len());
        }
    }
}
