//! A strict reader of HTTP/1.1 responses.

use std::fmt;

/// A response as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// Its status.
    pub(crate) status: u16,
    /// The head as it came, with the empty line.
    pub(crate) head: String,
    /// The fields in order; names as sent, values without the blanks around them.
    pub(crate) headers: Vec<(String, String)>,
    /// The body without its framing.
    pub(crate) body: Vec<u8>,
    /// The trailer fields of a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
    /// The 1xx responses before it.
    pub(crate) interim: Vec<Response>,
    /// Whether it says that it is the connection's last.
    pub(crate) closed: bool,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ended before one byte of it.
    Closed,
    /// The connection ended inside it, or was reset.
    Cut(String),
    /// It breaks the rules.
    Malformed(String),
    /// It did not come in time.
    Timeout,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this number of bytes.
    Length(usize),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

impl Response {
    /// The seconds that a ban still lasts, rounded up to the unit in which it is told; `None` if it is no ban's refusal.
    pub(crate) fn banned_for(&self) -> Option<u64> {
        let text = String::from_utf8_lossy(&self.body);
        let (_, rest) = text.split_once("client banned for another ")?;
        let (number, rest) = rest.split_once(' ')?;
        let units = [("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)];
        let (_, seconds) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        Some(number.parse::<u64>().ok()? * seconds)
    }

    /// Parses a head, `\r\n\r\n` included.
    pub(crate) fn parse_head(head: &[u8]) -> Result<Self, Fault> {
        let text = String::from_utf8_lossy(head).into_owned();
        let bad = |what: &str| Fault::Malformed(format!("{what} in response head {text:?}"));
        let lines = text.strip_suffix("\r\n\r\n").ok_or_else(|| bad("no empty line"))?;
        let mut lines = lines.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let rest = status_line.strip_prefix("HTTP/1.").ok_or_else(|| bad("not HTTP/1"))?;
        let mut words = rest.splitn(3, ' ');
        let minor = words.next().filter(|minor| ["0", "1"].contains(minor)).ok_or_else(|| bad("version"))?;
        let status = words.next().filter(|digits| digits.len() == 3).ok_or_else(|| bad("no status"))?;
        let status = status.parse().map_err(|_| bad("odd status"))?;
        words.next().ok_or_else(|| bad("no blank after the status"))?;
        let headers = lines.map(parse_field).collect::<Result<Vec<_>, _>>()?;
        let mut response = Self { status, head: text.clone(), headers, ..Self::default() };
        response.closed = response.says_close(minor);
        Ok(response)
    }

    /// The value of a field; panics if it came more than once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let values = self.header_all(name);
        assert!(values.len() < 2, "`{name}` came {} times:\n{}", values.len(), self.head);
        values.first().copied()
    }

    /// All values of a field.
    pub(crate) fn header_all(&self, name: &str) -> Vec<&str> {
        let matching = self.headers.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        matching.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("the body is text")
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|fault| panic!("{fault} in {self:?}"))
    }

    /// Panics unless the status is this one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(
            self.status,
            status,
            "the response was\n{}{}",
            self.head,
            String::from_utf8_lossy(&self.body)
        );
        self
    }

    /// How the body of an answer to `method` ends (RFC 9112 §6.3).
    pub(crate) fn framing(&self, method: &str) -> Result<Framing, Fault> {
        let bad = |what: &str| Fault::Malformed(format!("{what}: {}", self.head));
        let (lengths, codings) = (self.header_all("content-length"), self.header_all("transfer-encoding"));
        if lengths.len() > 1 || codings.len() > 1 || (!lengths.is_empty() && !codings.is_empty()) {
            return Err(bad("ambiguous framing"));
        }
        let length = match lengths.first() {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            Some(_) => return Err(bad("odd content-length")),
            None => None,
        };
        if method == "HEAD" || self.status < 200 || self.status == 204 || self.status == 304 {
            return Ok(Framing::Length(0));
        }
        match (codings.first(), length) {
            (Some(&"chunked"), _) => Ok(Framing::Chunked),
            (Some(_), _) => Err(bad("unknown transfer-encoding")),
            (None, Some(length)) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::UntilClose),
        }
    }

    fn says_close(&self, minor: &str) -> bool {
        let options = self.header_all("connection").join(",").to_ascii_lowercase();
        let names = |option: &str| options.split(',').any(|given| given.trim() == option);
        names("close") || (minor == "0" && !names("keep-alive"))
    }
}

/// `name: value`.
pub(crate) fn parse_field(line: &str) -> Result<(String, String), Fault> {
    let bad = || Fault::Malformed(format!("odd field line {line:?}"));
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) || value.contains(['\r', '\n', '\0']) {
        return Err(bad());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection was closed before a response"),
            Self::Cut(how) => write!(f, "the response was cut: {how}"),
            Self::Malformed(what) => f.write_str(what),
            Self::Timeout => f.write_str("no response in time"),
        }
    }
}
