//! A response body that is compressed on its way.

use std::task::Context;

use bytes::{Buf as _, BytesMut};

use super::{BodyFraming, Download, PART, ResponseRest};
use crate::http1::chunks::{MalformedChunk, encode};
use crate::proxy::forward::body_encoder::BodyEncoder;
use crate::proxy::record::settlement::Settlement;

impl Download {
    /// Compresses the body.
    pub(in crate::proxy::forward) fn compress(&mut self, encoder: Box<BodyEncoder>) {
        if let ResponseRest::Length(length) = self.rest {
            self.rest = ResponseRest::Compressed(length);
        }
        self.encoder = Some(encoder);
    }

    /// Bytes of the backend's body, and bytes of the compressed one, so far. `None`: it is not compressed.
    pub(in crate::proxy::forward) fn compressed(&self) -> Option<(u64, u64)> {
        self.encoder.as_ref().map(|encoder| encoder.totals())
    }

    /// Bytes of the backend's body that the client has got; of a compressed body those that it can decode.
    pub(in crate::proxy::forward) fn delivered(&self) -> u64 {
        self.encoder.as_ref().map_or(self.sent, |encoder| encoder.delivered())
    }

    /// All compressed bytes so far have been written.
    #[inline]
    pub(super) fn mark_written(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.mark_written();
        }
    }

    /// Compresses what was received and frames the output for the client.
    pub(super) fn compress_received(
        &mut self,
        inbound: &mut BytesMut,
        out: &mut BytesMut,
        settlement: &mut Option<Box<Settlement>>,
    ) -> Result<(), MalformedChunk> {
        let framing = self.framing;
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        while !inbound.is_empty() && out.len() < PART && !encoder.has_had_its_turn() {
            let (consumed, data) = match &mut self.rest {
                ResponseRest::Compressed(left @ 1..) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(inbound.len());
                    *left -= length as u64;
                    (length, &inbound[..length])
                }
                ResponseRest::UntilClose => (inbound.len(), &inbound[..]),
                ResponseRest::Chunked(decoder) if !decoder.is_done() => match decoder.decode(inbound) {
                    Ok(decoded) => decoded,
                    Err(malformed) => {
                        // The client gets what came before.
                        encoder.flush(|output| frame(framing, output, out)).map_err(|_| MalformedChunk)?;
                        return Err(malformed);
                    }
                },
                _ => break,
            };
            if let Some(settlement) = settlement {
                settlement.body(data);
            }
            if !data.is_empty() {
                encoder.take(data, |output| frame(framing, output, out)).map_err(|_| MalformedChunk)?;
            }
            inbound.advance(consumed);
        }
        let trailers = match &self.rest {
            ResponseRest::Compressed(0) => Vec::new(),
            ResponseRest::Chunked(decoder) if decoder.is_done() => {
                if self.keeps_trailers {
                    decoder.raw_trailers().clone_into(&mut self.raw_trailers);
                }
                decoder.trailers(&self.trailers)
            }
            ResponseRest::UntilClose if inbound.is_empty() && self.ending.is_some() => {
                self.ending.take().unwrap_or_default()
            }
            _ => return Ok(()),
        };
        encoder.finish(|output| frame(framing, output, out)).map_err(|_| MalformedChunk)?;
        match framing {
            BodyFraming::Frames => {
                self.rest = ResponseRest::Nothing;
                self.ending = Some(trailers);
            }
            BodyFraming::Chunked | BodyFraming::Plain => self.end(&trailers, out),
        }
        Ok(())
    }

    /// Sends what the encoder holds back, if that is due because the backend pauses. Returns whether it did.
    pub(super) fn flush_compressed(&mut self, context: &mut Context<'_>, out: &mut BytesMut) -> bool {
        let framing = self.framing;
        let Some(encoder) = &mut self.encoder else { return false };
        // A body whose worker serves others meanwhile does not pause.
        if encoder.has_had_its_turn() || encoder.poll_flush_due(context).is_pending() {
            return false;
        }
        // A failed encoder fails at the next step, too.
        encoder.flush(|output| frame(framing, output, out)).is_ok()
    }
}

fn frame(framing: BodyFraming, output: &[u8], out: &mut BytesMut) {
    match framing {
        BodyFraming::Chunked => encode(output, out),
        BodyFraming::Plain | BodyFraming::Frames => out.extend_from_slice(output),
    }
}
