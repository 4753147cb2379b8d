//! `tollgate replay` and `tollgate suggest` as programs: their output, their exit status, and what they do with bad input.

mod damage;
mod decisions;
mod formats;
mod interrupt;
mod looked_up;
mod options;
mod suggested;
mod terminal;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{binary, log_files};

/// The fields of the lines that [`line`] writes.
const MAP: &str = "start=$.t,client=$.c,path=$.p,status=$.s,duration=$.d,bytes_out=$.b,consumer=$.u";
/// 2023-11-15 00:00:00 UTC.
const DAY: u64 = 1_700_006_400;

/// A folder with a configuration and logs, in which the program runs.
struct Folder(TempDir);

impl Folder {
    /// With these tables after an upstream, and a route for all requests under the limits named in `limits`.
    fn new(tables: &str, limits: &str) -> Self {
        let folder = Self(TempDir::new().expect("a folder"));
        folder.file("gateway.toml", config(tables, limits));
        folder
    }

    /// With a limit that admits one request a second and two at once, for each client.
    fn with_bucket() -> Self {
        Self::new(&bucket(2), "\"bucket\"")
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        log_files::file(&self.0, name, content)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program with this standard input.
    fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(arguments).spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        // A program that ends early closes the pipe.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("the program ends");
        writer.join().expect("it is written");
        output
    }

    /// Replays the file `log`. The result must be good.
    fn replay(&self, more: &[&str]) -> Value {
        let arguments = [&["replay", "log", "-c", "gateway.toml", "--json"], more].concat();
        json(&self.run(&arguments, b""))
    }

    /// Replays lines as [`line`] writes them.
    fn replay_lines(&self, lines: &str) -> Value {
        self.file("log", lines);
        self.replay(&["--map", MAP])
    }
}

fn config(tables: &str, limits: &str) -> String {
    format!(
        "[upstreams.echo]\nservers = [\"builtin:echo\"]\n{tables}\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
         limits = [{limits}]\n"
    )
}

fn bucket(burst: u32) -> String {
    format!("[limits.bucket]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1/s\"\nburst = {burst}\n")
}

/// A line for [`MAP`]: the time in milliseconds of the day, the last byte of the client's address, and more fields.
fn line(millis: u64, client: u8, more: &str) -> String {
    let (second, milli) = (DAY + millis / 1_000, millis % 1_000);
    format!("{{\"t\":{second}.{milli:03},\"c\":\"192.0.2.{client}\",\"p\":\"/\"{more}}}\n")
}

fn lines(times: &[u64], client: u8, more: &str) -> String {
    times.iter().map(|millis| line(*millis, client, more)).collect()
}

fn json(output: &Output) -> Value {
    assert_eq!(status(output), 0, "{}", error(output));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON")
}

#[track_caller]
fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", error(output)))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("standard output is text")
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    let mut output = vec![0; zstd_safe::compress_bound(text.len())];
    let length = zstd_safe::compress(&mut output[..], text, 1).expect("memory");
    output.truncate(length);
    output
}
