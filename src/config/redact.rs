//! Redaction: the text of a file without its secrets, since a report may end up in a log.
//!
//! It works on the text, not on its meaning, because a file that is not TOML is shown, too. Masked are: the user and
//! password of any URL, with or without a scheme; the text on the line after a key with a name like a secret's
//! (`password`, `authorization`, `x-api-key` …), and the lines of a list that begins there; the value of a header that
//! exempts; and a secret in place of its variable's name.

/// The text with `*` in place of secrets, byte for byte, so that every position is unchanged.
pub(super) fn shown(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut has_tokens, mut open_brackets) = (false, 0);
    for (start, line) in lines(text) {
        if open_brackets > 0 {
            open_brackets = brackets(line, open_brackets);
            bytes.get_mut(start..start + line.len()).unwrap_or_default().fill(b'*');
            continue;
        }
        open_brackets = secret_value(line).map_or(0, |at| brackets(&line[at..], 0));
        if line.trim_start().starts_with('[') {
            has_tokens = line.split(char::is_whitespace).collect::<String>().starts_with("[admin.tokens]");
        } else if has_tokens {
            mask_token(line, bytes.get_mut(start..start + line.len()).unwrap_or_default());
        }
        for mask in [mask_value, mask_users, mask_strings] {
            mask(line, bytes.get_mut(start..start + line.len()).unwrap_or_default());
        }
    }
    // Only whole characters were replaced; otherwise an empty text is better than a secret.
    String::from_utf8(bytes).unwrap_or_default()
}

/// A message without the users and passwords of URLs.
pub(super) fn without_users(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    mask_users(text, &mut bytes);
    let mut rest = 0;
    while let Some((start, end)) = next_string(text, rest, &['`']) {
        let user = user_of_bare_address(&text[start..end]).unwrap_or_default();
        bytes.get_mut(start..start + user).unwrap_or_default().fill(b'*');
        rest = end + 1;
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// The lines, each with its position.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let line_start = start;
        start += line.len();
        (line_start, line.trim_end_matches(['\n', '\r']))
    })
}

/// `secret = "…"`.
fn mask_value(line: &str, bytes: &mut [u8]) {
    if let Some(start) = secret_value(line) {
        bytes.get_mut(start..).unwrap_or_default().fill(b'*');
    }
}

/// The position of the first value with a secret's key.
fn secret_value(line: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '"' | '\'');
    let mut values = line.match_indices('=').map(|(at, _)| (line[..at].trim_end(), &line[at + 1..]));
    let is_of_secret =
        |(before, _): &(&str, &str)| is_secret(&before[before.trim_end_matches(is_part).len()..]);
    values.find(is_of_secret).map(|(_, value)| line.len() - value.trim_start().len())
}

/// The number of lists that are open after a text, where so many are before it. Brackets in strings do not count.
fn brackets(text: &str, open: usize) -> usize {
    let (mut open, mut quote, mut is_escaped) = (open, None, false);
    for c in text.chars() {
        match (quote, c) {
            (Some('"'), '\\') => is_escaped = !is_escaped,
            (Some(mark), c) => {
                if c == mark && !is_escaped {
                    quote = None;
                }
                is_escaped = false;
            }
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => break,
            (None, '[') => open += 1,
            (None, ']') => open = open.saturating_sub(1),
            (None, _) => {}
        }
    }
    open
}

/// `billing = "…"` below `[admin.tokens]`: the secret in place of its table.
fn mask_token(line: &str, bytes: &mut [u8]) {
    let value = line.split_once('=').map(|(_, value)| value.trim_start()).unwrap_or_default();
    if value.starts_with(['"', '\'']) {
        bytes.get_mut(line.len() - value.len()..).unwrap_or_default().fill(b'*');
    }
}

/// Within strings: the value of `header:NAME=VALUE`, the part before the `@` of an address without a scheme, and the
/// text after `…_env` that is not a name of a variable.
fn mask_strings(line: &str, bytes: &mut [u8]) {
    let mut rest = 0;
    while let Some((start, end)) = next_string(line, rest, &['"', '\'']) {
        let text = &line[start..end];
        let before = line[..start.saturating_sub(1)].trim_end();
        let names_variable = before.strip_suffix('=').is_some_and(|key| key.trim_end().ends_with("_env"));
        let secret = match value_of_header(text) {
            Some(value) => start + value..end,
            None if names_variable && !is_variable_name(text) => start..end,
            None => start..start + user_of_bare_address(text).unwrap_or_default(),
        };
        bytes.get_mut(secret).unwrap_or_default().fill(b'*');
        rest = end + 1;
    }
}

/// The position of the value in `header:NAME=VALUE`, `header` misspelled or not.
fn value_of_header(text: &str) -> Option<usize> {
    let (word, pair) = text.split_once(':')?;
    let (name, value) = pair.split_once('=')?;
    let is_pair = word.bytes().all(|byte| byte.is_ascii_alphabetic()) && !name.contains('/');
    is_pair.then_some(text.len() - value.len())
}

/// The length of the part before the `@` of an address without a scheme, if it has one.
fn user_of_bare_address(text: &str) -> Option<usize> {
    text.rfind('@').filter(|_| !text.starts_with('/') && !text.contains("//"))
}

/// The range of the next string between such quotes, without them.
fn next_string(line: &str, from: usize, quotes: &[char]) -> Option<(usize, usize)> {
    let opening = from + line.get(from..)?.find(quotes)?;
    let quote = line[opening..].chars().next()?;
    let length = line[opening + 1..].find(quote).unwrap_or(line.len() - opening - 1);
    Some((opening + 1, opening + 1 + length))
}

/// Whether this is a usual name of an environment variable. Other names are not repeated: a secret may have been
/// written in place of its variable's name.
pub(crate) fn is_variable_name(text: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    text.len() <= 64
        && text.bytes().next().is_some_and(is_start)
        && text.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit())
}

/// Whether a key of this name holds a secret. Names of environment variables are none.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["secret", "password", "authorization", "cookie", "token", "api-key", "api_key", "apikey", "hmac"];
    let name = name.to_ascii_lowercase();
    // `cookies` of a route is a table: the names of its keys decide.
    let is_table = name.trim_matches(['"', '\'']) == "cookies";
    !is_table && !name.ends_with("_env") && WORDS.iter().any(|word| name.contains(word))
}

/// `redis://user:password@host`: up to the last `@` before the quote that ends the URL.
fn mask_users(line: &str, bytes: &mut [u8]) {
    // Some users forget the colon.
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
            ("token_env = \"s3cr3t\" # x", "token_env = \"******\" # x"),
            ("admin = { token_env='A B', x = 'C' }", "admin = { token_env='***', x = 'C' }"),
            ("url = \"user:pass@h:6379\"", "url = \"*********@h:6379\""),
            ("servers = ['p@a', \"b\"]", "servers = ['*@a', \"b\"]"),
            ("path = \"/@a\"", "path = \"/@a\""),
            (
                "exempt = [\"ip:::1\", \"header:x-in=s3=cr\", 'header:b=c']",
                "exempt = [\"ip:::1\", \"header:x-in=*****\", 'header:b=*']",
            ),
            (
                "x-api-key = [\n  \"k1\", # ]\n  ']',\n  \"k\\\"]2\"\n]\nb = \"c\"",
                "x-api-key = *\n***********\n******\n*********\n*\nb = \"c\"",
            ),
            (
                "headers = { token = [\"a\", \"b\"] }\nb = \"c\"",
                "headers = { token = ************\nb = \"c\"",
            ),
            (
                "cookies = { session = \"a\", sso-token = \"b\" }",
                "cookies = { session = \"a\", sso-token = *****",
            ),
            ("exempt = [\"header:x-in=s3cr", "exempt = [\"header:x-in=****"),
            ("url = \"http://a/?x=1&token=2\"", "url = \"http://a/?x=1&token=**"),
            ("key = \"ip\" # see http://docs", "key = \"ip\" # see http://docs"),
        ] {
            assert_eq!(shown(text), expected);
            assert_eq!(shown(text).len(), text.len());
        }
    }
}
