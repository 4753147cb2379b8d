//! Why a stream or a connection ends (RFC 9114 §8.1, RFC 9204 §6).

use quinn::VarInt;

/// Why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http3ErrorCode(u32);

impl Http3ErrorCode {
    /// There is no error.
    pub const NO_ERROR: Self = Self(0x100);
    /// The gateway cannot complete it.
    pub const INTERNAL_ERROR: Self = Self(0x102);
    /// A stream that its side may not open, or open twice.
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    /// A stream that the connection needs was closed.
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    /// A frame where it may not be.
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    /// A frame that is malformed or cut.
    pub const FRAME_ERROR: Self = Self(0x106);
    /// The peer causes too much work.
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    /// An id that may not be used so.
    pub const ID_ERROR: Self = Self(0x108);
    /// Settings that are malformed.
    pub const SETTINGS_ERROR: Self = Self(0x109);
    /// The control stream begins with another frame than SETTINGS.
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    /// The request was not looked at.
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    /// The request or its response is given up.
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    /// The stream ended before the request was complete.
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    /// The request is malformed.
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    /// A field section cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    /// An instruction for a dynamic table that there is not.
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    /// An acknowledgement of what was not sent.
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
}

impl From<Http3ErrorCode> for VarInt {
    fn from(Http3ErrorCode(code): Http3ErrorCode) -> Self {
        Self::from_u32(code)
    }
}
