//! docs/openapi.json is what the table of operations and the types say. To write it anew: `INSTA_UPDATE=always`.

use std::collections::BTreeSet;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::changes::ProblemDetails;
use super::keys::KeyOrder;
use super::operations::{
    ApiParameter, ApiType, BODY_ERRORS, IDEMPOTENCY_KEY, MAX_IDEMPOTENCY_KEY, NeededRight, OPERATIONS,
    OperationEntry,
};

const FILE: &str = "docs/openapi.json";

/// The schemas of what the gateway writes, and of what it reads.
struct Schemas {
    written: SchemaGenerator,
    read: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            written: settings().for_serialize().into_generator(),
            read: settings().for_deserialize().into_generator(),
        }
    }

    /// All named schemas. A type that is both written and read would need two.
    fn take(mut self) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        for (name, schema) in self.read.take_definitions(true) {
            assert!(all.insert(name.clone(), schema).is_none(), "{name} is written and read");
        }
        all
    }
}

fn content(media_type: &str, schema: impl Into<Value>) -> Value {
    json!({ media_type: { "schema": schema.into() } })
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).unwrap().canonical_reason().unwrap()
}

/// The statuses with problem details that this operation has.
fn errors(entry: &OperationEntry) -> BTreeSet<u16> {
    let body_errors = if entry.has_body() { BODY_ERRORS.as_slice() } else { &[] };
    [401, 403].iter().chain(entry.errors).chain(body_errors).copied().collect()
}

fn responses(entry: &OperationEntry, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for status in errors(entry) {
        let response = json!({ "$ref": format!("#/components/responses/{status}") });
        responses.insert(status.to_string(), response);
    }
    for (status, types) in entry.responses {
        let mut listed: Vec<Value> =
            types.iter().map(|one: &ApiType| (one.schema)(&mut schemas.written).into()).collect();
        let schema = if listed.len() == 1 { listed.remove(0) } else { json!({ "anyOf": listed }) };
        let mut content = content("application/json", schema);
        if entry.parameters.contains(&ApiParameter::Format) {
            content["text/csv"] = json!({ "schema": { "type": "string" } });
        }
        let response = json!({ "description": reason(*status), "content": content });
        assert!(responses.insert(status.to_string(), response).is_none(), "{status} is an error, too");
    }
    responses.into()
}

/// A name in the path.
fn name_of(word: &str) -> Option<Value> {
    let name = word.strip_prefix('{')?.strip_suffix('}')?;
    let about = match name {
        "limit" => "The name of a limit.",
        "key" => {
            "The id of a key, `id:` and 32 hexadecimal digits, or the values of its parts with `,` between them, each \
             percent-encoded."
        }
        "upstream" => "The name of an upstream.",
        "server" => "A server of it, as the file has it: `HOST:PORT`, or the path of a Unix socket.",
        _ => panic!("`{name}` needs a description"),
    };
    let schema = json!({ "type": "string", "minLength": 1 });
    Some(json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema }))
}

fn parameter(parameter: &ApiParameter) -> Value {
    let (name, place, about, schema) = match parameter {
        ApiParameter::Since => (
            "since",
            "query",
            "The `seq` of an earlier response: only what is newer is listed.".to_owned(),
            json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
        ),
        ApiParameter::Top(length) => (
            "top",
            "query",
            "How many are listed.".to_owned(),
            json!({ "type": "integer", "minimum": 1, "maximum": length.most, "default": length.usual }),
        ),
        ApiParameter::By => (
            "by",
            "query",
            "The number by which they are chosen.".to_owned(),
            json!({ "enum": KeyOrder::ALL.map(KeyOrder::as_str), "default": KeyOrder::default().as_str() }),
        ),
        ApiParameter::Window => (
            "window",
            "query",
            "The present window, the one before, or that with this begin.".to_owned(),
            json!({
                "anyOf": [{ "enum": ["current", "previous"] }, { "type": "string", "format": "date-time" }],
                "default": "current",
            }),
        ),
        ApiParameter::Format => (
            "format",
            "query",
            "The form of the response.".to_owned(),
            json!({ "enum": ["json", "csv"], "default": "json" }),
        ),
        ApiParameter::IdempotencyKey => (
            IDEMPOTENCY_KEY,
            "header",
            "A second request with it charges nothing.".to_owned(),
            json!({ "type": "string", "pattern": format!("^[!-~]{{1,{MAX_IDEMPOTENCY_KEY}}}$") }),
        ),
    };
    json!({ "name": name, "in": place, "description": about, "schema": schema })
}

fn operation(entry: &OperationEntry, schemas: &mut Schemas) -> Value {
    let right = match entry.right {
        NeededRight::Read => "read",
        NeededRight::Operate => "operate",
        NeededRight::Charge => "charge:LIMIT",
    };
    let names = entry.path.split('/').filter_map(name_of);
    let parameters: Vec<Value> = names.chain(entry.parameters.iter().map(parameter)).collect();
    let mut operation = json!({
        "operationId": format!("{:?}", entry.operation),
        "summary": entry.about.trim(),
        "description": format!("Needs the right `{right}`."),
        "parameters": parameters,
        "responses": responses(entry, schemas),
    });
    if entry.has_body() {
        let schema = match &entry.request {
            Some(one) => (one.schema)(&mut schemas.read).into(),
            None => json!({ "type": "object" }),
        };
        let required = entry.request.is_some();
        operation["requestBody"] =
            json!({ "required": required, "content": content("application/json", schema) });
    }
    operation
}

fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for entry in OPERATIONS {
        let path = paths.entry(format!("/{}", entry.path)).or_insert_with(|| json!({}));
        let method = entry.method.as_str().to_ascii_lowercase();
        assert!(path.get(&method).is_none(), "{method} {} stands twice", entry.path);
        path[method] = operation(entry, &mut schemas);
    }
    let problem = content("application/problem+json", schemas.written.subschema_for::<ProblemDetails>());
    let errors: BTreeSet<u16> = OPERATIONS.iter().flat_map(errors).collect();
    let errors = errors
        .into_iter()
        .map(|status| (status.to_string(), json!({ "description": reason(status), "content": problem })));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tollgate's admin API",
            "version": "1",
            "description": "docs/api.md explains each field.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/api/v1" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": errors.collect::<Map<_, _>>(),
            "schemas": schemas.take(),
        },
    })
}

#[test]
fn the_openapi_document_is_that_of_the_table_and_the_types() {
    // Comments are about Rust.
    let document = format!("{:#}\n", document()).replace("`None`", "`null`");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(FILE, &document).unwrap();
    }
    let found = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(found == document, "{FILE} is not what the types say: INSTA_UPDATE=always writes it anew");
}

#[test]
fn each_operation_has_a_path_of_its_own() {
    for entry in OPERATIONS {
        let path: Vec<_> =
            entry.path.split('/').map(|word| if word.starts_with('{') { "x" } else { word }).collect();
        let path = path.join("/");
        let names = entry.path.matches('{').count();
        assert_eq!(
            entry.names(&path).map(|found| found.iter().filter(|name| **name == "x").count()),
            Some(names)
        );
        let others =
            OPERATIONS.iter().filter(|other| other.method == entry.method && other.names(&path).is_some());
        assert_eq!(others.count(), 1, "{} {}", entry.method, entry.path);
        for wrong in [format!("{path}/x"), format!("{path}/"), String::new()] {
            assert_eq!(entry.names(&wrong), None, "{wrong}");
        }
    }
}
