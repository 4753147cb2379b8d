//! `/api/v1/`: the state of the gateway, and changes to it while it runs. `docs/api.md` describes the responses.

mod bans;
mod certificates;
mod charge;
mod control;
mod explain;
mod fleet;
mod history;
mod key;
mod limits;
mod override_report;
mod overrides;
mod policies;
mod problems;
mod refusals;
mod routes;
mod servers;
mod status;
mod top_keys;
mod usage;
mod values;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::guard::Caller;
use super::response::{AdminResponse, json, not_allowed, problem, text, with};
use crate::admin_api::operations::{ApiOperation, NeededRight, OPERATIONS, OperationEntry};
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

/// The response, or an error.
type ApiResult = Result<ApiAnswer, ApiError>;

/// A response that is no error.
#[derive(Clone, Debug)]
struct ApiAnswer {
    status: StatusCode,
    /// The name of the value's type.
    of_type: &'static str,
    /// Of `text`.
    media_type: &'static str,
    /// The value.
    text: String,
}

/// Why an API request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ApiError {
    status: StatusCode,
    detail: String,
}

/// A request to the API.
struct ApiRequest<'a> {
    shared: &'a Shared,
    /// The client.
    caller: Caller,
    headers: &'a HeaderMap,
    /// The query string.
    query: Query<'a>,
    /// The body of a POST or a PUT; `{}` if it had none.
    body: Value,
}

/// Answers a request with a path under [`PREFIX`].
pub(super) async fn answer(request: Request<Incoming>, caller: Caller, shared: &Shared) -> AdminResponse {
    let (head, body) = request.into_parts();
    let path = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let at_path: Vec<_> = OPERATIONS.iter().filter_map(|entry| Some((entry, entry.names(path)?))).collect();
    if at_path.is_empty() {
        return problem(StatusCode::NOT_FOUND, "unknown API path: `docs/api.md` lists all paths");
    }
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    let Some((entry, names)) = at_path.iter().find(|(entry, _)| entry.method == *method) else {
        let allowed = at_path.iter().map(|(entry, _)| match entry.method {
            Method::GET => "GET, HEAD",
            ref method => method.as_str(),
        });
        return not_allowed(&allowed.collect::<Vec<_>>().join(", "));
    };
    if let Some(refusal) = refusal(entry, names, &caller) {
        return nosniff(refusal);
    }
    let body = match entry.has_body() {
        true => read(&head.headers, body).await,
        false => Ok(Value::Null),
    };
    let answered = match body {
        Ok(body) => {
            let (headers, query) = (&head.headers, Query(head.uri.query()));
            answer_one(entry.operation, *names, &ApiRequest { shared, caller, headers, query, body }).await
        }
        Err(fault) => Err(fault),
    };
    match answered {
        Ok(ApiAnswer { status, of_type, media_type, text: value }) => {
            debug_assert!(
                entry.has_response(status.as_u16(), Some(of_type)),
                "{entry:?}: {status} {of_type}"
            );
            nosniff(text(status, media_type, value))
        }
        Err(ApiError { status, detail }) => {
            debug_assert!(entry.has_response(status.as_u16(), None), "{entry:?}: {status} {detail}");
            nosniff(problem(status, &detail))
        }
    }
}

fn nosniff(answer: AdminResponse) -> AdminResponse {
    with(answer, http::header::X_CONTENT_TYPE_OPTIONS, "nosniff")
}

/// The response to a client without the right that the request needs.
fn refusal(entry: &OperationEntry, [limit, _]: &[&str; 2], caller: &Caller) -> Option<AdminResponse> {
    match entry.right {
        NeededRight::Read => caller.refusal(AdminRight::Read),
        NeededRight::Operate => caller.refusal(AdminRight::Operate),
        // A name that cannot be decoded is that of no limit.
        NeededRight::Charge => caller.refusal(AdminRight::Charge(&decoded(limit).unwrap_or_default())),
    }
}

/// Names of limits, keys and servers are as written in the path: see [`decoded`].
async fn answer_one(
    operation: ApiOperation,
    [first, second]: [&str; 2],
    asked: &ApiRequest<'_>,
) -> ApiResult {
    let (shared, query) = (asked.shared, asked.query);
    let key = || KeyRef::find(shared, first, second);
    match operation {
        ApiOperation::Status => good(status::get(shared).await),
        ApiOperation::Fleet => good(fleet::get(shared).await?),
        ApiOperation::Samples => good(history::get(shared, query)?),
        ApiOperation::Bans => good(bans::get(shared, query).await?),
        ApiOperation::Routes => good(routes::get(&shared.plan.load())),
        ApiOperation::Limits => good(limits::get(shared).await),
        ApiOperation::Keys => good(top_keys::get(shared, first, query).await?),
        ApiOperation::Usage => usage::get(asked, first).await,
        ApiOperation::Refusals => good(refusals::get(shared, query)?),
        ApiOperation::Explain => good(explain::explain(asked).await?),
        ApiOperation::Reload => control::reload(asked).await,
        ApiOperation::Drain => control::drain(asked),
        ApiOperation::Key => good(key()?.look(asked).await?),
        ApiOperation::ResetKey => key()?.reset(asked).await,
        ApiOperation::Ban => bans::begin(&key()?, asked).await,
        ApiOperation::LiftBan => bans::end(&key()?, asked).await,
        ApiOperation::Override => overrides::set(&key()?, asked).await,
        ApiOperation::EndOverride => overrides::remove(&key()?, asked).await,
        ApiOperation::Grant => key()?.grant(asked).await,
        ApiOperation::Charge => charge::charge(&key()?, asked).await,
        ApiOperation::DrainServer => servers::drain(asked, first, second, true),
        ApiOperation::UndrainServer => servers::drain(asked, first, second, false),
    }
}

fn good<T: Serialize>(value: T) -> ApiResult {
    Ok(ApiAnswer::new(StatusCode::OK, &value))
}

impl ApiAnswer {
    fn new<T: Serialize>(status: StatusCode, value: &T) -> Self {
        let (of_type, media_type) = (std::any::type_name::<T>(), "application/json");
        Self { status, of_type, media_type, text: json(value) }
    }

    /// A table that says what a value of this type says.
    fn csv<T>(text: String) -> Self {
        let (of_type, media_type) = (std::any::type_name::<T>(), "text/csv; charset=utf-8; header=present");
        Self { status: StatusCode::OK, of_type, media_type, text }
    }
}

impl ApiRequest<'_> {
    /// The body as this type. `help` tells a client whose body is not what its fields hold.
    fn body<T: DeserializeOwned>(&self, help: &str) -> Result<T, ApiError> {
        T::deserialize(&self.body).map_err(|fault| ApiError::bad(format!("{fault}: {help}")))
    }
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

/// The owner with this id, without the id's prefix.
fn key_hash(digits: &str) -> Result<Fingerprint, ApiError> {
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_id);
    number.map(Fingerprint).ok_or_else(|| ApiError::bad("an id is `id:` and 32 hexadecimal digits"))
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

/// The body of a POST or a PUT: a JSON object, or empty. No form of a web page can send this content type without permission.
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
