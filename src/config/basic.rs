//! The keys of an `[auth.NAME]` with `type = "basic"`. The file holds secrets: no message shows a line of it.

use super::named_file::MAX_TABLE_BYTES;
use super::report::OtherLine;
use super::value::ConfigValue;
use crate::auth::htpasswd::{LineFault, Users};

/// Reads the file that `value` names. `None` if it has faults.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<Users> {
    let path = value.text()?;
    let bytes = value.file_at(&path, MAX_TABLE_BYTES)?;
    let at = |line| OtherLine { file: path.as_str().to_owned(), line };
    let users = match Users::parse(&bytes) {
        Ok(users) => users,
        Err(faults) => {
            for (line, fault) in faults {
                value.diagnostics().fault_in(value.span(), at(line), fault.to_string(), help(fault));
            }
            return None;
        }
    };
    if users.is_empty() {
        let help = "add one: `htpasswd -nB NAME` asks for the password and prints the line";
        value.diagnostics().warn_in(value.span(), at(1), "the file names no user", help);
    }
    Some(users)
}

fn help(fault: LineFault) -> &'static str {
    match fault {
        LineFault::Encoding => "save the file as UTF-8",
        LineFault::Form => "`htpasswd -nB NAME` asks for the password and prints the line",
        LineFault::Name => "give the user a shorter name: backends get it as `x-consumer`",
        LineFault::Blank => "leave the blank out",
        LineFault::Repeated => "leave one of the two lines out",
        LineFault::Kind => {
            "other hashes are too weak: `htpasswd -nB NAME` makes one of bcrypt, `argon2` one of Argon2"
        }
        LineFault::Hash => "copy the whole hash: that of bcrypt has 60 characters",
        LineFault::Cost => {
            "use a cost of at most 16 with bcrypt, or 256 MiB (and 4 GiB over all iterations) with Argon2"
        }
        LineFault::TooMany => "use an issuer of tokens instead: `type = \"jwt\"`",
    }
}
