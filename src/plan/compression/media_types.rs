//! Media types (RFC 9110, 8.3.1), as `compress` names them.

/// What a list of media types has in common with that of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaTypePattern {
    /// `text/html`. Lower case.
    Exact(Box<str>),
    /// `text/*`: all types that begin so, the slash included, but event streams.
    Below(Box<str>),
    /// `application/*+json`: all types that begin and end so (RFC 6838, 4.2.8).
    Suffixed(Box<str>, Box<str>),
}

/// A list of media types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypes(pub Box<[MediaTypePattern]>);

/// The type of event streams, which only its own name stands for: most of their events are short.
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// The media types that are compressed if the file names none: those that consist of text, and others whose formats do not
/// compress.
const DEFAULT: [&str; 19] = [
    "text/html",
    "text/css",
    "text/plain",
    "text/javascript",
    "text/xml",
    "text/csv",
    "text/markdown",
    "application/javascript",
    "application/json",
    "application/problem+json",
    "application/ld+json",
    "application/manifest+json",
    "application/geo+json",
    "application/xml",
    "application/rss+xml",
    "application/atom+xml",
    "application/xhtml+xml",
    "application/wasm",
    "image/svg+xml",
];

impl Default for MediaTypes {
    fn default() -> Self {
        Self(DEFAULT.iter().map(|name| MediaTypePattern::Exact((*name).into())).collect())
    }
}

impl MediaTypes {
    /// Whether the list has the type of this `content-type`, whose parameters do not count.
    #[must_use]
    pub fn has(&self, content_type: &[u8]) -> bool {
        let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        self.0.iter().any(|pattern| pattern.fits(media_type))
    }
}

impl MediaTypePattern {
    /// Reads `text/html`, `text/*` or `application/*+json`. `None`: it is none of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = |name: &str| {
            let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            (1..=127).contains(&name.len()) && name.bytes().all(is_character)
        };
        let text = text.to_ascii_lowercase();
        let (kind, name) = text.split_once('/').filter(|(kind, _)| is_name(kind))?;
        match name.strip_prefix('*') {
            None => is_name(name).then(|| Self::Exact(text.as_str().into())),
            Some("") => Some(Self::Below(format!("{kind}/").into())),
            Some(suffix) if suffix.starts_with('+') && is_name(suffix) => {
                Some(Self::Suffixed(format!("{kind}/").into(), suffix.into()))
            }
            Some(_) => None,
        }
    }

    fn fits(&self, media_type: &[u8]) -> bool {
        let begins = |with: &str| {
            media_type.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        let ends = |with: &str| {
            let at = media_type.len().checked_sub(with.len());
            at.and_then(|at| media_type.get(at..))
                .is_some_and(|end| end.eq_ignore_ascii_case(with.as_bytes()))
        };
        match self {
            Self::Exact(name) => media_type.eq_ignore_ascii_case(name.as_bytes()),
            Self::Below(kind) => begins(kind) && !media_type.eq_ignore_ascii_case(EVENT_STREAM),
            Self::Suffixed(kind, suffix) => {
                media_type.len() > kind.len() + suffix.len() && begins(kind) && ends(suffix)
            }
        }
    }
}
