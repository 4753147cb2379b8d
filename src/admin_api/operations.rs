//! The operations of the API: the router answers those of this table, and docs/openapi.json lists them.

use std::any::type_name;

use http::Method;

use super::bans::{BanList, BanRequest};
use super::changes::{ChargeReport, ReloadFailure, ReloadSuccess, ShutdownReport};
use super::explain::{ExplainQuestion, ExplainReport};
use super::fleet::FleetReport;
use super::keys::{KeyList, KeyState, UnitsRequest};
use super::limits::LimitList;
use super::overrides::OverrideRequest;
use super::refusals::RefusalList;
use super::routes::RouteList;
use super::samples::SampleList;
use super::servers::DrainReport;
use super::status::StatusReport;
use super::usage::UsageList;

/// The number of bans in a response.
pub const TOP_BANS: ListLength = ListLength { usual: 100, most: 1_000 };
/// The number of keys in a response.
pub const TOP_KEYS: ListLength = ListLength { usual: 20, most: 100 };
/// The number of consumers in a response.
pub const TOP_CONSUMERS: ListLength = ListLength { usual: 1_000, most: 100_000 };
/// The header with the idempotency key.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The maximum length of an idempotency key, which has visible ASCII characters only.
pub const MAX_IDEMPOTENCY_KEY: usize = 255;
/// The errors of each operation with a body: no JSON object of the request's type, too long, or of another media type.
pub const BODY_ERRORS: [u16; 3] = [400, 413, 415];

/// How many items a list of a response has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLength {
    /// If the request has no `top`.
    pub usual: usize,
    /// The largest `top`.
    pub most: usize,
}

/// A parameter of a request, besides the names in its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiParameter {
    /// `since`: the `seq` of an earlier response.
    Since,
    /// `top`: how many items the list has.
    Top(ListLength),
    /// `by`: the [`KeyOrder`](super::keys::KeyOrder).
    By,
    /// `window`: `current`, `previous`, or the begin of a window.
    Window,
    /// `format`: `json` or `csv`.
    Format,
    /// The header [`IDEMPOTENCY_KEY`].
    IdempotencyKey,
}

/// The right that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededRight {
    /// `read`.
    Read,
    /// `operate`.
    Operate,
    /// `charge:LIMIT`, of the limit in the path.
    Charge,
}

/// A type of the API.
#[derive(Clone, Copy, Debug)]
pub struct ApiType {
    /// Its name in Rust.
    pub name: fn() -> &'static str,
    /// Its schema.
    #[cfg(test)]
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

/// An operation, as the table has it.
#[derive(Clone, Debug)]
pub struct OperationEntry {
    /// What it does.
    pub operation: ApiOperation,
    /// Its method; `GET` stands for `HEAD`, too.
    pub method: Method,
    /// Its path below `/api/v1/`, with at most two names in braces.
    pub path: &'static str,
    /// The right that it needs.
    pub right: NeededRight,
    /// The parameters that it knows.
    pub parameters: &'static [ApiParameter],
    /// The type of its body, if it has one; another operation takes `{}` if it is a `POST`.
    pub request: Option<ApiType>,
    /// Statuses with the types of their bodies, the problem details of [`Self::errors`] left out.
    pub responses: &'static [(u16, &'static [ApiType])],
    /// Statuses with problem details, without 401 and 403, which all have, and [`BODY_ERRORS`], which each `POST` has.
    pub errors: &'static [u16],
    /// What it does, in words.
    #[cfg(test)]
    pub about: &'static str,
}

impl OperationEntry {
    /// The names in the path of a request, if it is a path of this operation: two, of which the rest are empty.
    pub fn names<'p>(&self, path: &'p str) -> Option<[&'p str; 2]> {
        let mut names = [""; 2];
        let mut free = names.iter_mut();
        let (mut words, mut segments) = (self.path.split('/'), path.split('/'));
        loop {
            match (words.next(), segments.next()) {
                (Some(word), Some(segment)) if word.starts_with('{') => *free.next()? = segment,
                (Some(word), Some(segment)) if word == segment => {}
                (None, None) => return Some(names),
                _ => return None,
            }
        }
    }

    /// Whether its row has a response of this status: with a value of the type, or with problem details.
    pub fn has_response(&self, status: u16, value: Option<&str>) -> bool {
        let has_type = |(of, types): &(u16, &[ApiType])| {
            *of == status && types.iter().any(|one| Some((one.name)()) == value)
        };
        let is_error = || self.errors.contains(&status) || self.has_body() && BODY_ERRORS.contains(&status);
        if value.is_some() { self.responses.iter().any(has_type) } else { is_error() }
    }

    /// Whether its requests have a body: a JSON object.
    pub fn has_body(&self) -> bool {
        self.method == Method::POST || self.method == Method::PUT
    }
}

macro_rules! api_type {
    () => {
        None
    };
    (some $type:ty) => {
        Some(api_type!($type))
    };
    ($type:ty) => {
        ApiType {
            name: type_name::<$type>,
            #[cfg(test)]
            schema: |schemas| schemas.subschema_for::<$type>(),
        }
    };
}

/// Of each operation: method, path, right, parameters, the type of its body, statuses with the types of their values, and
/// statuses with problem details.
macro_rules! operations {
    ($(
        $(#[doc = $about:literal])*
        $name:ident: $method:ident $path:literal, $right:ident, [$($parameter:expr),*] $(takes $request:ty)?
            => $($status:literal $($value:ident)|+),+; [$($error:literal),*]
    )*) => {
        /// What the API does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ApiOperation {
            $($(#[doc = $about])* $name,)*
        }

        /// All operations. Of one path, they stand one after another.
        pub static OPERATIONS: &[OperationEntry] = &[$(OperationEntry {
            operation: ApiOperation::$name,
            method: Method::$method,
            path: $path,
            right: NeededRight::$right,
            parameters: &[$($parameter),*],
            request: api_type!($(some $request)?),
            responses: &[$(($status, &[$(api_type!($value)),+])),+],
            errors: &[$($error),*],
            #[cfg(test)]
            about: concat!($($about),*),
        }),*];
    };
}

operations! {
    /// The state of the process: version, configuration, last reload, store, problems.
    Status: GET "status", Read, [] => 200 StatusReport; []
    /// The gateways that share the store.
    Fleet: GET "fleet", Read, [] => 200 FleetReport; [503]
    /// The last 5 minutes, second by second.
    Samples: GET "samples", Read, [ApiParameter::Since] => 200 SampleList; [400]
    /// The bans in force, also those in shadow.
    Bans: GET "bans", Read, [ApiParameter::Top(TOP_BANS)] => 200 BanList; [400]
    /// The routes, their conditions and their limits.
    Routes: GET "routes", Read, [] => 200 RouteList; []
    /// The limits, and their verdicts in the last minute and hour.
    Limits: GET "limits", Read, [] => 200 LimitList; []
    /// The keys of a limit with the most requests.
    Keys: GET "limits/{limit}/keys", Read, [ApiParameter::Top(TOP_KEYS), ApiParameter::By]
        => 200 KeyList; [400, 404]
    /// The units that each consumer was charged in a window, of a limit with `usage = true`.
    Usage: GET "limits/{limit}/usage", Read,
        [ApiParameter::Window, ApiParameter::Format, ApiParameter::Top(TOP_CONSUMERS)]
        => 200 UsageList; [400, 404, 503]
    /// Reads one key.
    Key: GET "limits/{limit}/keys/{key}", Read, [] => 200 KeyState; [400, 404, 503]
    /// Resets the counter of a key.
    ResetKey: DELETE "limits/{limit}/keys/{key}", Operate, [] => 200 KeyState; [400, 404, 409, 503]
    /// Bans a key for a time.
    Ban: POST "limits/{limit}/keys/{key}/ban", Operate, [] takes BanRequest => 200 KeyState; [404, 409, 503]
    /// Lifts the ban of a key.
    LiftBan: DELETE "limits/{limit}/keys/{key}/ban", Operate, [] => 200 KeyState; [400, 404, 503]
    /// Sets other numbers for a key, over those of its tier.
    Override: PUT "limits/{limit}/keys/{key}/override", Operate, [] takes OverrideRequest
        => 200 KeyState; [404, 409, 503]
    /// Takes the override of a key back.
    EndOverride: DELETE "limits/{limit}/keys/{key}/override", Operate, [] => 200 KeyState; [400, 404, 409, 503]
    /// Gives units back to a key.
    Grant: POST "limits/{limit}/keys/{key}/grant", Operate, [] takes UnitsRequest
        => 200 KeyState; [404, 409, 503]
    /// Charges units to a key, once for each idempotency key. A token without `read` gets less.
    Charge: POST "limits/{limit}/keys/{key}/charge", Charge, [ApiParameter::IdempotencyKey] takes UnitsRequest
        => 200 KeyState | ChargeReport; [404, 409, 422, 503]
    /// Drains a server of an upstream: it gets no new requests.
    DrainServer: POST "upstreams/{upstream}/servers/{server}/drain", Operate, [] => 200 DrainReport; [404]
    /// Lets a drained server get new requests again.
    UndrainServer: DELETE "upstreams/{upstream}/servers/{server}/drain", Operate, []
        => 200 DrainReport; [400, 404]
    /// Recently refused and failed requests, with the reasons.
    Refusals: GET "refusals", Read, [ApiParameter::Since] => 200 RefusalList; [400]
    /// The outcome of a request, without charging it.
    Explain: POST "explain", Read, [] takes ExplainQuestion => 200 ExplainReport; [503]
    /// Loads the configuration file anew, like SIGHUP.
    Reload: POST "reload", Operate, [] => 200 ReloadSuccess, 422 ReloadFailure; [504]
    /// Ends the process once its requests have ended, like SIGTERM.
    Drain: POST "drain", Operate, [] => 202 ShutdownReport; []
}
