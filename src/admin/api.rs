//! `/api/v1/`: the state of the gateway, and changes to it while it runs. `docs/api.md` describes the responses.

mod bans;
mod charge;
mod control;
mod explain;
mod history;
mod key;
mod limits;
mod policies;
mod problems;
mod refusals;
mod routes;
mod servers;
mod status;
mod top_keys;
mod values;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::Value;

use super::guard::Caller;
use super::response::{AdminResponse, json, not_allowed, problem, text, with};
use crate::limit::units::Fingerprint;
use crate::plan::admin::AdminRight;
use crate::plan::{LimitIndex, Plan, Upstream};
use crate::shared::Shared;
use crate::store::Unreachable;
use key::KeyRef;
use values::Query;

/// The prefix of all API paths.
pub(super) const PREFIX: &str = "/api/v1/";
/// The maximum number of bytes of a body.
const MAX_BODY: usize = 16 << 10;

/// The response: a status and a value as JSON, or an error.
type ApiResult = Result<(StatusCode, String), ApiError>;

/// Why an API request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ApiError {
    status: StatusCode,
    detail: String,
}

/// The endpoints. Names of limits and keys are as written in the path: see [`decoded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiEndpoint<'p> {
    Status,
    Samples,
    Bans,
    Routes,
    Limits,
    /// The keys of the limit with this name.
    Keys(&'p str),
    Refusals,
    Explain,
    Reload,
    Drain,
    Key(&'p str, &'p str),
    Ban(&'p str, &'p str),
    Grant(&'p str, &'p str),
    Charge(&'p str, &'p str),
    /// A server of the upstream with this name.
    DrainServer(&'p str, &'p str),
}

/// A request to the API.
struct ApiRequest<'a> {
    shared: &'a Shared,
    /// The client.
    caller: Caller,
    headers: &'a HeaderMap,
    /// The query string.
    query: Query<'a>,
    /// The body of a POST; `{}` if it had none.
    body: Value,
}

/// Answers a request with a path under [`PREFIX`].
pub(super) async fn answer(request: Request<Incoming>, caller: Caller, shared: &Shared) -> AdminResponse {
    let (head, body) = request.into_parts();
    let path = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let Some(endpoint) = ApiEndpoint::of(path) else {
        return problem(StatusCode::NOT_FOUND, "unknown API path: `docs/api.md` lists all paths");
    };
    if !endpoint.methods().split(", ").any(|method| method == head.method.as_str()) {
        return not_allowed(endpoint.methods());
    }
    if let Some(refusal) = endpoint.refusal(&head.method, &caller) {
        return nosniff(refusal);
    }
    let body = match head.method {
        Method::POST => read(&head.headers, body).await,
        _ => Ok(Value::Null),
    };
    let said = match body {
        Ok(body) => {
            let (headers, query) = (&head.headers, Query(head.uri.query()));
            endpoint.answer(&head.method, &ApiRequest { shared, caller, headers, query, body }).await
        }
        Err(fault) => Err(fault),
    };
    match said {
        Ok((status, value)) => nosniff(text(status, "application/json", value)),
        Err(fault) => nosniff(problem(fault.status, &fault.detail)),
    }
}

fn nosniff(answer: AdminResponse) -> AdminResponse {
    with(answer, http::header::X_CONTENT_TYPE_OPTIONS, "nosniff")
}

impl<'p> ApiEndpoint<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').collect();
        Some(match *segments.as_slice() {
            ["status"] => Self::Status,
            ["samples"] => Self::Samples,
            ["routes"] => Self::Routes,
            ["bans"] => Self::Bans,
            ["limits"] => Self::Limits,
            ["limits", limit, "keys"] => Self::Keys(limit),
            ["refusals"] => Self::Refusals,
            ["explain"] => Self::Explain,
            ["reload"] => Self::Reload,
            ["drain"] => Self::Drain,
            ["limits", limit, "keys", key] => Self::Key(limit, key),
            ["limits", limit, "keys", key, "ban"] => Self::Ban(limit, key),
            ["limits", limit, "keys", key, "grant"] => Self::Grant(limit, key),
            ["limits", limit, "keys", key, "charge"] => Self::Charge(limit, key),
            ["upstreams", upstream, "servers", server, "drain"] => Self::DrainServer(upstream, server),
            _ => return None,
        })
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Key(..) => "GET, HEAD, DELETE",
            Self::Ban(..) | Self::DrainServer(..) => "POST, DELETE",
            Self::Status
            | Self::Samples
            | Self::Bans
            | Self::Routes
            | Self::Limits
            | Self::Keys(_)
            | Self::Refusals => "GET, HEAD",
            Self::Explain | Self::Reload | Self::Drain | Self::Grant(..) | Self::Charge(..) => "POST",
        }
    }

    /// The response to a client without the right that the request needs.
    fn refusal(self, method: &Method, caller: &Caller) -> Option<AdminResponse> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        caller.refusal(match self {
            Self::Status
            | Self::Samples
            | Self::Bans
            | Self::Routes
            | Self::Limits
            | Self::Keys(_)
            | Self::Refusals
            | Self::Explain => AdminRight::Read,
            Self::Key(..) if reads => AdminRight::Read,
            Self::Key(..)
            | Self::Ban(..)
            | Self::Grant(..)
            | Self::Reload
            | Self::Drain
            | Self::DrainServer(..) => AdminRight::Operate,
            // A name that cannot be decoded is that of no limit.
            Self::Charge(limit, _) => {
                return caller.refusal(AdminRight::Charge(&decoded(limit).unwrap_or_default()));
            }
        })
    }

    async fn answer(self, method: &Method, asked: &ApiRequest<'_>) -> ApiResult {
        match self {
            Self::Status => good(status::get(asked.shared)),
            Self::Samples => history::get(asked.shared, asked.query).and_then(good),
            Self::Bans => bans::get(asked.shared, asked.query).await.and_then(good),
            Self::Routes => good(routes::get(&asked.shared.plan.load())),
            Self::Limits => good(limits::get(asked.shared).await),
            Self::Keys(limit) => top_keys::get(asked.shared, limit, asked.query).await.and_then(good),
            Self::Refusals => refusals::get(asked.shared, asked.query).and_then(good),
            Self::Explain => explain::explain(asked).await.and_then(good),
            Self::Reload => control::reload(asked).await,
            Self::Drain => control::drain(asked),
            Self::Key(limit, key) => {
                let one = KeyRef::find(asked.shared, limit, key)?;
                if *method == Method::DELETE { one.reset(asked).await } else { good(one.look(asked).await?) }
            }
            Self::Ban(limit, key) => {
                let one = KeyRef::find(asked.shared, limit, key)?;
                if *method == Method::DELETE {
                    bans::end(&one, asked).await
                } else {
                    bans::begin(&one, asked).await
                }
            }
            Self::DrainServer(upstream, server) => {
                servers::drain(asked, upstream, server, *method == Method::POST)
            }
            Self::Grant(limit, key) => KeyRef::find(asked.shared, limit, key)?.grant(asked).await,
            Self::Charge(limit, key) => charge::charge(&KeyRef::find(asked.shared, limit, key)?, asked).await,
        }
    }
}

fn good(value: impl Serialize) -> ApiResult {
    Ok((StatusCode::OK, json(&value)))
}

impl From<Unreachable> for ApiError {
    fn from(unreachable: Unreachable) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, unreachable.to_string())
    }
}

/// The id of a key in paths and responses: never shortened, and without information about the key.
fn key_id(key_hash: Fingerprint) -> String {
    format!("id:{:032x}", key_hash.0)
}

impl ApiError {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

/// A segment of a path, or a part of a key, percent-decoded.
fn decoded(segment: &str) -> Result<String, ApiError> {
    let text = percent_decode_str(segment).decode_utf8();
    text.map(|text| text.into_owned())
        .map_err(|_| ApiError::bad("the path is not UTF-8 once it is percent-decoded"))
}

/// The limit of this name, as written in a path.
fn limit_named(plan: &Plan, segment: &str) -> Result<LimitIndex, ApiError> {
    let name = decoded(segment)?;
    plan.limit_named(&name).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, format!("there is no limit `{}`", name.escape_debug()))
    })
}

/// The upstream of this name, and the index of the server with this address, as written in a path.
fn server_named<'p>(plan: &'p Plan, upstream: &str, server: &str) -> Result<(&'p Upstream, usize), ApiError> {
    let (name, address) = (decoded(upstream)?, decoded(server)?);
    let absent = |what: String| ApiError::new(StatusCode::NOT_FOUND, what);
    let upstream = plan.upstreams.iter().find(|upstream| *upstream.name == *name);
    let upstream =
        upstream.ok_or_else(|| absent(format!("there is no upstream `{}`", name.escape_debug())))?;
    let index = upstream.endpoints().iter().position(|endpoint| *endpoint.authority == *address);
    let index = index.ok_or_else(|| {
        absent(format!("upstream `{}` has no server `{}`", upstream.name, address.escape_debug()))
    })?;
    Ok((upstream, index))
}

/// The body of a POST: a JSON object, or empty. No form of a web page can send this content type without permission.
async fn read(headers: &HeaderMap, body: Incoming) -> Result<Value, ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send `content-type: application/json`",
        ));
    }
    let too_large = |error: Box<dyn std::error::Error + Send + Sync>| match error
        .is::<http_body_util::LengthLimitError>(
    ) {
        true => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 KiB"),
        false => ApiError::bad("the body did not come whole"),
    };
    let bytes = Limited::new(body, MAX_BODY).collect().await.map_err(too_large)?.to_bytes();
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_slice(&bytes) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(ApiError::bad("the body is no JSON object")),
        Err(error) => Err(ApiError::bad(format!("the body is not JSON: {error}"))),
    }
}

/// Refuses unknown fields, so that a misspelt one is reported.
fn only(body: &Value, known: &[&str]) -> Result<(), ApiError> {
    let names = body.as_object().into_iter().flatten().map(|(name, _)| name);
    match names.into_iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(ApiError::bad(format!(
            "there is no field `{}`; there is {}",
            name.escape_debug(),
            known.join(", ")
        ))),
    }
}
