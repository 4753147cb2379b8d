//! JSON (RFC 8259) in whose objects no name occurs twice: such a document has one reading.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// A value of which each object has each name once.
pub(super) struct UniqueNames(pub(super) Value);

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = UniqueNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value whose objects have each name once")
    }

    fn visit_unit<E>(self) -> Result<UniqueNames, E> {
        Ok(UniqueNames(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<UniqueNames, E> {
        Ok(UniqueNames(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<UniqueNames, E> {
        Ok(UniqueNames(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<UniqueNames, E> {
        Ok(UniqueNames(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<UniqueNames, E> {
        Ok(UniqueNames(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<UniqueNames, E> {
        Ok(UniqueNames(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<UniqueNames, E> {
        Ok(UniqueNames(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueNames, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueNames(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(UniqueNames(values.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UniqueNames, A::Error> {
        let mut object = Map::new();
        while let Some((name, UniqueNames(value))) = members.next_entry::<String, UniqueNames>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(UniqueNames(object.into()))
    }
}
