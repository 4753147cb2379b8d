//! Texts of the file with values of the request: `{request_id}`, `{client}`, `{path}` and others.
//!
//! `{word}` of lower-case letters and `_` is replaced; `{{word}}` stands for `{word}`; any other brace stays, so that
//! JSON can be written as it is. `{json:/POINTER}` stands for a value of the request's body, which JSON repeats with its
//! quotes.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderValue;

use crate::labels::labels;
use crate::measure::JsonPointer;
use crate::route::locations::Country;

labels! {
    /// A value of the request.
    pub enum TemplateWord {
        /// `x-request-id`.
        RequestId = "request_id",
        /// The client's address.
        Client = "client",
        /// The country of the client's address: `DE`.
        Country = "country",
        /// The host that the request names, without port.
        Host = "host",
        /// The path, normalised, without the query.
        Path = "path",
        /// The name of the route.
        Route = "route",
        /// The name of the limit that refuses the request, or that describes it in the rate-limit headers.
        Limit = "limit",
        /// Seconds until the request would be admitted.
        RetryAfter = "retry_after",
        /// The name of the consumer.
        Consumer = "consumer",
        /// The tier of the consumer.
        Tier = "tier",
    }
}

/// The values of a request. A value that is not known, or that the request does not have, is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateValues<'a> {
    /// `x-request-id`.
    pub request_id: &'a [u8],
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The country of the client's address.
    pub country: Option<Country>,
    /// The host that the request names.
    pub host: &'a str,
    /// Its normalised path.
    pub path: &'a str,
    /// The name of its route.
    pub route: &'a str,
    /// The name of a limit.
    pub limit: &'a str,
    /// Seconds to wait.
    pub retry_after: Option<u64>,
    /// The consumer's name.
    pub consumer: &'a str,
    /// The consumer's tier.
    pub tier: &'a str,
    /// Values of the body. One that is not among them is `null`.
    pub members: &'a [MemberValue],
}

/// A value of a JSON body: a string, a number or a boolean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// Where it is.
    pub pointer: JsonPointer,
    /// Its text.
    pub text: Box<[u8]>,
    /// Whether it is a string.
    pub is_text: bool,
}

/// A longer value of a body is not repeated.
pub const MAX_MEMBER: usize = 1 << 10;

/// A body of at most this many bytes is copied after the head of its response.
const MAX_COPIED: usize = 16 << 10;

/// A text with at least one word.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Word(TemplateWord),
    Member(JsonPointer),
}

/// A word that is none of [`TemplateWord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord(pub String);

/// How values are written, so that none of them is read as a part of the text around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escaping {
    /// Unchanged: plain text.
    Plain,
    /// For a string of JSON.
    Json,
    /// For HTML and XML.
    Html,
    /// For the value of a header: a byte that cannot stand there is left out.
    Header,
}

/// A body: the same for all requests, or with values of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyTemplate {
    /// The same for all.
    Fixed(Bytes),
    /// With values, escaped so.
    Values(Template, Escaping),
}

/// The value of a header that the file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTemplate {
    /// The same for all.
    Fixed(HeaderValue),
    /// With values.
    Values(Template),
}

impl Template {
    /// Parses a text. Without a word, it is returned as it is meant: with `{word}` for `{{word}}`.
    ///
    /// # Errors
    ///
    /// [`UnknownWord`]
    pub fn parse(text: &str) -> Result<Result<Self, String>, UnknownWord> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('{') {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(word) = rest.strip_prefix('{').and_then(|inner| braced(inner, "}}")) {
                literal.extend(["{", word, "}"]);
                rest = &rest[word.len() + 4..];
            } else if let Some(member) = braced(rest, "}").filter(|word| word.starts_with(MEMBER)) {
                let pointer = member.strip_prefix(MEMBER).filter(|pointer| !pointer.is_empty());
                let pointer = pointer.and_then(|pointer| JsonPointer::parse(pointer).ok());
                let pointer = pointer.ok_or_else(|| UnknownWord(member.to_owned()))?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                }
                pieces.push(Piece::Member(pointer));
                rest = &rest[member.len() + 2..];
            } else if let Some(word) = braced(rest, "}") {
                let known = TemplateWord::WORDS.iter().find(|(name, _)| *name == word);
                let (_, known) = known.ok_or_else(|| UnknownWord(word.to_owned()))?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                }
                pieces.push(Piece::Word(*known));
                rest = &rest[word.len() + 2..];
            } else {
                literal.push('{');
                rest = &rest[1..];
            }
        }
        literal.push_str(rest);
        if pieces.is_empty() {
            return Ok(Err(literal));
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        Ok(Ok(Self { text: text.into(), pieces }))
    }

    /// Whether it has this word.
    pub fn has(&self, word: TemplateWord) -> bool {
        self.pieces.contains(&Piece::Word(word))
    }

    /// The values of the request's body that it has.
    pub fn json_pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Member(pointer) => Some(pointer),
            Piece::Text(_) | Piece::Word(_) => None,
        })
    }

    /// The text with the values, which is written to `scrap`.
    fn text<'t>(&self, values: &TemplateValues<'_>, escaping: Escaping, scrap: &'t mut BytesMut) -> &'t [u8] {
        scrap.clear();
        self.write(values, escaping, scrap);
        scrap
    }

    /// Appends the text with the values.
    pub fn write(&self, values: &TemplateValues<'_>, escaping: Escaping, out: &mut BytesMut) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Word(word) => values.with(*word, |value| escaping.write(value, out)),
                Piece::Member(pointer) => escaping.write_member(values.member(pointer), out),
            }
        }
    }
}

/// The begin of a value of the body.
const MEMBER: &str = "json:";

/// The word at the beginning of `text`, which begins with `{` and the word, and goes on with `end`.
fn braced<'t>(text: &'t str, end: &str) -> Option<&'t str> {
    let inner = text.strip_prefix('{')?;
    if inner.starts_with(MEMBER) {
        let length = inner.find(['{', '}', '"', '\n'])?;
        return inner[length..].starts_with(end).then(|| &inner[..length]);
    }
    let length = inner.bytes().take_while(|byte| byte.is_ascii_lowercase() || *byte == b'_').count();
    (length > 0 && inner[length..].starts_with(end)).then(|| &inner[..length])
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({:?})", self.text)
    }
}

impl TemplateValues<'_> {
    fn member(&self, pointer: &JsonPointer) -> Option<&MemberValue> {
        self.members.iter().find(|member| member.pointer == *pointer)
    }

    fn with(&self, word: TemplateWord, mut write: impl FnMut(&[u8])) {
        let mut number = itoa::Buffer::new();
        let text = match word {
            TemplateWord::RequestId => return write(self.request_id),
            TemplateWord::Client => {
                let mut address = [0; 48];
                let mut rest = &mut address[..];
                // 48 bytes hold every address.
                let written = self.client.is_some_and(|client| write!(rest, "{client}").is_ok());
                let length = if written { 48 - rest.len() } else { 0 };
                return write(&address[..length]);
            }
            TemplateWord::Country => self.country.as_ref().map_or("", Country::as_str),
            TemplateWord::Host => self.host,
            TemplateWord::Path => self.path,
            TemplateWord::Route => self.route,
            TemplateWord::Limit => self.limit,
            TemplateWord::RetryAfter => self.retry_after.map_or("", |seconds| number.format(seconds)),
            TemplateWord::Consumer => self.consumer,
            TemplateWord::Tier => self.tier,
        };
        write(text.as_bytes());
    }
}

impl Escaping {
    /// The escaping for a body of this media type.
    pub fn of(content_type: &[u8]) -> Self {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let essence = essence.to_ascii_lowercase();
        let names = |name: &[u8]| memchr::memmem::find(&essence, name).is_some();
        // Also less usual names: `application/x-javascript`, `application/xhtml+xml`.
        if names(b"json") || names(b"script") {
            Self::Json
        } else if names(b"html") || names(b"xml") {
            Self::Html
        } else {
            Self::Plain
        }
    }

    /// Writes a value of the body: as JSON in JSON, and else as a text.
    fn write_member(self, member: Option<&MemberValue>, out: &mut BytesMut) {
        match (self, member) {
            (Self::Json, None) => out.extend_from_slice(b"null"),
            (Self::Json, Some(MemberValue { text, is_text: true, .. })) => {
                out.put_u8(b'"');
                self.write(text, out);
                out.put_u8(b'"');
            }
            (_, None) => {}
            (_, Some(member)) => self.write(&member.text, out),
        }
    }

    fn write(self, value: &[u8], out: &mut BytesMut) {
        match self {
            Self::Plain => out.extend_from_slice(value),
            Self::Json => escape(value, out, |byte, out| match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                // `<` and `&`: the JSON may stand in a script of a page. `'`: it ends a string of JavaScript.
                0..0x20 | b'<' | b'>' | b'&' | b'\'' | 0x7f => {
                    let mut text = [0; 6];
                    let _ = write!(&mut text[..], "\\u{byte:04x}");
                    out.put_slice(&text);
                }
                byte => out.put_u8(byte),
            }),
            Self::Html => escape(value, out, |byte, out| {
                out.extend_from_slice(match byte {
                    b'&' => b"&amp;",
                    b'<' => b"&lt;",
                    b'>' => b"&gt;",
                    b'"' => b"&quot;",
                    b'\'' => b"&#39;",
                    _ => return out.put_u8(byte),
                });
            }),
            Self::Header => escape(value, out, |byte, out| {
                if byte >= b' ' && byte != 0x7f {
                    out.put_u8(byte);
                }
            }),
        }
    }
}

/// A byte that is not text becomes `?`.
fn escape(value: &[u8], out: &mut BytesMut, write: impl Fn(u8, &mut BytesMut)) {
    let is_text = value.is_ascii() || std::str::from_utf8(value).is_ok();
    value.iter().for_each(|byte| write(if is_text || byte.is_ascii() { *byte } else { b'?' }, out));
}

impl BodyTemplate {
    /// The values of the request's body that it has.
    pub fn json_pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        let template = if let Self::Values(template, _) = self { Some(template) } else { None };
        template.into_iter().flat_map(Template::json_pointers)
    }

    /// Whether it has values of the request.
    pub fn has_values(&self) -> bool {
        matches!(self, Self::Values(..))
    }

    /// The body, if it is large and the same for all: it is sent from this memory, so that a client that does not read
    /// holds no copy.
    #[inline]
    pub fn large(&self) -> Option<&Bytes> {
        match self {
            Self::Fixed(bytes) if bytes.len() > MAX_COPIED => Some(bytes),
            Self::Fixed(_) | Self::Values(..) => None,
        }
    }

    /// The body's bytes: those that are fixed, or the text with values, which is written to `scrap`.
    pub fn text<'t>(&'t self, values: &TemplateValues<'_>, scrap: &'t mut BytesMut) -> &'t [u8] {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Values(template, escaping) => template.text(values, *escaping, scrap),
        }
    }
}

impl HeaderTemplate {
    /// Whether it has values of the request.
    pub fn has_values(&self) -> bool {
        matches!(self, Self::Values(_))
    }

    /// The value. One with values of the request is written to `scrap`.
    pub fn value<'t>(&'t self, values: &TemplateValues<'_>, scrap: &'t mut BytesMut) -> &'t [u8] {
        match self {
            Self::Fixed(value) => value.as_bytes(),
            Self::Values(template) => template.text(values, Escaping::Header, scrap),
        }
    }

    /// Appends `name: value` as a header line.
    pub fn put(&self, name: &[u8], values: &TemplateValues<'_>, out: &mut BytesMut) {
        out.reserve(name.len() + 4);
        out.put_slice(name);
        out.put_slice(b": ");
        match self {
            Self::Fixed(value) => out.extend_from_slice(value.as_bytes()),
            Self::Values(template) => template.write(values, Escaping::Header, out),
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> TemplateValues<'static> {
        TemplateValues {
            request_id: b"id-1",
            client: Some("2001:db8::1".parse().unwrap()),
            country: Country::new("DE"),
            host: "a.example",
            path: "/x\"<y>&'\\",
            route: "api",
            limit: "per-client",
            retry_after: Some(7),
            consumer: "acme",
            tier: "",
            members: &[],
        }
    }

    fn shown(text: &str, escaping: Escaping) -> String {
        let mut out = BytesMut::new();
        match Template::parse(text).unwrap() {
            Ok(template) => template.write(&values(), escaping, &mut out),
            Err(plain) => out.extend_from_slice(plain.as_bytes()),
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn words_are_replaced_and_other_braces_stay() {
        let rows = [
            ("{client} {limit}: {retry_after}s", "2001:db8::1 per-client: 7s"),
            (r#"{"a":{"id":"{request_id}"}}"#, r#"{"a":{"id":"id-1"}}"#),
            ("{{limit}} {{{limit}}} { limit} {Limit} {limit", "{limit} {{limit}} { limit} {Limit} {limit"),
            ("{}{{}}{tier}.", "{}{{}}."),
            ("a{color:red}b", "a{color:red}b"),
            ("{{{{route}}}}", "{{{route}}}"),
        ];
        for (text, expected) in rows {
            assert_eq!(shown(text, Escaping::Plain), expected, "{text}");
        }
        assert_eq!(Template::parse("{word}"), Err(UnknownWord("word".into())));
        assert_eq!(Template::parse("{{word}}"), Ok(Err("{word}".into())));
    }

    #[test]
    fn values_are_escaped_by_the_media_type() {
        let rows: [(&str, &str); 6] = [
            ("application/problem+json", r#"/x\"\u003cy\u003e\u0026\u0027\\"#),
            ("application/x-javascript", r#"/x\"\u003cy\u003e\u0026\u0027\\"#),
            ("application/xhtml+xml", "/x&quot;&lt;y&gt;&amp;&#39;\\"),
            ("text/html; charset=utf-8", "/x&quot;&lt;y&gt;&amp;&#39;\\"),
            ("image/svg+xml", "/x&quot;&lt;y&gt;&amp;&#39;\\"),
            ("text/plain", "/x\"<y>&'\\"),
        ];
        for (media_type, expected) in rows {
            assert_eq!(shown("{path}", Escaping::of(media_type.as_bytes())), expected, "{media_type}");
        }
    }

    #[test]
    fn a_value_of_the_body_is_repeated_as_it_is() {
        let member = |pointer: &str, text: &str, is_text| MemberValue {
            pointer: JsonPointer::parse(pointer).unwrap(),
            text: text.as_bytes().into(),
            is_text,
        };
        let members =
            [member("/id", "7", false), member("/a~1b", "7", true), member("/q", "a\"\\<\u{e9}\n", true)];
        let values = TemplateValues { members: &members, ..TemplateValues::default() };
        let shown = |text: &str, escaping: Escaping| {
            let mut out = BytesMut::new();
            Template::parse(text).unwrap().unwrap().write(&values, escaping, &mut out);
            String::from_utf8(out.to_vec()).unwrap()
        };
        let json = shown(r#"{"id":{json:/id},"b":{json:/a~1b},"q":{json:/q},"e":{json:/e}}"#, Escaping::Json);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read, serde_json::json!({"id": 7, "b": "7", "q": "a\"\\<\u{e9}\n", "e": null}));
        assert_eq!(shown("{json:/q}{json:/e}.", Escaping::Html), "a&quot;\\&lt;\u{e9}\n.");
        assert_eq!(Template::parse("{{json:/id}}"), Ok(Err("{json:/id}".into())));
        for text in ["json:id", "json:", "json:/~2"] {
            assert_eq!(Template::parse(&format!("{{{text}}}")), Err(UnknownWord(text.into())));
        }
    }

    proptest! {
        /// No value ends a line, a string of JSON, or a text of HTML.
        #[test]
        fn no_value_ends_its_place(value in "\\PC*|[\\x00-\\x7f]*") {
            let mut out = BytesMut::new();
            Escaping::Json.write(value.as_bytes(), &mut out);
            let text = format!("\"{}\"", std::str::from_utf8(&out).unwrap());
            prop_assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value.clone());
            out.clear();
            Escaping::Html.write(value.as_bytes(), &mut out);
            prop_assert!(!out.iter().any(|byte| b"<>\"'".contains(byte)));
            out.clear();
            Escaping::Header.write(value.as_bytes(), &mut out);
            prop_assert!(HeaderValue::from_bytes(&out).is_ok());
        }

        #[test]
        fn any_text_is_parsed(text in "[{}a-c_ ]{0,30}|\\PC*") {
            let _ = Template::parse(&text);
        }
    }
}
