//! What the fuzz targets assert of calls of Envoy's rate limit service.

use tollgate::rate_limit_service::{RateLimitRequest, framed, unframed};

/// A field of a message: its number, and what it holds.
type Field<'m> = (u64, Value<'m>);

enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
    /// Of a fixed length, or a group.
    Other,
}

/// A message says what an independent reader of its bytes finds, and means the same once it is written again.
pub(crate) fn rate_limit_call(data: &[u8]) {
    let mut body = vec![0];
    body.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend(data);
    assert!(unframed::<RateLimitRequest>(&body[..body.len() - 1]).is_err(), "cut");
    let Ok(message) = unframed::<RateLimitRequest>(&body) else { return };
    let mut again = Vec::new();
    framed(&message, &mut again);
    assert_eq!(unframed::<RateLimitRequest>(&again).as_ref(), Ok(&message));
    let Some(fields) = fields_of(data) else { return };
    assert_eq!(bytes(&fields, 1).last().copied().unwrap_or_default(), &*message.domain);
    let hits = numbers(&fields, 3).last().unwrap_or_default();
    assert_eq!(hits & 0xffff_ffff, u64::from(message.hits_addend));
    let descriptors = bytes(&fields, 2);
    assert_eq!(descriptors.len(), message.descriptors.len());
    for (bytes_of_it, descriptor) in descriptors.into_iter().zip(message.descriptors) {
        let Some(fields) = fields_of(bytes_of_it) else { continue };
        let entries: Option<Vec<_>> = bytes(&fields, 1).into_iter().map(fields_of).collect();
        for (entry, found) in entries.into_iter().flatten().zip(&descriptor.entries) {
            assert_eq!(bytes(&entry, 1).last().copied().unwrap_or_default(), &*found.key);
            assert_eq!(bytes(&entry, 2).last().copied().unwrap_or_default(), &*found.value);
        }
        assert_eq!(bytes(&fields, 1).len(), descriptor.entries.len());
        assert_eq!(!bytes(&fields, 3).is_empty(), descriptor.hits_addend.is_some());
    }
}

/// The fields of a message without groups.
fn fields_of(mut rest: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = number(&mut rest)?;
        let value = match tag & 7 {
            0 => Value::Number(number(&mut rest)?),
            1 => take(&mut rest, 8).map(|_| Value::Other)?,
            2 => {
                let length = number(&mut rest)?;
                Value::Bytes(take(&mut rest, length)?)
            }
            5 => take(&mut rest, 4).map(|_| Value::Other)?,
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'m>(rest: &mut &'m [u8], length: u64) -> Option<&'m [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(taken)
}

fn bytes<'m>(fields: &[Field<'m>], wanted: u64) -> Vec<&'m [u8]> {
    let of_it = fields.iter().filter(|(number, _)| *number == wanted);
    of_it.filter_map(|(_, value)| if let Value::Bytes(bytes) = value { Some(*bytes) } else { None }).collect()
}

fn numbers<'m>(fields: &[Field<'m>], wanted: u64) -> impl DoubleEndedIterator<Item = u64> {
    let of_it = fields.iter().filter(move |(number, _)| *number == wanted);
    of_it.filter_map(|(_, value)| if let Value::Number(number) = value { Some(*number) } else { None })
}
