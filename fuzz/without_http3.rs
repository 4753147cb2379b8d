//! The targets of HTTP/3, in a build without it: they assert nothing.

pub(crate) fn http3_stream(_: &[u8]) {}

pub(crate) fn quic_message(_: &[u8]) {}
