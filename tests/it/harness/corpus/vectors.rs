//! The vectors of others: llhttp's test cases, and HTTP Desync Guardian's.

use std::path::PathBuf;

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::{Answered, Sent, Verdict};

/// A case of llhttp. Its bytes are written as Latin-1.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    /// With which lenient flags, if any, it is read.
    r#type: String,
    bytes: String,
    error: Option<String>,
    /// The parser was stopped on the way, so its verdict is not about the whole.
    #[serde(default)]
    paused: bool,
    bodies: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Vector {
    name: String,
    uri: String,
    method: String,
    version: String,
    headers: Vec<Field>,
}

#[derive(Debug, Deserialize)]
struct Field {
    name: String,
    value: Value,
}

fn path(below: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(below)
}

fn read(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

fn cases(file: &str) -> Vec<Case> {
    serde_json::from_str(&read(&path(&format!("llhttp/{file}")))).expect("the cases are a list")
}

fn latin_1(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).expect("a byte")).collect()
}

impl Case {
    /// Of cases that are read strictly and to their end.
    fn verdict(&self, kind: &str) -> Option<Verdict> {
        let strict = self.r#type == kind && !self.paused;
        let bodies = self.bodies.iter().map(|body| latin_1(body)).collect();
        strict.then(|| Verdict { error: self.error.clone(), bodies })
    }
}

/// Each as it is; and, as most lack a Host, once more with one.
pub(super) fn llhttp_requests() -> impl Iterator<Item = Sent> {
    cases("requests.json").into_iter().flat_map(|case| {
        let (bytes, llhttp) = (latin_1(&case.bytes), case.verdict("request"));
        let name = format!("llhttp {}", case.case);
        let with_host = with_host(&bytes).map(|bytes| Sent {
            name: format!("{name} with a Host"),
            bytes,
            llhttp: llhttp.clone(),
        });
        std::iter::once(Sent { name, bytes, llhttp }).chain(with_host)
    })
}

/// Puts a Host behind each request line that has none after it.
fn with_host(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = bytes.to_ascii_lowercase();
    let has_host = text.windows(6).any(|window| window == b"\nhost:");
    let line =
        bytes.windows(11).position(|window| window.starts_with(b" HTTP/") && window.ends_with(b"\r\n"))?;
    let (head, rest) = bytes.split_at(line + 11);
    (!has_host).then(|| [head, b"Host: test\r\n", rest].concat())
}

pub(super) fn llhttp_answers() -> impl Iterator<Item = Answered> {
    cases("responses.json").into_iter().map(|case| Answered {
        name: format!("llhttp {}", case.case),
        method: "GET",
        bytes: latin_1(&case.bytes),
        llhttp: case.verdict("response"),
    })
}

/// All vectors of HTTP Desync Guardian, with a body by the framing that each means to have.
pub(super) fn guardian() -> Vec<Sent> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(path("http-desync-guardian"))
        .expect("the vectors are there")
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let vectors = files.iter().flat_map(|path| {
        serde_yaml_ng::from_str::<Vec<Vector>>(&read(path))
            .unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
    });
    vectors
        .map(|vector| Sent { name: format!("guardian {}", vector.name), bytes: vector.bytes(), llhttp: None })
        .collect()
}

impl Vector {
    fn field(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|field| field.name.trim().eq_ignore_ascii_case(name)).map(Field::text)
    }

    /// The vectors name no Host; a request needs one.
    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.uri, self.version);
        if self.field("host").is_none() {
            head.push_str("Host: test\r\n");
        }
        for field in &self.headers {
            head.push_str(&format!("{}: {}\r\n", field.name, field.text()));
        }
        head.push_str("\r\n");
        let mut bytes = Vec::with_capacity(head.len());
        for char in head.chars() {
            match u8::try_from(char) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend_from_slice(char.to_string().as_bytes()),
            }
        }
        match (self.field("transfer-encoding"), self.field("content-length")) {
            (Some(_), _) => bytes.extend_from_slice(b"0\r\n\r\n"),
            (None, Some(length)) => {
                let length: usize = length.trim().parse().unwrap_or(0);
                bytes.resize(bytes.len() + length.min(2_000), b'x');
            }
            (None, None) => {}
        }
        bytes
    }
}

impl Field {
    fn text(&self) -> String {
        match &self.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            other => panic!("{other:?} as the value of `{}`", self.name),
        }
    }
}
