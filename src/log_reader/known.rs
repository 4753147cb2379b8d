//! Which fields a log has.

use std::collections::HashSet;

use super::fields::LineFields;

/// Names of headers that are kept: clients choose the names where a server logs all headers.
const MAX_HEADERS: usize = 1_000;
/// Bytes of a name that is kept.
const MAX_NAME: usize = 256;

/// The fields that at least one line had so far.
#[derive(Clone, Debug, Default)]
pub struct KnownFields {
    /// The host.
    pub host: bool,
    /// The client's address.
    pub client: bool,
    /// The status of the response.
    pub status: bool,
    /// The duration.
    pub duration: bool,
    /// The size of the request body.
    pub bytes_in: bool,
    /// The size of the response body.
    pub bytes_out: bool,
    /// The consumer or user.
    pub consumer: bool,
    /// Decisions of tollgate.
    pub own: bool,
    has_user_agent: bool,
    has_referer: bool,
    headers: HashSet<Vec<u8>, foldhash::fast::RandomState>,
    scratch: Vec<u8>,
}

impl KnownFields {
    /// Whether the log has this header of requests, or tells its absence. The name is in lower case.
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.contains(name.as_bytes())
    }

    /// The names of these headers in lower case, in alphabetical order.
    pub fn headers(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.headers.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        names
    }

    pub(super) fn note(&mut self, fields: &LineFields<'_>) {
        self.host |= fields.host.is_some();
        self.client |= fields.client.is_some();
        self.status |= fields.status.is_some();
        self.duration |= fields.duration.is_some();
        self.bytes_in |= fields.bytes_in.is_some();
        self.bytes_out |= fields.bytes_out.is_some();
        self.consumer |= fields.consumer.is_some();
        self.own |= fields.own.is_some();
        if fields.user_agent.is_some() && !std::mem::replace(&mut self.has_user_agent, true) {
            self.note_header(b"user-agent");
        }
        if fields.referer.is_some() && !std::mem::replace(&mut self.has_referer, true) {
            self.note_header(b"referer");
        }
        for (name, _) in &fields.headers {
            self.note_header(name.raw());
        }
    }

    fn note_header(&mut self, name: &[u8]) {
        if name.len() > MAX_NAME {
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(name);
        self.scratch.make_ascii_lowercase();
        if self.headers.len() < MAX_HEADERS && !self.headers.contains(&self.scratch) {
            self.headers.insert(self.scratch.clone());
        }
    }
}
