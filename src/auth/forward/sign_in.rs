//! `sign_in`: where browsers log in, `https://login.example.com/start?rd={url}`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but unreserved characters (RFC 3986 §2.3): none of these ends a parameter.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a log-in page, with places for the URL that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn(Box<[Box<str>]>);

impl SignIn {
    /// The place of the URL that was asked for, in the text of the file.
    pub const URL: &'static str = "{url}";

    /// The text between these places, in order.
    pub fn new(text: &str) -> Self {
        Self(text.split(Self::URL).map(Into::into).collect())
    }

    /// The address for a request for `url`.
    pub fn location(&self, url: &str) -> String {
        self.0.join(&utf8_percent_encode(url, ESCAPED).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_stays_one_parameter() {
        let location = |text: &str| SignIn::new(text).location("http://a.test/b?c=d&e#f%20~\r\n");
        assert_eq!(
            location("/start?rd={url}&x=1"),
            "/start?rd=http%3A%2F%2Fa.test%2Fb%3Fc%3Dd%26e%23f%2520~%0D%0A&x=1"
        );
        assert_eq!(location("/start"), "/start");
        assert_eq!(SignIn::new("{url}{url}").location("a"), "aa");
    }
}
