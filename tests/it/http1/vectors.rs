//! Replays the vectors of HTTP Desync Guardian (AWS, Apache-2.0): what it calls severe is refused and the connection
//! closed, what it calls compliant is taken. What lies between is ours to choose, but never smuggles.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use serde_yaml_ng::Value;

use crate::harness::{Backend, Client, Fault, Gateway, everything_to};

#[derive(Debug, Deserialize)]
struct Vector {
    name: String,
    uri: String,
    method: String,
    version: String,
    headers: Vec<Field>,
    expected: Expected,
}

#[derive(Debug, Deserialize)]
struct Field {
    name: String,
    value: Value,
}

#[derive(Debug, Deserialize)]
struct Expected {
    tier: String,
}

/// What the backend must never see: it stands behind every request that is refused.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: test\r\n\r\n";

/// Compliant by RFC 9112, but refused on purpose: each by a rule of its own, and none is sent by ordinary clients.
fn refused_on_purpose(vector: &Vector) -> bool {
    let coding = vector.field("transfer-encoding").unwrap_or_default().trim().to_ascii_lowercase();
    let list_or_parameter = !coding.is_empty() && coding != "chunked";
    list_or_parameter || !vector.uri.is_ascii() || vector.uri.is_empty() || vector.uri.contains('#')
}

#[test]
fn severe_vectors_are_refused_and_the_connection_closed() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let severe = vectors("Severe");
    assert_eq!(severe.len(), 58, "the vectors are all there");
    for vector in severe {
        let mut client = Client::connect(gateway.addr());
        client.write(vector.head());
        client.write(SMUGGLED);
        match client.try_read(&vector.method) {
            Ok(response) => {
                assert!(
                    [400, 405, 413, 501, 505].contains(&response.status),
                    "{}: {}",
                    vector.name,
                    response.head
                );
            }
            Err(Fault::Closed | Fault::Cut(_)) => {}
            Err(fault) => panic!("{}: {fault}", vector.name),
        }
        assert!(client.closes(), "{}: the connection stays open", vector.name);
    }
    assert_eq!(backend.count(), 0, "{:#?}", backend.requests());
}

#[test]
fn compliant_vectors_are_taken() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let compliant = vectors("Compliant");
    assert_eq!(compliant.len(), 28, "the vectors are all there");
    let mut on_purpose = 0;
    for vector in compliant {
        let mut client = Client::connect(gateway.addr());
        client.write(vector.head());
        client.write(vector.body());
        let response = client.read_for(&vector.method);
        if refused_on_purpose(&vector) {
            on_purpose += 1;
            assert!([400, 501].contains(&response.status), "{}: {}", vector.name, response.head);
        } else {
            assert_eq!(
                response.status,
                200,
                "{}: {:?}",
                vector.name,
                String::from_utf8_lossy(&vector.head())
            );
        }
    }
    assert_eq!(on_purpose, 10, "no more exceptions than those");
}

/// Taken or refused: what stands behind an ambiguous head must be the next request, or nothing.
#[test]
fn what_lies_between_never_smuggles() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let between: Vec<_> = ["Acceptable", "Ambiguous"].into_iter().flat_map(vectors).collect();
    assert_eq!(between.len(), 15 + 58, "the vectors are all there");
    for vector in between {
        let before = backend.count();
        let mut client = Client::connect(gateway.addr());
        client.write(vector.head());
        client.write(vector.body());
        client.write(SMUGGLED);
        let taken = client.try_read(&vector.method).ok().filter(|response| response.status == 200);
        if let Some(response) = taken {
            // Nothing of this vector may be under way when the next one is counted.
            if !response.closed {
                client.try_read("GET").ok();
            }
            let seen = backend.requests()[before].clone();
            let framings =
                seen.header_all("content-length").len() + seen.header_all("transfer-encoding").len();
            assert!(framings < 2, "{}: forwarded with two framings:\n{}", vector.name, seen.head);
        } else {
            // What a refusal of HEAD carries is another test's question.
            while !client.read_some(1 << 16).is_empty() {}
            assert!(client.closes(), "{}: refused, but the connection stays open", vector.name);
            assert_eq!(backend.count(), before, "{}: refused, but the backend saw something", vector.name);
        }
    }
}

fn vectors(tier: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/http-desync-guardian");
    let files = std::fs::read_dir(folder).expect("the vectors are there");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    yaml.flat_map(|path| {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        serde_yaml_ng::from_str::<Vec<Vector>>(&text)
            .unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
    })
    .filter(|vector| vector.expected.tier == tier)
    .collect()
}

impl Vector {
    fn field(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|field| field.name.trim().eq_ignore_ascii_case(name)).map(Field::value)
    }

    /// The vectors name no Host; a request needs one.
    fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.uri, self.version);
        if self.field("host").is_none() {
            head.push_str("Host: test\r\n");
        }
        for field in &self.headers {
            // Writing to a string cannot fail.
            write!(head, "{}: {}\r\n", field.name, field.value()).expect("a string takes all");
        }
        head.push_str("\r\n");
        bytes_of(&head)
    }

    /// A body by the framing that the head means to have.
    fn body(&self) -> Vec<u8> {
        match (self.field("transfer-encoding"), self.field("content-length")) {
            (Some(_), _) => b"0\r\n\r\n".to_vec(),
            (None, Some(length)) => vec![b'x'; length.trim().parse().unwrap_or(0)],
            (None, None) => Vec::new(),
        }
    }
}

impl Field {
    fn value(&self) -> String {
        match &self.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            other => panic!("{other:?} as the value of `{}`", self.name),
        }
    }
}

/// YAML's `\x80` is one byte; what does not fit into a byte is UTF-8.
fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for char in text.chars() {
        match u8::try_from(char) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend_from_slice(char.to_string().as_bytes()),
        }
    }
    bytes
}
