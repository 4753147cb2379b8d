//! Consumers: the callers that API keys name, found by key.
//!
//! No key is kept, only a keyed hash of it: 128 bits of SipHash-2-4 under a secret of the process. A look-up is that hash
//! and one probe of a table, however many consumers there are. Its time depends on the key that was sent and on the
//! secret, not on how much of the key is right.
//!
//! Where the file has keys as SHA-256, all keys are hashed by SHA-256 first.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher as _;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::claim::ClaimPath;
use super::identity::Identity;
use crate::net::crypto::digest::{SHA256, digest};

/// The bytes that are not sent to backends as they are: `%` too, so that two names never look alike.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A name or a tier as backends get it: everything but visible ASCII is percent-encoded, and `%` itself.
#[inline]
pub fn encoded(text: &str) -> Cow<'_, str> {
    if is_plain(text) { Cow::Borrowed(text) } else { utf8_percent_encode(text, ENCODED).into() }
}

/// Whether a name is sent as it is; most are.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%')
}

/// All consumers of one file.
pub struct Consumers {
    secret: [u8; 16],
    /// Keys are hashed by SHA-256 before the keyed hash.
    digests: bool,
    /// Rows by fingerprint.
    index: HashTable<u32>,
    fingerprints: Vec<u128>,
    /// The names of the columns, without that of the keys.
    columns: Vec<String>,
    /// The values of all rows, one after the other, and where each ends.
    text: String,
    ends: Vec<u32>,
    /// The columns of the name and of the tier.
    name: usize,
    tier: Option<usize>,
    /// The number of different names.
    names: usize,
    /// No name and no tier needs an escape to be sent to backends.
    is_plain: bool,
}

/// A consumer that a credential named.
#[derive(Clone, Copy)]
pub struct Consumer<'t>(ConsumerProof<'t>);

/// How a consumer is known.
#[derive(Clone, Copy)]
enum ConsumerProof<'t> {
    /// By a row of a file.
    Row(&'t Consumers, usize),
    /// By a credential that was verified.
    Verified(&'t Identity),
}

/// The key of a row as written in the file.
#[derive(Clone, Copy, Debug)]
pub enum KeyForm<'k> {
    /// The key itself.
    Plain(&'k [u8]),
    /// The SHA-256 of the key.
    Digest([u8; 32]),
}

/// A key of fewer characters can be guessed.
const MIN_KEY: usize = 8;

/// Names of kinds of hashes, in lower case without `-` and `_`.
const HASHES: [&str; 5] = ["crypt", "hash", "sha", "smd5", "ssha"];
/// The beginnings of others: `pbkdf2_sha256`, `argon2id`, `SHA-512`.
const HASH_FAMILIES: [&str; 15] = [
    "argon2", "bcrypt", "blake2", "blake3", "hmac", "md4", "md5", "ntlm", "pbkdf2", "scrypt", "sha1", "sha2",
    "sha3", "sha5", "ssha2",
];

/// The fault of a key as written in the file. It holds no part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextFault {
    /// It is empty, or has a control character.
    #[error("no request can carry this key")]
    NotSent,
    /// It has fewer than 8 characters.
    #[error("this key has fewer than {MIN_KEY} characters, so it could be guessed")]
    Short,
    /// It begins with `sha256:`, but what follows is not a digest.
    #[error("this is no SHA-256 of a key")]
    Digest,
    /// It is the hash of a key in another form: bcrypt, `sha1:…`, `{SSHA}…`.
    #[error("this is a hash of another form than `sha256:` and 64 hexadecimal digits")]
    OtherHash,
}

impl<'k> KeyForm<'k> {
    /// The prefix of a digest in the file, in any case.
    const DIGEST: &'static str = "sha256:";

    /// Whether a key of this file may be a digest.
    pub fn may_have_digests(file: &[u8]) -> bool {
        let is_prefix = |colon: usize| {
            let start = (colon + 1).checked_sub(Self::DIGEST.len());
            let text = start.and_then(|start| file.get(start..=colon));
            text.is_some_and(|text| text.eq_ignore_ascii_case(Self::DIGEST.as_bytes()))
        };
        memchr::memchr_iter(b':', file).any(is_prefix)
    }

    /// The key in a file, with its variables filled in: text, or `sha256:` in any case and 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// See [`KeyTextFault`].
    pub fn parse(text: &'k str) -> Result<Self, KeyTextFault> {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(KeyTextFault::NotSent);
        }
        let split = text.split_at_checked(Self::DIGEST.len());
        let digits = split.filter(|(prefix, _)| prefix.eq_ignore_ascii_case(Self::DIGEST));
        match digits {
            Some((_, digits)) => digest_of(digits).map(Self::Digest).ok_or(KeyTextFault::Digest),
            None if is_other_hash(text) => Err(KeyTextFault::OtherHash),
            None if text.chars().take(MIN_KEY).count() < MIN_KEY => Err(KeyTextFault::Short),
            None => Ok(Self::Plain(text.as_bytes())),
        }
    }
}

/// The digest that 64 hexadecimal digits write.
fn digest_of(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(digest)
}

/// Whether a text is a hash as other programs write it: `$2y$10$…`, `{SSHA}…`, `sha1:…`, `pbkdf2_sha256$…`, `sha256-…`.
fn is_other_hash(key: &str) -> bool {
    if let Some(rest) = key.strip_prefix('$') {
        let is_scheme = |name: &str| {
            (1..=16).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        return rest.split_once('$').is_some_and(|(name, _)| is_scheme(name));
    }
    if let Some((name, _)) = key.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        return is_hash_name(name);
    }
    // The hash of a page's scripts (Subresource Integrity) is Base64 with its padding.
    let is_integrity = |name: &str, rest: &str| is_hash_name(name) && rest.ends_with('=') && rest.len() >= 28;
    key.split_once([':', '$', '=']).is_some_and(|(name, _)| is_hash_name(name))
        || key.split_once('-').is_some_and(|(name, rest)| is_integrity(name, rest))
}

fn is_hash_name(text: &str) -> bool {
    let letters = text.bytes().filter(|byte| !matches!(byte, b'-' | b'_')).take(8);
    let name: String = letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    let is_known = HASHES.contains(&&*name) || HASH_FAMILIES.iter().any(|family| name.starts_with(family));
    text.len() <= 24 && is_known
}

impl Consumers {
    /// A table without rows. `columns` are the names of all columns but the key's; `name` and `tier` are indices of it.
    /// `digests`: some key is a [`KeyForm::Digest`]. `secret` keys the hash.
    pub fn new(
        columns: Vec<String>,
        name: usize,
        tier: Option<usize>,
        digests: bool,
        secret: [u8; 16],
    ) -> Self {
        Self {
            secret,
            digests,
            index: HashTable::new(),
            fingerprints: Vec::new(),
            columns,
            text: String::new(),
            ends: Vec::new(),
            name,
            tier,
            names: 0,
            is_plain: true,
        }
    }

    /// Makes room for this many rows with this many bytes of text.
    pub fn reserve(&mut self, rows: usize, text: usize) {
        let fingerprints = &self.fingerprints;
        let hash_of = |row: &u32| fingerprints.get(*row as usize).copied().map_or(0, low);
        self.index.reserve(rows, hash_of);
        self.fingerprints.reserve(rows);
        self.ends.reserve(rows * self.columns.len());
        self.text.reserve(text);
    }

    /// Adds a row with this key and a value for each column.
    ///
    /// # Errors
    ///
    /// The row that has the key already.
    pub fn push<'v>(&mut self, key: KeyForm<'_>, values: impl Iterator<Item = &'v str>) -> Result<(), usize> {
        let fingerprint = match key {
            KeyForm::Plain(key) => self.fingerprint(key),
            KeyForm::Digest(digest) => self.keyed(&digest),
        };
        let Self { index, fingerprints, .. } = self;
        let at = |row: &u32| fingerprints.get(*row as usize).copied();
        let is_it = |row: &u32| at(row) == Some(fingerprint);
        let hash_of = |row: &u32| at(row).map_or(0, low);
        match index.entry(low(fingerprint), is_it, hash_of) {
            Entry::Occupied(known) => return Err(*known.get() as usize),
            Entry::Vacant(place) => {
                // `config` allows far fewer rows and bytes than 2^32.
                place.insert(u32::try_from(fingerprints.len()).unwrap_or(u32::MAX));
            }
        }
        fingerprints.push(fingerprint);
        let columns = self.columns.len();
        for (column, value) in values.chain(std::iter::repeat("")).take(columns).enumerate() {
            self.is_plain &= column != self.name && Some(column) != self.tier || is_plain(value);
            self.text.push_str(value);
            self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Ends the table: it has this many different names.
    #[must_use]
    pub fn finish(mut self, names: usize) -> Self {
        self.names = names;
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.fingerprints.shrink_to_fit();
        let fingerprints = &self.fingerprints;
        self.index.shrink_to_fit(|row| fingerprints.get(*row as usize).copied().map_or(0, low));
        self
    }

    /// The consumer with this key.
    pub fn find(&self, key: &[u8]) -> Option<Consumer<'_>> {
        self.row(self.fingerprint(key)).map(|row| Consumer(ConsumerProof::Row(self, row)))
    }

    /// The consumer of a row, in file order from 0.
    pub fn at(&self, row: usize) -> Option<Consumer<'_>> {
        (row < self.fingerprints.len()).then_some(Consumer(ConsumerProof::Row(self, row)))
    }

    /// The first row of the consumer with this name. It reads all names: not for requests.
    pub fn named(&self, name: &str) -> Option<Consumer<'_>> {
        self.iter().find(|consumer| consumer.name() == name)
    }

    /// All rows, in file order.
    pub fn iter(&self) -> impl Iterator<Item = Consumer<'_>> {
        (0..self.fingerprints.len()).map(|row| Consumer(ConsumerProof::Row(self, row)))
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.fingerprints.len()
    }

    /// The number of different names.
    pub fn names(&self) -> usize {
        self.names
    }

    /// Whether the file has a column of this name beside the key.
    pub fn has_column(&self, column: &str) -> bool {
        self.columns.iter().any(|known| known == column)
    }

    /// Whether the file has a column of tiers.
    pub fn has_tiers(&self) -> bool {
        self.tier.is_some()
    }

    /// The columns beside the key.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// The bytes that the table occupies beyond the text of its columns.
    pub fn overhead(&self) -> usize {
        self.index.allocation_size()
            + self.fingerprints.capacity() * size_of::<u128>()
            + self.ends.capacity() * size_of::<u32>()
            + self.text.capacity()
            - self.text.len()
    }

    fn fingerprint(&self, key: &[u8]) -> u128 {
        if self.digests { self.keyed(digest(&SHA256, key).as_ref()) } else { self.keyed(key) }
    }

    fn keyed(&self, bytes: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }

    fn row(&self, fingerprint: u128) -> Option<usize> {
        let is_it = |row: &u32| self.fingerprints.get(*row as usize) == Some(&fingerprint);
        self.index.find(low(fingerprint), is_it).map(|row| *row as usize)
    }

    fn value(&self, row: usize, column: usize) -> &str {
        let at = row * self.columns.len() + column;
        let end_of = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end_of);
        self.text.get(start..end_of(at)).unwrap_or_default()
    }
}

impl<'t> Consumer<'t> {
    /// The consumer that a verified credential names.
    pub fn verified(identity: &'t Identity) -> Self {
        Self(ConsumerProof::Verified(identity))
    }

    /// Its name; not empty.
    pub fn name(&self) -> &'t str {
        match self.0 {
            ConsumerProof::Row(table, row) => table.value(row, table.name),
            ConsumerProof::Verified(identity) => &identity.name,
        }
    }

    /// Its tier, if it has one.
    pub fn tier(&self) -> Option<&'t str> {
        let tier = match self.0 {
            ConsumerProof::Row(table, row) => table.value(row, table.tier?),
            ConsumerProof::Verified(identity) => identity.tier.as_deref()?,
        };
        Some(tier).filter(|tier| !tier.is_empty())
    }

    /// Its name as backends get it.
    pub fn encoded_name(&self) -> Cow<'t, str> {
        self.encoded(self.name())
    }

    /// Its tier as backends get it.
    pub fn encoded_tier(&self) -> Option<Cow<'t, str>> {
        self.tier().map(|tier| self.encoded(tier))
    }

    fn encoded(&self, text: &'t str) -> Cow<'t, str> {
        match self.0 {
            ConsumerProof::Row(table, _) if table.is_plain => Cow::Borrowed(text),
            _ => encoded(text),
        }
    }

    /// Its value in this column of its file; `None` if it is empty or there is no such column.
    pub fn column(&self, column: &str) -> Option<&'t str> {
        let ConsumerProof::Row(table, row) = self.0 else { return None };
        let at = table.columns.iter().position(|known| known == column)?;
        Some(table.value(row, at)).filter(|value| !value.is_empty())
    }

    /// The text of a claim of its token.
    pub fn claim(&self, name: &str) -> Option<&'t str> {
        let ConsumerProof::Verified(identity) = self.0 else { return None };
        identity.claim(name)
    }

    /// Whether it has this value of a claim that some route requires; of a file, in the column of this name, which may hold
    /// several with blanks between them.
    pub fn has(&self, claim: &ClaimPath, wanted: &str) -> bool {
        match self.0 {
            ConsumerProof::Row(..) => self.column(claim.as_str()).is_some_and(|value| {
                value == wanted || value.split_ascii_whitespace().any(|item| item == wanted)
            }),
            ConsumerProof::Verified(identity) => identity.has(claim.as_str(), wanted),
        }
    }

    /// Whether a credential was verified that named it, so that no file has it.
    pub fn is_verified(&self) -> bool {
        matches!(self.0, ConsumerProof::Verified(_))
    }
}

/// The hash of the table: the fingerprint is one already.
fn low(fingerprint: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let low = fingerprint as u64;
    low
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumers({} keys)", self.keys())
    }
}

impl fmt::Debug for Consumer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({:?})", self.name())
    }
}

#[cfg(test)]
mod tests;
