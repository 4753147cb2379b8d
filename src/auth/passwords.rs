//! `type = "basic"`: from a user's name and password to the consumer (RFC 7617).

use std::hash::Hasher as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use siphasher::sip::SipHasher13;

use super::htpasswd::{PasswordHash, Users};
use super::remembered::Remembered;
use crate::limit::units::{Micros, Timestamp};
use crate::route::identity::Identity;

/// How long a good password is remembered.
const REMEMBERED_FOR: Micros = Micros(60 * 1_000_000);
/// The maximum length of a name, a `:` and a password together, bytes.
pub const MAX_CREDENTIAL: usize = 1024;
/// Clients write the padding, and may leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The users of a file, and the passwords that were good lately.
#[derive(Debug)]
pub struct PasswordVerifier {
    users: Arc<Users>,
    /// The hashes that stand in for users that are not known.
    dummies: Vec<PasswordHash>,
    secret: [u8; 16],
    remembered: Remembered<Identity>,
}

/// A password to check.
#[derive(Debug)]
pub struct PasswordCheck {
    verifier: Arc<PasswordVerifier>,
    credential: Box<[u8]>,
    now: Timestamp,
}

/// The name or the password is wrong. It is the same for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user is not known, or the password is wrong")]
pub struct WrongPassword;

impl PasswordVerifier {
    /// A verifier that remembers no password yet, by a hash keyed with `secret`.
    pub fn new(users: Arc<Users>, secret: [u8; 16]) -> Self {
        Self { dummies: users.hashes(), users, secret, remembered: Remembered::new(secret) }
    }

    /// The users.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// The consumer of a password that was good within the last minute. `None`: it has to be checked.
    pub fn find(&self, credential: &[u8], now: Timestamp) -> Option<Arc<Identity>> {
        self.remembered.find(credential, 0, now)
    }

    /// Prepares to check `credential`, the base64 text of `name:password`, at `now`.
    pub fn prepare(self: &Arc<Self>, credential: &[u8], now: Timestamp) -> PasswordCheck {
        PasswordCheck { verifier: Arc::clone(self), credential: credential.into(), now }
    }

    /// A hash that stands in for that of a user who is not known: the response takes as long as for a known one. The same
    /// name always gets the same.
    fn dummy(&self, name: &[u8]) -> Option<&PasswordHash> {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(name);
        let count = self.dummies.len().max(1) as u64;
        // The rest is less than the number of hashes.
        self.dummies.get(usize::try_from(hasher.finish() % count).unwrap_or_default())
    }
}

impl PasswordCheck {
    /// The same for equal credentials of one verifier.
    pub fn hash(&self) -> u128 {
        self.verifier.remembered.hash(&self.credential, 0)
    }

    /// The consumer, if the password was found good in the meantime.
    pub fn remembered(&self) -> Option<Arc<Identity>> {
        self.verifier.find(&self.credential, self.now)
    }

    /// Checks the password, and remembers it if it is good. It takes from milliseconds to seconds: not for a worker.
    ///
    /// # Errors
    ///
    /// The name or the password is wrong, or they have no good form.
    pub fn run(&self) -> Result<Arc<Identity>, WrongPassword> {
        let decoded = BASE64.decode(&self.credential).map_err(|_| WrongPassword)?;
        let (name, password) = name_and_password(&decoded).ok_or(WrongPassword)?;
        let verifier = &*self.verifier;
        let user = std::str::from_utf8(name).ok().and_then(|name| Some((name, verifier.users.find(name)?)));
        let Some((name, hash)) = user else {
            let dummy = verifier.dummy(name).ok_or(WrongPassword)?;
            std::hint::black_box(dummy.verify(password));
            return Err(WrongPassword);
        };
        if !hash.verify(password) {
            return Err(WrongPassword);
        }
        let expires = self.now.plus(REMEMBERED_FOR);
        let identity = Arc::new(Identity { name: name.into(), ..Identity::anonymous() });
        verifier.remembered.keep(&self.credential, 0, Arc::clone(&identity), expires);
        Ok(identity)
    }
}

/// RFC 7617 §2: a name without `:`, then a `:`, then the password; neither has control characters.
fn name_and_password(decoded: &[u8]) -> Option<(&[u8], &[u8])> {
    if decoded.len() > MAX_CREDENTIAL || decoded.iter().any(u8::is_ascii_control) {
        return None;
    }
    let colon = memchr::memchr(b':', decoded)?;
    Some((&decoded[..colon], &decoded[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_has_a_bound() {
        for (length, is_taken) in
            [(MAX_CREDENTIAL, true), (MAX_CREDENTIAL + 1, false), (MAX_CREDENTIAL + 2, false)]
        {
            let decoded = [b"a:".as_slice(), &vec![b'p'; length - 2]].concat();
            assert_eq!(name_and_password(&decoded).is_some(), is_taken, "{length}");
        }
    }

    fn verifier() -> Arc<PasswordVerifier> {
        let hash = |password| bcrypt::hash(password, 4).expect("a hash");
        let file = format!("ann:{}\nb\u{f6}b:{}\n", hash("se:cret"), hash("pass"));
        Arc::new(PasswordVerifier::new(
            Arc::new(Users::parse(file.as_bytes()).expect("a good file")),
            [7; 16],
        ))
    }

    fn basic(text: impl AsRef<[u8]>) -> Vec<u8> {
        base64::engine::general_purpose::STANDARD.encode(text).into_bytes()
    }

    fn check(verifier: &Arc<PasswordVerifier>, credential: &[u8]) -> Result<String, WrongPassword> {
        verifier.prepare(credential, Timestamp(5)).run().map(|identity| identity.name.to_string())
    }

    #[test]
    fn a_password_may_have_colons_and_a_name_any_letters() {
        let users = verifier();
        assert_eq!(check(&users, &basic("ann:se:cret")), Ok("ann".into()));
        assert_eq!(check(&users, &basic("b\u{f6}b:pass")), Ok("b\u{f6}b".into()));
        let unpadded: Vec<u8> = basic("b\u{f6}b:pass").into_iter().filter(|byte| *byte != b'=').collect();
        assert_eq!(check(&users, &unpadded), Ok("b\u{f6}b".into()));
    }

    #[test]
    fn anything_else_is_refused() {
        let users = verifier();
        for wrong in [
            "ann:secret",
            "ann:",
            "ann",
            ":",
            ":se:cret",
            "",
            "Ann:se:cret",
            "carl:pass",
            "ann:se:cret\0",
            "ann:se:cret\n",
            "ann\0:se:cret",
        ] {
            assert_eq!(check(&users, &basic(wrong)), Err(WrongPassword), "{wrong:?}");
        }
        assert_eq!(check(&users, &basic(b"b\xf6b:pass")), Err(WrongPassword), "Latin-1");
        assert_eq!(check(&users, &basic(format!("ann:{}", "x".repeat(2000)))), Err(WrongPassword));
        assert_eq!(check(&users, b"!!!"), Err(WrongPassword));
        assert_eq!(check(&users, b"ann:se:cret"), Err(WrongPassword));
    }

    #[test]
    fn a_good_password_is_remembered_for_a_minute_and_a_wrong_one_never() {
        let users = verifier();
        let (good, wrong) = (basic("ann:se:cret"), basic("ann:x"));
        assert_eq!(users.find(&good, Timestamp(5)), None);
        check(&users, &good).expect("a good password");
        check(&users, &wrong).expect_err("a wrong one");
        let name = |credential: &[u8], now| users.find(credential, Timestamp(now)).is_some();
        assert_eq!((name(&good, 5), name(&good, 60_000_004), name(&good, 60_000_005)), (true, true, false));
        assert!(!name(&wrong, 5));
    }
}
