//! Trailers, and the selection of those to be forwarded.

use super::fields::Fields;
use super::mentioned::MentionedNames;
use super::name::{Name, claims_certificate, claims_consumer, with_hyphens};
use super::syntax::split_field;

/// Trailers that are dropped beside those that a proxy knows: they authenticate, control or describe the message
/// (RFC 9110 §6.5.1).
const FORBIDDEN: [&[u8]; 12] = [
    b"cache-control",
    b"content-encoding",
    b"content-range",
    b"content-type",
    b"cookie",
    b"if-match",
    b"if-none-match",
    b"max-forwards",
    b"range",
    b"set-cookie",
    b"vary",
    b"via",
];

/// The trailers that may be forwarded, of those that neither frame nor route nor authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trailers {
    /// Those declared in the message's `trailer` fields: their values, as one list.
    Declared(Vec<u8>),
    /// All. Where both sides speak HTTP/2, trailers are rarely declared, and cannot be confused with other fields.
    All,
}

impl Trailers {
    /// None.
    pub const NONE: Self = Self::Declared(Vec::new());

    /// Those that a head declares.
    pub fn declared(fields: Fields<'_>) -> Self {
        let mut names = Vec::new();
        for value in fields.all_known(Name::Trailer) {
            names.extend_from_slice(value);
            names.push(b',');
        }
        Self::Declared(names)
    }

    /// The lines that may be forwarded, of trailer lines that each end in CR LF. Lines that are no field are left out.
    pub fn pick(&self, lines: &[u8]) -> Vec<u8> {
        let name_of = |line: &'_ [u8]| {
            split_field(line.strip_suffix(b"\r\n").unwrap_or(line)).map(|field| field.0.len())
        };
        let fields = lines.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
            let (name, _) = line.split_at(name_of(line).ok()?);
            (!is_forbidden(name)).then_some((name, line))
        });
        match self {
            Self::All => fields.flat_map(|(_, line)| line).copied().collect(),
            Self::Declared(list) if list.is_empty() => Vec::new(),
            Self::Declared(list) => {
                let mut declared = MentionedNames::of(fields.clone().map(|(name, _)| name));
                declared.mark(list);
                let declared = fields.filter(|(name, _)| declared.has(name));
                declared.flat_map(|(_, line)| line).copied().collect()
            }
        }
    }
}

/// The trailer lines, each of which ends in CR LF, whose names pass.
pub fn retain(lines: &[u8], passes: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let name_of = |line: &[u8]| line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
    let kept = lines.split_inclusive(|&byte| byte == b'\n').filter(|line| passes(&line[..name_of(line)]));
    kept.flatten().copied().collect()
}

/// Whether the name is forbidden for trailers, or one that many backends read as a forbidden one.
fn is_forbidden(name: &[u8]) -> bool {
    let is = |name: &[u8]| {
        Name::of(name) != Name::Other
            || FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name))
    };
    is(name)
        || claims_consumer(name)
        || claims_certificate(name)
        || with_hyphens(name).is_some_and(|twin| is(&twin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(which: &Trailers, lines: &str) -> String {
        String::from_utf8(which.pick(lines.as_bytes())).expect("text")
    }

    #[test]
    fn only_declared_trailers_travel_on() {
        let lines = "x-Sum: 1\r\nother: 2\r\nno field\r\n";
        assert_eq!(picked(&Trailers::Declared(b"a, X-SUM,".to_vec()), lines), "x-Sum: 1\r\n");
        assert_eq!(picked(&Trailers::All, lines), "x-Sum: 1\r\nother: 2\r\n");
        assert_eq!(picked(&Trailers::NONE, lines), "");
    }

    #[test]
    fn trailers_that_frame_route_or_authenticate_are_dropped_under_their_twins_names_too() {
        let lines = "content_length: 1\r\nTransfer_Encoding: x\r\nset-cookie: a\r\nx_forwarded_for: b\r\nset_cookie: c\r\nX-Consumer: d\r\nx_consumer_tier: e\r\nx_sum: 2\r\n";
        assert_eq!(picked(&Trailers::All, lines), "x_sum: 2\r\n");
    }
}
