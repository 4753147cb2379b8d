//! The JSON Schema of the file, for editors: it follows from the declarations of its keys.

use serde_json::{Map, Value, json};

use super::admin::ADMIN;
use super::auth::AUTH;
use super::decisions::DECISIONS;
use super::descriptors::DESCRIPTOR;
use super::file::FILE;
use super::keys::{ConfigSection, DeclaredKey, Length, NamedSchema, Schema};
use super::limits::LIMIT;
use super::log::LOG;
use super::policy_tests::TEST_FILE;
use super::routes::ROUTE;
use super::server::SERVER;
use super::store::STORE;
use super::trace::TRACE;
use super::upstreams::UPSTREAM;

/// A string with a variable, which may stand for a number, a boolean or a word.
static ENVIRONMENT: NamedSchema = NamedSchema {
    name: "environment",
    description: "`${NAME}` stands for the environment variable NAME, in any string.",
    schema: Schema::Matching(r"\$\{"),
};

static DURATION: NamedSchema = NamedSchema {
    name: "duration",
    description: "\"250ms\", \"3s\", \"15min\", \"1h\", \"1day\": from 1 ms to 366 days.",
    schema: Schema::Matching(r"^[0-9]+(ms|s|min|h|day)$|\$\{"),
};
static SIZE: NamedSchema = NamedSchema {
    name: "size",
    description: "\"512B\", \"16KiB\", \"1MiB\", \"1GiB\"; a number alone is bytes.",
    schema: Schema::Either(&[
        Schema::Whole(0, i64::MAX as u64),
        Schema::Matching(r"^[0-9]+(B|KiB|MiB|GiB)?$|\$\{"),
    ]),
};

/// The definitions that the schema has so far, by name.
#[derive(Default)]
struct Definitions(Map<String, Value>);

/// The JSON Schema of `gateway.toml` (draft 2020-12), as text.
#[must_use]
pub fn schema() -> String {
    schema_of(&FILE)
}

/// The JSON Schema of a file with tests of limits, as text.
#[must_use]
pub fn test_schema() -> String {
    schema_of(&TEST_FILE)
}

fn schema_of(file: &dyn ConfigSection) -> String {
    let mut definitions = Definitions::default();
    let mut schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema" });
    let fields = definitions.table(file);
    if let (Some(schema), Value::Object(fields)) = (schema.as_object_mut(), fields) {
        schema.extend(fields);
        schema.insert("$defs".to_owned(), Value::Object(definitions.0));
    }
    format!("{schema:#}\n")
}

impl Definitions {
    /// The schema of a table with our keys.
    fn table(&mut self, section: &dyn ConfigSection) -> Value {
        let keys = section.keys();
        let properties: Map<String, Value> =
            keys.iter().map(|key| (key.name().to_owned(), self.key(*key))).collect();
        let required: Vec<_> = keys.iter().filter(|key| key.is_required()).map(|key| key.name()).collect();
        let mut table = json!({
            "title": section.title(),
            "description": section.description().trim(),
            "type": "object",
            "additionalProperties": false,
            "properties": properties,
        });
        if !required.is_empty() {
            table["required"] = json!(required);
        }
        let alternatives = section.alternatives();
        if !alternatives.is_empty() {
            table["anyOf"] = alternatives.iter().map(|key| json!({ "required": [key] })).collect();
        }
        table
    }

    fn key(&mut self, key: &dyn DeclaredKey) -> Value {
        let mut property = match key.schema() {
            Schema::Choice => self.or_variable(json!({ "enum": key.words() })),
            schema => self.schema(schema),
        };
        let mut description = key.description().trim().to_owned();
        if let Some(default) = key.default() {
            description.push_str(&format!(" Default {default}."));
            property["default"] = serde_json::from_str(&default).unwrap_or_default();
        }
        // An editor describes a key by the alternative that it offers.
        for alternative in property.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten() {
            if alternative.get("$ref").is_none() {
                alternative["description"] = description.clone().into();
            }
        }
        property["description"] = description.into();
        property
    }

    fn schema(&mut self, schema: &Schema) -> Value {
        match schema {
            Schema::Text | Schema::Choice => json!({ "type": "string" }),
            Schema::Name => json!({ "type": "string", "minLength": 1 }),
            Schema::TextUpTo(most) => json!({ "type": "string", "minLength": 1, "maxLength": most }),
            Schema::Matching(pattern) => json!({ "type": "string", "pattern": pattern }),
            Schema::Whole(min, max) => {
                self.or_variable(json!({ "type": "integer", "minimum": min, "maximum": max }))
            }
            Schema::Numbers(numbers) => self.or_variable(json!({ "enum": numbers })),
            Schema::Share => self.or_variable(json!({ "type": "number", "minimum": 0, "maximum": 1 })),
            Schema::Flag => self.or_variable(json!({ "type": "boolean" })),
            Schema::Duration => self.named(&DURATION),
            Schema::Size(..) => self.named(&SIZE),
            Schema::Words(words) => self.or_variable(json!({ "enum": words })),
            Schema::List(length, items) => {
                let list = json!({ "type": "array", "items": self.schema(items) });
                with_length(list, ("minItems", "maxItems"), *length)
            }
            Schema::Set(length, items) => {
                let list = json!({ "type": "array", "uniqueItems": true, "items": self.schema(items) });
                with_length(list, ("minItems", "maxItems"), *length)
            }
            Schema::Map(length, names, values) => {
                let mut map = json!({ "type": "object", "additionalProperties": self.schema(values) });
                if !matches!(names, Schema::Text) {
                    map["propertyNames"] = self.schema(names);
                }
                with_length(map, ("minProperties", "maxProperties"), *length)
            }
            Schema::Either(schemas) => {
                let any: Vec<_> = schemas.iter().map(|schema| self.schema(schema)).collect();
                json!({ "anyOf": any })
            }
            Schema::Table(section) => {
                let name = section.name();
                self.define(&name, |definitions| definitions.table(*section))
            }
            Schema::Named(named) => self.named(named),
        }
    }

    fn named(&mut self, named: &NamedSchema) -> Value {
        self.define(named.name, |definitions| {
            let mut definition = definitions.schema(&named.schema);
            if !named.description.is_empty() {
                definition["description"] = named.description.into();
            }
            definition
        })
    }

    /// A reference to a definition, which is made when it is referred to first.
    fn define(&mut self, name: &str, make: impl FnOnce(&mut Self) -> Value) -> Value {
        if !self.0.contains_key(name) {
            // So that a definition may refer to itself.
            self.0.insert(name.to_owned(), Value::Null);
            let definition = make(self);
            self.0.insert(name.to_owned(), definition);
        }
        json!({ "$ref": format!("#/$defs/{name}") })
    }

    /// A value that a variable may stand for.
    fn or_variable(&mut self, schema: Value) -> Value {
        json!({ "anyOf": [schema, self.named(&ENVIRONMENT)] })
    }
}

/// The schema of a list or a table with the bounds on its length, where it has some.
fn with_length(mut schema: Value, (least, most): (&str, &str), (min, max): Length) -> Value {
    if min > 0 {
        schema[least] = min.into();
    }
    if max < u32::MAX {
        schema[most] = max.into();
    }
    schema
}

/// The sections whose keys are told apart, in the order in which a message names them.
static SECTIONS: [&(dyn ConfigSection + Sync); 11] =
    [&ROUTE, &LIMIT, &AUTH, &UPSTREAM, &SERVER, &ADMIN, &STORE, &LOG, &TRACE, &DECISIONS, &DESCRIPTOR];

/// The titles of these sections, with their keys.
pub(super) fn sections() -> Vec<(&'static str, Vec<&'static str>)> {
    let keys = |section: &dyn ConfigSection| section.keys().iter().map(|key| key.name()).collect();
    SECTIONS.iter().map(|section| (section.title(), keys(*section))).collect()
}
