//! The users of an htpasswd file: `name:hash` in each line, with a hash by bcrypt or Argon2.

use std::collections::HashMap;

use argon2::{Argon2, Params, PasswordVerifier as _};

use crate::route::consumers::encoded;
use crate::route::identity::MAX_NAME;

/// The maximum cost of bcrypt: a password takes some 4 s.
const MAX_BCRYPT_COST: u32 = 16;
/// The maximum memory of Argon2, KiB: 256 MiB.
const MAX_ARGON2_MEMORY: u32 = 256 << 10;
/// The maximum product of the memory of Argon2, in KiB, and its iterations.
const MAX_ARGON2_WORK: u64 = 4 << 20;
/// The maximum parallelism of Argon2.
const MAX_ARGON2_LANES: u32 = 16;
/// More users than a file that is checked line by line has.
const MAX_USERS: usize = 1_000_000;

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// `$2y$…`, `$2b$…` or `$2a$…`. Of a longer password, the first 72 bytes count.
    Bcrypt(Box<str>),
    /// `$argon2id$…`, `$argon2i$…` or `$argon2d$…` (RFC 9106).
    Argon2(Box<str>),
}

/// The users of a file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    hashes: HashMap<Box<str>, PasswordHash>,
}

/// The fault of a line. It never holds a part of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It is not UTF-8.
    #[error("this line is not UTF-8")]
    Encoding,
    /// There is no `:`, or nothing before it.
    #[error("this line is not `name:hash`")]
    Form,
    /// The name has more than 256 bytes, percent-encoded, or a control character.
    #[error("the name of the user has more than 256 bytes or a control character")]
    Name,
    /// The name has blanks around it, which a client would have to send.
    #[error("the name of the user begins or ends with a blank")]
    Blank,
    /// The name stands in an earlier line.
    #[error("the user has an earlier line")]
    Repeated,
    /// The hash is of another kind.
    #[error("the hash of the password is not of bcrypt or Argon2")]
    Kind,
    /// The hash has no good form.
    #[error("the hash of the password has no good form")]
    Hash,
    /// A check would take too long, or too much memory.
    #[error("the cost of the hash is too high")]
    Cost,
    /// There are more than a million users.
    #[error("the file has more than {MAX_USERS} users")]
    TooMany,
}

impl PasswordHash {
    /// Parses a hash.
    ///
    /// # Errors
    ///
    /// See [`LineFault`].
    pub fn parse(text: &str) -> Result<Self, LineFault> {
        match text.get(..4) {
            Some("$2a$" | "$2b$" | "$2y$") => {
                let parts: bcrypt::HashParts = text.parse().map_err(|_| LineFault::Hash)?;
                match parts.get_cost() {
                    4..=MAX_BCRYPT_COST => Ok(Self::Bcrypt(text.into())),
                    0..4 => Err(LineFault::Hash),
                    _ => Err(LineFault::Cost),
                }
            }
            _ if text.starts_with("$argon2") => {
                let hash = argon2::PasswordHash::new(text).map_err(|_| LineFault::Hash)?;
                argon2::Algorithm::try_from(hash.algorithm.as_str()).map_err(|_| LineFault::Hash)?;
                let params = Params::try_from(&hash).map_err(|_| LineFault::Hash)?;
                if hash.salt.is_none() || hash.hash.is_none() {
                    return Err(LineFault::Hash);
                }
                let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
                let is_cheap = params.m_cost() <= MAX_ARGON2_MEMORY
                    && params.p_cost() <= MAX_ARGON2_LANES
                    && work <= MAX_ARGON2_WORK;
                if is_cheap { Ok(Self::Argon2(text.into())) } else { Err(LineFault::Cost) }
            }
            _ => Err(LineFault::Kind),
        }
    }

    /// Whether `password` has this hash. It takes from milliseconds to seconds: not for a worker.
    pub fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => Argon2::default().verify_password(password, &**hash).is_ok(),
        }
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Bcrypt(_)) { "Bcrypt" } else { "Argon2" })
    }
}

impl Users {
    /// Parses a file. Empty lines, and those that begin with `#`, do not count.
    ///
    /// # Errors
    ///
    /// The numbers of the faulty lines, from 1 on, and their faults.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<(u64, LineFault)>> {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let (mut users, mut faults) = (Self::default(), Vec::new());
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if let Err(fault) = users.add(line) {
                faults.push((number, fault));
                if fault == LineFault::TooMany {
                    break;
                }
            }
        }
        if faults.is_empty() { Ok(users) } else { Err(faults) }
    }

    fn add(&mut self, line: &[u8]) -> Result<(), LineFault> {
        let line = std::str::from_utf8(line).map_err(|_| LineFault::Encoding)?.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (name, rest) = line.split_once(':').ok_or(LineFault::Form)?;
        if name.is_empty() {
            return Err(LineFault::Form);
        }
        if encoded(name).len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(LineFault::Name);
        }
        if name.trim() != name {
            return Err(LineFault::Blank);
        }
        // Some tools write a comment after a second `:`.
        let hash = PasswordHash::parse(rest.split(':').next().unwrap_or_default())?;
        if self.hashes.len() >= MAX_USERS {
            return Err(LineFault::TooMany);
        }
        match self.hashes.insert(name.into(), hash) {
            None => Ok(()),
            Some(_) => Err(LineFault::Repeated),
        }
    }

    /// The hash of a user's password.
    pub fn find(&self, name: &str) -> Option<&PasswordHash> {
        self.hashes.get(name)
    }

    /// The number of users.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// All hashes, in the order of the names.
    pub(super) fn hashes(&self) -> Vec<PasswordHash> {
        let mut named: Vec<_> = self.hashes.iter().collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        named.into_iter().map(|(_, hash)| hash.clone()).collect()
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Users({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the right form.
    const BCRYPT: &str = "$2y$04$abcdefghijklmnopqrstuuv.PdO0MSkTZcFkE1y7KGtkdgBhTVUHO";

    fn bcrypt_of(password: &str) -> String {
        bcrypt::hash(password, 4).expect("a hash")
    }

    fn argon2_of(password: &str) -> String {
        use argon2::PasswordHasher as _;
        let params = Params::new(64, 1, 1, None).expect("good parameters");
        let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        argon2.hash_password_with_salt(password.as_bytes(), b"saltsaltsalt").expect("a hash").to_string()
    }

    #[test]
    fn a_password_is_verified_by_both_kinds_of_hash() {
        for hash in [bcrypt_of("secret"), argon2_of("secret"), bcrypt_of("secret").replace("$2b$", "$2y$")] {
            let parsed = PasswordHash::parse(&hash).unwrap_or_else(|fault| panic!("{hash}: {fault}"));
            assert!(parsed.verify(b"secret"), "{hash}");
            assert!(!parsed.verify(b"Secret") && !parsed.verify(b""), "{hash}");
        }
    }

    #[test]
    fn hashes_of_other_kinds_and_with_too_high_a_cost_are_faults() {
        let argon2 = argon2_of("x");
        for (hash, fault) in [
            ("$apr1$aaaa$bbbb", LineFault::Kind),
            ("{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=", LineFault::Kind),
            ("secret", LineFault::Kind),
            ("", LineFault::Kind),
            ("$2y$", LineFault::Hash),
            (&BCRYPT[..59], LineFault::Hash),
            (&BCRYPT.replace("$04$", "$17$"), LineFault::Cost),
            (&BCRYPT.replace("$04$", "$03$"), LineFault::Hash),
            (&argon2.replace("m=64", "m=4000000"), LineFault::Cost),
            (&argon2.replace("t=1", "t=4000000"), LineFault::Cost),
            (&argon2.replace("argon2id", "argon2x"), LineFault::Hash),
            (argon2.rsplit_once('$').map_or("", |(before, _)| before), LineFault::Hash),
        ] {
            assert_eq!(PasswordHash::parse(hash).err(), Some(fault), "{hash}");
        }
    }

    /// What is left of the last line is a fault, or a comment of the hash.
    #[test]
    fn a_file_that_is_cut_anywhere_gives_whole_users_or_faults() {
        let file = format!("ann:{}\nbob:{}\n", bcrypt_of("a"), argon2_of("b"));
        for cut in 0..file.len() {
            match Users::parse(&file.as_bytes()[..cut]) {
                Ok(users) => {
                    assert!(users.hashes.keys().all(|name| ["ann", "bob"].contains(&&**name)), "{cut}")
                }
                Err(faults) => assert_eq!(faults.len(), 1, "{cut}"),
            }
        }
    }

    #[test]
    fn faults_have_the_number_of_their_line_and_nothing_of_it() {
        let good = bcrypt_of("a");
        let file = format!(
            "# users\n\nann:{good}\r\nbob\n:{good}\nann:{good}\ncarl:{{SHA}}x\n{}:{good}\nd\u{1}e:{good}\n fay:{good}\ngus :{good}\n",
            "x".repeat(257)
        );
        let faults = Users::parse(file.as_bytes()).expect_err("faults");
        let expected = [
            (4, LineFault::Form),
            (5, LineFault::Form),
            (6, LineFault::Repeated),
            (7, LineFault::Kind),
            (8, LineFault::Name),
            (9, LineFault::Name),
            (10, LineFault::Blank),
            (11, LineFault::Blank),
        ];
        assert_eq!(faults, expected);
        assert_eq!(Users::parse(b"\xff:x").expect_err("a fault"), [(1, LineFault::Encoding)]);
        let users = Users::parse(format!("\u{feff}ann:{good}:a comment\nb\u{fc}:{good}").as_bytes());
        assert_eq!(users.map(|users| users.len()), Ok(2));
    }
}
