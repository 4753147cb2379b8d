//! Values that others may store, but neither read nor change: AES-256-GCM with a key from `secret`.

use rustix::rand::{GetRandomFlags, getrandom};

use super::settings::AcmeSecret;
use crate::net::crypto::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// The first byte of a sealed value: another one is another form.
const FORM: u8 = 1;

/// Seals `content` as the value that is called `name`. `None`: the system has no random numbers.
pub fn seal(secret: &AcmeSecret, name: &str, content: &[u8]) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_LEN];
    let drawn = getrandom(&mut nonce, GetRandomFlags::empty()).ok()?;
    let mut sealed = content.to_vec();
    let key = key(secret).filter(|_| drawn == nonce.len())?;
    let named = Aad::from(name.as_bytes());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), named, &mut sealed).ok()?;
    Some([&[FORM], nonce.as_slice(), &sealed].concat())
}

/// The content of a sealed value that is called `name`. `None`: it was sealed by another secret, under another name, or
/// not at all.
pub fn open(secret: &AcmeSecret, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (&[FORM], rest) = sealed.split_first_chunk::<1>()? else { return None };
    let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
    let (mut content, nonce) = (rest.to_vec(), Nonce::assume_unique_for_key(*nonce));
    let opened = key(secret)?.open_in_place(nonce, Aad::from(name.as_bytes()), &mut content).ok()?;
    Some(opened.to_vec())
}

fn key(secret: &AcmeSecret) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, secret.key()).ok().map(LessSafeKey::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_opens_by_its_secret_and_name_alone() {
        let (secret, other) = (AcmeSecret::new(b"one"), AcmeSecret::new(b"two"));
        for content in [b"".as_slice(), b"key"] {
            let sealed = seal(&secret, "a", content).unwrap();
            assert_eq!(open(&secret, "a", &sealed).as_deref(), Some(content));
            assert_eq!((open(&other, "a", &sealed), open(&secret, "b", &sealed)), (None, None));
            assert_ne!(seal(&secret, "a", content).unwrap(), sealed, "each has a nonce of its own");
            for index in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[index] ^= 1;
                assert_eq!(open(&secret, "a", &changed), None, "byte {index}");
                assert_eq!(open(&secret, "a", &sealed[..index]), None, "cut at {index}");
            }
        }
    }
}
