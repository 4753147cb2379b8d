//! `tollgate import`: configurations of other programs as tables of `gateway.toml`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::MISTAKE;
use super::output::{fault, show};
use crate::config::{is_standard_input, name_of};
use crate::import::{ImportFile, MAX_FILE_BYTES, envoy_ratelimit};

/// The arguments of `tollgate import`.
#[derive(Args, Clone, Debug)]
pub(super) struct ImportArguments {
    /// The program that reads the files today: envoy-ratelimit, which is the rate limit service of Envoy
    #[arg(value_enum, value_name = "PROGRAM", hide_possible_values = true)]
    program: ImportProgram,
    /// The files, which are read together; `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportProgram {
    EnvoyRatelimit,
}

/// Prints the tables, and remarks on standard error.
pub(super) fn run(arguments: &ImportArguments) -> ExitCode {
    let mut files: Vec<ImportFile> = Vec::new();
    for path in &arguments.files {
        let name = name_of(path);
        if files.iter().any(|file| file.name == name) {
            return fault(MISTAKE, format_args!("`{name}` is named twice\n  = help: name each file once"));
        }
        match read(path) {
            Ok(text) => files.push(ImportFile { name, text }),
            Err(message) => return fault(MISTAKE, message),
        }
    }
    let imported = match arguments.program {
        ImportProgram::EnvoyRatelimit => envoy_ratelimit::import(&files),
    };
    imported.report.print();
    match imported.toml {
        Some(toml) => show(&toml),
        None => ExitCode::from(MISTAKE),
    }
}

/// The text of a file. One byte more than is admitted is read, so that a longer one is refused as such.
fn read(path: &Path) -> Result<String, String> {
    let name = name_of(path);
    let source: io::Result<Box<dyn Read>> = match is_standard_input(path) {
        true => Ok(Box::new(io::stdin().lock())),
        false => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut bytes = Vec::new();
    let max = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    source
        .and_then(|source| source.take(max).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read `{name}`: {error}"))?;
    let is_whole = bytes.len() <= MAX_FILE_BYTES;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // The cut may have hit a character; what remains is too long anyway.
        Err(error) if !is_whole => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Err(error) => {
            let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(format!("{name}:{line}: this is not UTF-8\n  = help: save the file as UTF-8"))
        }
    }
}
