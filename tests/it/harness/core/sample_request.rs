//! Requests as tests write them.

use http::{HeaderName, HeaderValue, Method};
use tollgate::route::client::{ClientAddress, ClientRule};
use tollgate::route::condition::{Condition, ValuePattern};
use tollgate::route::path::{Path, PathMatching};
use tollgate::route::pattern::{HostPattern, PathMatcher};
use tollgate::route::{Conditions, RouteRequest};

use crate::harness::logs::field_list::FieldList;

/// A request that owns what [`Request`] borrows.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    method: Method,
    host: String,
    path: String,
    query: Option<String>,
    headers: FieldList,
    client: ClientAddress,
    matching: PathMatching,
}

/// `GET path` from 192.0.2.1, without host, its path matched strictly; `path` may have a query.
pub(crate) fn get(path: &str) -> Sample {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query.into())));
    let client = ClientRule::default().client("192.0.2.1".parse().unwrap());
    let headers = FieldList::default();
    let (method, matching) = (Method::GET, PathMatching::Strict);
    Sample { method, host: String::new(), path: path.into(), query, headers, client, matching }
}

impl Sample {
    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.parse().unwrap();
        self
    }

    pub(crate) fn matched(mut self, matching: PathMatching) -> Self {
        self.matching = matching;
        self
    }

    pub(crate) fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.headers.push(&name.parse::<HeaderName>().unwrap(), value.as_bytes());
        self
    }

    pub(crate) fn from(mut self, address: &str) -> Self {
        self.client = ClientRule::default().client(address.parse().unwrap());
        self
    }

    pub(crate) fn unidentified(mut self) -> Self {
        self.client.identified = false;
        self
    }

    pub(crate) fn ask<R>(&self, question: impl FnOnce(&RouteRequest<'_>) -> R) -> R {
        question(&RouteRequest {
            method: &self.method,
            host: &self.host,
            path: &Path::parse(&self.path, self.matching).unwrap(),
            query: self.query.as_deref(),
            headers: self.headers.fields(),
            body: tollgate::http1::request::Body::EMPTY,
            client: self.client,
            certificate: None,
            listener: None,
            content: &tollgate::route::content::RequestContent::Unknown,
            consumer: None,
            upstream: None,
        })
    }
}

/// A route for any host, method and header. A regular expression is matched strictly.
pub(crate) fn route(path: &str) -> Conditions {
    Conditions {
        hosts: Vec::new(),
        path: PathMatcher::parse(path, PathMatching::Strict).unwrap(),
        methods: Vec::new(),
        values: Vec::new(),
        merge_slashes: true,
    }
}

/// A route with these hosts and methods, each a list parted by blanks.
pub(crate) fn narrow(hosts: &str, path: &str, methods: &str) -> Conditions {
    Conditions {
        hosts: hosts.split_whitespace().map(|host| HostPattern::parse(host).unwrap()).collect(),
        methods: methods.split_whitespace().map(|method| method.parse().unwrap()).collect(),
        ..route(path)
    }
}

/// The same with a header condition more.
pub(crate) fn with_header(mut route: Conditions, name: &'static str, value: &'static str) -> Conditions {
    route
        .values
        .push(Condition::header(HeaderName::from_static(name), [ValuePattern::parse(value).unwrap()]));
    route
}
