//! Compresses a response body piece by piece.
//!
//! What an encoder keeps has a bound: windows of 128 KiB (gzip: 32 KiB), and so many encoders a worker.

use std::cell::Cell;
use std::fmt::{self, Debug, Formatter};
use std::task::{Context, Poll};
use std::time::Duration;

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderDestroyInstance, BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use flate2::{Compress, Compression as GzipLevel, FlushCompress, Status};
use tokio::time::Instant;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use crate::clock::{Deadline, now};
use crate::plan::compression::Encoding;

/// Encoders of a worker at one time. Further responses go on as they are.
const MAX_ENCODERS: usize = 128;
/// Bytes that are compressed before the worker serves others.
const TURN: usize = 64 << 10;
/// Bytes of output that are produced at once.
const PIECE: usize = 8 << 10;
/// How long compressed bytes are held back when the backend pauses. Shorter pauses are those between two packets.
const FLUSH_AFTER: Duration = Duration::from_millis(10);

const GZIP_LEVEL: u32 = 4;
const BROTLI_QUALITY: u32 = 3;
const ZSTD_LEVEL: i32 = 3;
/// The binary logarithm of the windows of Brotli and zstd.
const WINDOW: u32 = 17;

thread_local! {
    /// The encoders of this worker.
    static ENCODERS: Cell<usize> = const { Cell::new(0) };
}

/// The encoder cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EncoderFailed;

/// An encoder in the middle of a body.
#[derive(Debug)]
pub(super) struct BodyEncoder {
    coder: Coder,
    /// Bytes that the encoder may still take in this turn.
    turn: usize,
    /// The encoder has taken bytes since it was flushed last.
    holds_bytes: bool,
    /// Flushes as soon as the backend pauses: an event stream.
    is_eager: bool,
    /// When bytes that are held back are sent, once the backend pauses.
    flush_at: Option<Instant>,
    timer: Deadline,
    bytes_in: u64,
    bytes_out: u64,
    /// The bytes of the body whose output is complete: a client that has the output can decode these.
    flushed: u64,
    /// Those whose output has been written to the client.
    delivered: u64,
}

/// What the encoder does with the bytes that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Produces output when it sees fit.
    Take,
    /// Produces all output, so that the client can decode what there is.
    Flush,
    /// Ends the body.
    Finish,
}

enum Coder {
    Gzip(Compress),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

impl BodyEncoder {
    /// An encoder of a body of this length, if that is known. `None` if the worker has too many already, or there is no
    /// memory for it.
    pub(super) fn new(encoding: Encoding, length: Option<u64>, is_eager: bool) -> Option<Box<Self>> {
        if ENCODERS.get() >= MAX_ENCODERS {
            return None;
        }
        let coder = Coder::new(encoding, length)?;
        ENCODERS.set(ENCODERS.get() + 1);
        Some(Box::new(Self {
            coder,
            turn: TURN,
            holds_bytes: false,
            is_eager,
            flush_at: None,
            timer: Deadline::default(),
            bytes_in: 0,
            bytes_out: 0,
            flushed: 0,
            delivered: 0,
        }))
    }

    /// Compresses these bytes; `sink` gets the output.
    pub(super) fn take(&mut self, bytes: &[u8], sink: impl FnMut(&[u8])) -> Result<(), EncoderFailed> {
        self.turn = self.turn.saturating_sub(bytes.len());
        self.bytes_in += bytes.len() as u64;
        self.holds_bytes = true;
        self.step(bytes, Step::Take, sink)
    }

    /// Produces all output that the client needs to decode the bytes taken so far.
    pub(super) fn flush(&mut self, sink: impl FnMut(&[u8])) -> Result<(), EncoderFailed> {
        self.flush_at = None;
        if std::mem::take(&mut self.holds_bytes) {
            self.step(&[], Step::Flush, sink)?;
            self.flushed = self.bytes_in;
        }
        Ok(())
    }

    /// Ends the body.
    pub(super) fn finish(&mut self, sink: impl FnMut(&[u8])) -> Result<(), EncoderFailed> {
        self.holds_bytes = false;
        self.step(&[], Step::Finish, sink)
    }

    /// Ready where a flush is due, since the backend pauses.
    pub(super) fn poll_flush_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.holds_bytes {
            return Poll::Pending;
        }
        if self.is_eager {
            return Poll::Ready(());
        }
        let at = *self.flush_at.get_or_insert_with(|| now() + FLUSH_AFTER);
        self.timer.poll(context, at)
    }

    /// Whether others on this worker are served before more is compressed.
    pub(super) fn has_had_its_turn(&self) -> bool {
        self.turn == 0
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// Bytes of the body, and bytes of the compressed one, so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.bytes_in, self.bytes_out)
    }

    /// All output so far has been written to the client.
    pub(super) fn mark_written(&mut self) {
        self.delivered = self.flushed;
    }

    /// Bytes of the body, before compression, that the client can decode.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    fn step(&mut self, bytes: &[u8], step: Step, mut sink: impl FnMut(&[u8])) -> Result<(), EncoderFailed> {
        let bytes_out = &mut self.bytes_out;
        self.coder.step(bytes, step, |output| {
            *bytes_out += output.len() as u64;
            sink(output);
        })
    }
}

impl Drop for BodyEncoder {
    fn drop(&mut self) {
        ENCODERS.set(ENCODERS.get().saturating_sub(1));
    }
}

impl Coder {
    fn new(encoding: Encoding, length: Option<u64>) -> Option<Self> {
        Some(match encoding {
            Encoding::Gzip => Self::Gzip(Compress::new_gzip(GzipLevel::new(GZIP_LEVEL), 15)),
            Encoding::Brotli => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, BROTLI_QUALITY);
                state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, WINDOW);
                Self::Brotli(state)
            }
            Encoding::Zstd => {
                let mut context = CCtx::try_create()?;
                context.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL)).ok()?;
                context.set_parameter(CParameter::WindowLog(WINDOW)).ok()?;
                // A short body takes less memory.
                context.set_pledged_src_size(length).ok()?;
                Self::Zstd(context)
            }
        })
    }

    fn step(&mut self, bytes: &[u8], step: Step, mut sink: impl FnMut(&[u8])) -> Result<(), EncoderFailed> {
        let mut output = [0; PIECE];
        let mut rest = bytes;
        loop {
            let (read, written, is_done) = match self {
                Self::Gzip(compress) => gzip_step(compress, rest, step, &mut output)?,
                Self::Brotli(state) => brotli_step(state, rest, step, &mut output)?,
                Self::Zstd(context) => zstd_step(context, rest, step, &mut output)?,
            };
            rest = rest.get(read..).unwrap_or_default();
            if let Some(output @ [_, ..]) = output.get(..written) {
                sink(output);
            }
            if is_done {
                return Ok(());
            }
            if read == 0 && written == 0 {
                return Err(EncoderFailed);
            }
        }
    }
}

impl Drop for Coder {
    fn drop(&mut self) {
        if let Self::Brotli(state) = self {
            BrotliEncoderDestroyInstance(state);
        }
    }
}

impl Debug for Coder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}

/// How far a step came: bytes read, bytes written, and whether it is complete.
type Progress = (usize, usize, bool);

fn gzip_step(
    compress: &mut Compress,
    input: &[u8],
    step: Step,
    output: &mut [u8],
) -> Result<Progress, EncoderFailed> {
    let (before_in, before_out) = (compress.total_in(), compress.total_out());
    let flush = match step {
        Step::Take => FlushCompress::None,
        Step::Flush => FlushCompress::Sync,
        Step::Finish => FlushCompress::Finish,
    };
    let status = compress.compress(input, output, flush).map_err(|_| EncoderFailed)?;
    let difference = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(0);
    let (read, written) =
        (difference(compress.total_in(), before_in), difference(compress.total_out(), before_out));
    let is_done = match step {
        // What does not fit is kept, and goes out with the next step.
        Step::Take => read == input.len(),
        Step::Flush => written < output.len(),
        Step::Finish => status == Status::StreamEnd,
    };
    Ok((read, written, is_done))
}

fn brotli_step(
    state: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    step: Step,
    output: &mut [u8],
) -> Result<Progress, EncoderFailed> {
    let operation = match step {
        Step::Take => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Step::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Step::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut read, mut room, mut written) = (input.len(), 0, output.len(), 0);
    let is_sound = state.compress_stream(
        operation,
        &mut left,
        input,
        &mut read,
        &mut room,
        output,
        &mut written,
        &mut None,
        &mut |_, _, _, _| (),
    );
    let is_done = left == 0
        && match step {
            Step::Finish => state.is_finished(),
            Step::Take | Step::Flush => !state.has_more_output(),
        };
    if is_sound { Ok((read, written, is_done)) } else { Err(EncoderFailed) }
}

fn zstd_step(
    context: &mut CCtx<'static>,
    input: &[u8],
    step: Step,
    output: &mut [u8],
) -> Result<Progress, EncoderFailed> {
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
    let left = match step {
        Step::Take => context.compress_stream(&mut to, &mut from).map(|_| input.len() - from.pos()),
        Step::Flush => context.flush_stream(&mut to),
        Step::Finish => context.end_stream(&mut to),
    };
    Ok((from.pos(), to.pos(), left.map_err(|_| EncoderFailed)? == 0))
}

#[cfg(test)]
mod tests;
