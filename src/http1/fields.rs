//! Header fields in place: found once, read often, never copied.

use http::HeaderName;

use super::name::Name;
use super::syntax::split_field;

/// The position of one field in a head.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpan {
    name_at: u32,
    value_at: u32,
    name_length: u16,
    value_length: u16,
    name: Name,
}

impl FieldSpan {
    /// The position of a field with name and value beginning there; `None` beyond 4 GiB, or 64 KiB of a name or value.
    pub fn new(name_at: usize, name: &[u8], value_at: usize, value: &[u8]) -> Option<Self> {
        Some(Self {
            name_at: u32::try_from(name_at).ok()?,
            value_at: u32::try_from(value_at).ok()?,
            name_length: u16::try_from(name.len()).ok()?,
            value_length: u16::try_from(value.len()).ok()?,
            name: Name::of(name),
        })
    }

    /// Reads the line of a field that begins at position `at` of a head: its position, and its value.
    ///
    /// # Errors
    ///
    /// The fault of the line.
    #[inline(always)]
    pub(super) fn read(line: &[u8], at: usize) -> Result<(Self, &[u8]), &'static str> {
        let (name, value_at, value) = split_field(line)?;
        let span = Self::new(at, name, at + value_at, value).ok_or("a field is larger than 64 KiB")?;
        Ok((span, value))
    }

    /// The field's name, if it is one that a proxy handles.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Whether the field has this name in `head`.
    pub fn is_named(&self, head: &[u8], name: &HeaderName) -> bool {
        let at = self.name_at as usize;
        let own = head.get(at..at + usize::from(self.name_length)).unwrap_or_default();
        own.eq_ignore_ascii_case(name.as_str().as_bytes())
    }
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field<'h> {
    /// Its name, if it is one that a proxy handles.
    pub known: Name,
    /// Its name as sent, in any case.
    pub name: &'h [u8],
    /// Its value without the blanks around it.
    pub value: &'h [u8],
}

/// The value, if there is exactly one.
pub fn only<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Option<&'h [u8]> {
    values.next().filter(|_| values.next().is_none())
}

/// The fields of a head, in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'h> {
    head: &'h [u8],
    spans: &'h [FieldSpan],
}

impl<'h> Fields<'h> {
    /// No field.
    pub const NONE: Fields<'static> = Fields { head: &[], spans: &[] };

    /// The fields at these positions of `head`. The positions must have been found in the same bytes.
    pub fn new(head: &'h [u8], spans: &'h [FieldSpan]) -> Self {
        Self { head, spans }
    }

    /// All fields in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Field<'h>> + Clone {
        self.spans.iter().map(move |span| self.at(span))
    }

    /// Calls `copy` with the text of all fields for which `passes` holds, as `name: value` lines in order. Adjacent
    /// fields that are in this form in the head already are passed in one piece.
    pub fn copy_lines(self, passes: impl Fn(&Field<'h>) -> bool, mut copy: impl FnMut(&[u8])) {
        let (mut from, mut to) = (0, 0);
        for span in self.spans {
            let field = self.at(span);
            if !passes(&field) {
                continue;
            }
            let line = span.name_at as usize..span.value_at as usize + field.value.len() + 2;
            let plain = span.value_at as usize == line.start + field.name.len() + 2
                && self.head.get(line.start + field.name.len()..span.value_at as usize) == Some(b": ")
                && self.head.get(line.end - 2..line.end) == Some(b"\r\n");
            if plain && line.start == to {
                to = line.end;
                continue;
            }
            copy(&self.head[from..to]);
            (from, to) = if plain { (line.start, line.end) } else { (0, 0) };
            if !plain {
                [field.name, b": ", field.value, b"\r\n"].into_iter().for_each(&mut copy);
            }
        }
        copy(&self.head[from..to]);
    }

    fn at(self, span: &FieldSpan) -> Field<'h> {
        Field { known: span.name, name: self.name(span), value: self.value(span) }
    }

    fn name(self, span: &FieldSpan) -> &'h [u8] {
        let at = span.name_at as usize;
        &self.head[at..at + usize::from(span.name_length)]
    }

    fn value(self, span: &FieldSpan) -> &'h [u8] {
        let at = span.value_at as usize;
        &self.head[at..at + usize::from(span.value_length)]
    }

    /// The value of the first field of this known name.
    pub fn known(self, name: Name) -> Option<&'h [u8]> {
        self.spans.iter().find(|span| span.name == name).map(|span| self.value(span))
    }

    /// The values of all fields of this known name.
    pub fn all_known(self, name: Name) -> impl DoubleEndedIterator<Item = &'h [u8]> + Clone {
        self.spans.iter().filter(move |span| span.name == name).map(move |span| self.value(span))
    }

    /// The values of all fields of this name, in order.
    pub fn all<'n>(self, name: &'n HeaderName) -> Values<'h, 'n> {
        Values { fields: self, name: name.as_str() }
    }

    /// The value of the first field of this name.
    pub fn first(self, name: &HeaderName) -> Option<&'h [u8]> {
        self.all(name).iter().next()
    }
}

/// All values of one name.
#[derive(Clone, Copy, Debug)]
pub struct Values<'h, 'n> {
    fields: Fields<'h>,
    name: &'n str,
}

impl<'h, 'n> Values<'h, 'n> {
    /// In the order in which they were sent.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'h [u8]> + Clone + use<'h, 'n> {
        let Self { fields, name } = self;
        let same = move |span: &&FieldSpan| {
            usize::from(span.name_length) == name.len()
                && fields.name(span).eq_ignore_ascii_case(name.as_bytes())
        };
        fields.spans.iter().filter(same).map(move |span| fields.value(span))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http1::request::RequestHead;

    proptest! {
        /// However the lines of a head are spaced, they are copied as if each were written anew.
        #[test]
        fn lines_are_copied_as_if_written_anew(
            fields in prop::collection::vec(("[a-zA-Z-]{1,4}", "[ \t]{0,2}", "([!-~]{1,3}( [!-~]{1,3})?)?", "[ \t]{0,2}", any::<bool>()), 0..8),
        ) {
            let mut head = String::from("GET / HTTP/1.0\r\n");
            let mut expected = String::new();
            let mut passing = Vec::new();
            for (name, before, value, after, passes) in &fields {
                let name = format!("x{name}"); // none that a parser has to understand
                head += &format!("{name}:{before}{value}{after}\r\n");
                passing.push(*passes);
                if *passes {
                    expected += &format!("{name}: {value}\r\n");
                }
            }
            head += "\r\n";
            let mut spans = Vec::new();
            let parsed = RequestHead::parse(head.as_bytes(), &mut spans).expect("a good head");
            let mut copied = Vec::new();
            let verdicts = std::cell::RefCell::new(passing.into_iter());
            let passes = |_: &Field<'_>| verdicts.borrow_mut().next().expect("one verdict a field");
            parsed.fields.copy_lines(passes, |text| copied.extend_from_slice(text));
            prop_assert_eq!(String::from_utf8(copied).expect("text"), expected);
        }
    }
}
