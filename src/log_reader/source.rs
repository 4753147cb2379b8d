//! The bytes of a log: of a file or of standard input, decompressed where they begin as compressed data does.

use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::options::LogInput;
use super::problems::LogFault;

/// The binary logarithm of the largest window of zstd: 128 MiB.
const ZSTD_WINDOW: u32 = 27;
/// Compressed bytes read at once.
const PIECE: usize = 64 << 10;
/// The longest wait for bytes of a stream: 100 ms.
const STREAM_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What is known of an input before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InputKind {
    /// The length of a regular file; `None`: a stream, which can be read only once.
    pub(super) length: Option<u64>,
}

impl InputKind {
    /// # Errors
    ///
    /// There is no such file, or it is a directory.
    pub(super) fn of(input: &LogInput) -> Result<Self, LogFault> {
        let LogInput::File(path) = input else { return Ok(Self { length: None }) };
        let shown = path.display();
        let metadata = std::fs::metadata(path).map_err(|fault| {
            LogFault::new(format!("cannot open `{shown}`: {fault}"), "check the path and its permissions")
        })?;
        if metadata.is_dir() {
            return Err(LogFault::new(
                format!("`{shown}` is a directory"),
                format!("name its files: `{shown}/*`"),
            ));
        }
        Ok(Self { length: metadata.is_file().then_some(metadata.len()) })
    }
}

/// Opens an input. A file is read up to the length that it had at first. `count` is increased by the bytes that are
/// read of it. A read of a stream without new bytes fails with `WouldBlock` after a short wait, and may be repeated.
///
/// # Errors
///
/// It cannot be opened or read.
pub(super) fn open(
    input: &LogInput,
    kind: InputKind,
    count: Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + Send>> {
    let raw: Box<dyn Read + Send> = match (input, kind.length) {
        // A descriptor of its own: bytes in the buffer of `io::stdin` would be unknown to `poll`.
        (LogInput::Stdin, _) => Box::new(StreamRead(io::stdin().as_fd().try_clone_to_owned()?.into())),
        (LogInput::File(path), Some(length)) => Box::new(File::open(path)?.take(length)),
        (LogInput::File(path), None) => Box::new(StreamRead(File::open(path)?)),
    };
    Ok(Box::new(Decompressed::new(CountedRead { inner: raw, count })))
}

/// Decompresses data that begins with the magic bytes of gzip or zstd; other data is returned as it is.
enum Decompressed<R> {
    /// The magic bytes are not complete: the bytes so far, and their number.
    Begins(Option<R>, [u8; 4], usize),
    Known(Box<dyn Read + Send>),
}

impl<R: Read + Send + 'static> Decompressed<R> {
    const fn new(raw: R) -> Self {
        Self::Begins(Some(raw), [0; 4], 0)
    }
}

impl<R: Read + Send + 'static> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Self::Known(source) => return source.read(buffer),
                Self::Begins(raw, magic, length) => {
                    let Some(source) = raw else { return Ok(0) };
                    if let Some(rest) = magic.get_mut(*length..).filter(|rest| !rest.is_empty()) {
                        let read = source.read(rest)?;
                        *length += read;
                        if read > 0 {
                            continue;
                        }
                    }
                    let Some(source) = raw.take() else { return Ok(0) };
                    *self =
                        Self::Known(decoder(*magic, Cursor::new(*magic).take(*length as u64).chain(source))?);
                }
            }
        }
    }
}

fn decoder(magic: [u8; 4], whole: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    Ok(match magic {
        [0x1f, 0x8b, 8, _] => Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(PIECE, whole))),
        // The second form is a frame that is skipped, with which some tools begin.
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(ZstdRead::new(whole)?),
        _ => Box::new(whole),
    })
}

/// A stream, whose reader is not held up while no bytes arrive.
struct StreamRead(File);

impl Read for StreamRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&STREAM_WAIT))? {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => self.0.read(buffer),
        }
    }
}

/// Counts what is read.
struct CountedRead<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Decompresses frames of zstd, one after the other.
struct ZstdRead<R> {
    inner: R,
    context: DCtx<'static>,
    input: Box<[u8]>,
    at: usize,
    end: usize,
    /// A frame has begun and not ended.
    is_inside: bool,
}

impl<R: Read> ZstdRead<R> {
    fn new(inner: R) -> io::Result<Self> {
        let mut context = DCtx::try_create().ok_or(ErrorKind::OutOfMemory)?;
        context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW)).map_err(damaged)?;
        Ok(Self { inner, context, input: vec![0; PIECE].into(), at: 0, end: 0, is_inside: false })
    }
}

fn damaged(code: usize) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, zstd_safe::get_error_name(code))
}

impl<R: Read> Read for ZstdRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.input.get(self.at..self.end).unwrap_or_default();
            let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(buffer));
            let is_empty = input.is_empty();
            if !is_empty || self.is_inside {
                let hint = self.context.decompress_stream(&mut to, &mut from).map_err(damaged)?;
                self.at += from.pos();
                // A frame that has ended asks for nothing more.
                self.is_inside = hint != 0;
                if to.pos() > 0 {
                    return Ok(to.pos());
                }
            }
            if self.at < self.end {
                continue;
            }
            (self.at, self.end) = (0, self.inner.read(&mut self.input)?);
            if self.end == 0 {
                return if self.is_inside { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(0) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        let mut output = vec![0; zstd_safe::compress_bound(text.len())];
        let length = zstd_safe::compress(&mut output[..], text, 1).unwrap();
        output.truncate(length);
        output
    }

    fn read(bytes: Vec<u8>) -> (Vec<u8>, Option<ErrorKind>) {
        let mut output = Vec::new();
        let result = Decompressed::new(Cursor::new(bytes)).read_to_end(&mut output);
        (output, result.err().map(|fault| fault.kind()))
    }

    #[test]
    fn several_members_and_frames_are_read() {
        for coded in [gzip, zstd] {
            let both = [coded(b"one\n"), coded(b"two\n")].concat();
            assert_eq!(read(both), (b"one\ntwo\n".to_vec(), None));
        }
        let skipped = [b"\x51\x2a\x4d\x18\x02\0\0\0xx".to_vec(), zstd(b"a")].concat();
        assert_eq!(read(skipped), (b"a".to_vec(), None));
    }

    #[test]
    fn plain_bytes_are_read_as_they_are() {
        for text in ["", "a", "abc", "abcde"] {
            assert_eq!(read(text.as_bytes().to_vec()), (text.as_bytes().to_vec(), None));
        }
    }

    #[test]
    fn data_that_is_cut_ends_early() {
        let text: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
        for coded in [gzip(&text), zstd(&text)] {
            for cut in [5, 100, coded.len() / 2, coded.len() - 1] {
                let (output, fault) = read(coded[..cut].to_vec());
                assert_eq!(fault, Some(ErrorKind::UnexpectedEof), "at {cut} of {}", coded.len());
                assert!(text.starts_with(&output));
            }
        }
    }

    #[test]
    fn damaged_data_is_no_end() {
        for coded in [gzip(b"text"), zstd(b"text")] {
            let mut broken = coded.clone();
            broken.extend_from_slice(b"garbage behind the end");
            let (output, fault) = read(broken);
            assert_eq!(output, b"text");
            assert!(fault.is_some_and(|kind| kind != ErrorKind::UnexpectedEof));
        }
    }
}
