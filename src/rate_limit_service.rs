//! The messages of Envoy's rate limit service, version 3, and how gRPC frames a message.
//!
//! Field numbers are those of `envoy/service/ratelimit/v3/rls.proto` and `envoy/extensions/common/ratelimit/v3`. Texts
//! of requests are bytes here: Envoy sends the values of headers as they are, and a call that is refused because they
//! are not UTF-8 would let the request pass.

use prost::Message;

/// The path of the only method.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The path of the health check (`grpc.health.v1`).
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// What Envoy asks.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimitRequest {
    /// Names the configuration that the descriptors are for.
    #[prost(bytes = "vec", tag = "1")]
    pub domain: Vec<u8>,
    /// Each is limited by itself; all admit, or none.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// Units of each descriptor that has none of its own. 0 or absent: 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// A descriptor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimitDescriptor {
    /// At least one.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<RateLimitDescriptorEntry>,
    /// Numbers in place of those of the service.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// Its own units. Present and 0: it is asked, and not charged.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimitDescriptorEntry {
    /// Its name.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Its value; empty if it is absent.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Numbers that the caller sends.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RateLimitOverride {
    /// Units per `unit`.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// A unit of `envoy.type.v3.RateLimitUnit`: 1 second, 2 minute, 3 hour, 4 day, 5 month, 6 year, 7 week.
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

/// `google.protobuf.UInt64Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// The answer to Envoy.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimitResponse {
    /// [`RateLimitCode`] of the call.
    #[prost(enumeration = "RateLimitCode", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Fields that Envoy adds to the response for its client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// The body of a refusal.
    #[prost(bytes = "vec", tag = "5")]
    pub raw_body: Vec<u8>,
}

/// Admit or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum RateLimitCode {
    /// Not said.
    Unknown = 0,
    /// Admit.
    Ok = 1,
    /// Refuse.
    OverLimit = 2,
}

/// The numbers of one descriptor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DescriptorStatus {
    /// [`RateLimitCode`] of the descriptor.
    #[prost(enumeration = "RateLimitCode", tag = "1")]
    pub code: i32,
    /// The limit, if its period is one of Envoy's units.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    /// Units that are left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// The time until more is left.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit, as Envoy knows it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CurrentLimit {
    /// Units per `unit`.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// A unit of `RateLimitResponse.RateLimit.Unit`.
    #[prost(int32, tag = "2")]
    pub unit: i32,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, 0 to 999,999,999.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A field of a response.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HeaderValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What a client of gRPC asks: `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {
    /// The service; empty: the gateway as a whole.
    #[prost(bytes = "vec", tag = "1")]
    pub service: Vec<u8>,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// 1: it serves; 2: it does not.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// Units of `RateLimitResponse.RateLimit.Unit` with their seconds; months and years are of a calendar.
const UNITS: [(u64, i32); 5] = [(1, 1), (60, 2), (3_600, 3), (86_400, 4), (604_800, 7)];

/// The unit of so many seconds, if there is one.
pub fn unit_of(seconds: u64) -> Option<i32> {
    UNITS.iter().find(|(span, _)| *span == seconds).map(|(_, unit)| *unit)
}

/// The seconds of a unit of `RateLimitUnit`; of a month 30 days, of a year 365.
pub fn seconds_of(unit: i32) -> Option<u64> {
    match unit {
        5 => Some(30 * 86_400),
        6 => Some(365 * 86_400),
        unit => UNITS.iter().find(|(_, known)| *known == unit).map(|(span, _)| *span),
    }
}

/// Why bytes are not one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// It is compressed, although the call does not say how.
    #[error("the message is compressed")]
    Compressed,
    /// There are other bytes than those of one message.
    #[error("the call has not one whole message")]
    Framing,
    /// The message is malformed.
    #[error("the message is malformed")]
    Malformed,
}

/// The message of a call with this body.
///
/// # Errors
///
/// See [`MessageFault`].
pub fn unframed<M: Message + Default>(body: &[u8]) -> Result<M, MessageFault> {
    let (prefix, message) = body.split_first_chunk::<PREFIX>().ok_or(MessageFault::Framing)?;
    let [flag, a, b, c, d] = *prefix;
    if usize::try_from(u32::from_be_bytes([a, b, c, d])) != Ok(message.len()) {
        return Err(MessageFault::Framing);
    }
    match flag {
        0 => M::decode(message).map_err(|_| MessageFault::Malformed),
        1 => Err(MessageFault::Compressed),
        _ => Err(MessageFault::Framing),
    }
}

/// Writes a message with its prefix.
pub fn framed(message: &impl Message, out: &mut Vec<u8>) {
    out.push(0);
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    // A `Vec` has room for any message.
    message.encode_raw(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RateLimitRequest {
        let entry =
            |key: &str, value: &[u8]| RateLimitDescriptorEntry { key: key.into(), value: value.into() };
        RateLimitRequest {
            domain: b"shop".to_vec(),
            descriptors: vec![RateLimitDescriptor {
                entries: vec![entry("api_key", b"\xff\xfek"), entry("source_cluster", b"")],
                limit: Some(RateLimitOverride { requests_per_unit: 5, unit: 3 }),
                hits_addend: Some(UInt64Value { value: 0 }),
            }],
            hits_addend: 0,
        }
    }

    #[test]
    fn a_message_comes_back_as_it_was_with_bytes_that_are_no_text() {
        let mut bytes = Vec::new();
        framed(&request(), &mut bytes);
        assert_eq!(unframed::<RateLimitRequest>(&bytes), Ok(request()));
    }

    #[test]
    fn a_present_zero_differs_from_an_absent_number() {
        // The bytes of Envoy 1.40 for `number: 0`, and for none.
        let of = |bytes: &[u8]| RateLimitDescriptor::decode(bytes).unwrap().hits_addend;
        assert_eq!(of(b"\x1a\x00"), Some(UInt64Value { value: 0 }));
        assert_eq!(of(b"\x1a\x02\x08\x0a"), Some(UInt64Value { value: 10 }));
        assert_eq!(of(b""), None);
    }

    #[test]
    fn a_message_that_is_cut_anywhere_is_none() {
        let mut bytes = Vec::new();
        framed(&request(), &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(
                unframed::<RateLimitRequest>(&bytes[..length]),
                Err(MessageFault::Framing),
                "{length}"
            );
        }
        bytes.push(0);
        assert_eq!(unframed::<RateLimitRequest>(&bytes), Err(MessageFault::Framing));
    }
}
