//! Connection ids that name the process and the worker (RFC 9000 §5.1).
//!
//! An observer must not learn from ids which of them belong together, so what they say is masked: by a hash of their
//! random part, which is keyed by a secret of the processes that take over from one another.

use std::fmt;
use std::hash::Hasher as _;
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use rustix::rand::{GetRandomFlags, getrandom};
use siphasher::sip::SipHasher13;

/// The length of an id: process and worker, then random bytes.
pub(super) const LENGTH: usize = NAME + RANDOM;
/// Bytes that name the process (4) and the worker (2).
const NAME: usize = 6;
const RANDOM: usize = 8;

/// The secret that masks ids.
pub type IdKey = [u8; 16];

/// Who serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerId {
    /// A number of the process, drawn when it starts.
    pub process: u32,
    /// The number of the worker's socket among those of its address.
    pub worker: u16,
}

/// Makes the ids of one worker's connections, and reads those of all.
#[derive(Clone)]
pub struct ConnectionIds {
    key: IdKey,
    /// Whose ids are made.
    pub own: ServerId,
}

impl fmt::Debug for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIds").field("own", &self.own).finish_non_exhaustive()
    }
}

impl ConnectionIds {
    /// The ids of `own`, masked with `key`.
    pub fn new(key: IdKey, own: ServerId) -> Self {
        Self { key, own }
    }

    /// Whom a datagram names, if it carries an id of the length of ours. A client chooses the id of its first packets, so
    /// the answer may be any.
    pub fn server_of(&self, datagram: &[u8]) -> Option<ServerId> {
        let (first, rest) = datagram.split_first()?;
        // RFC 8999 §5.1, §5.2: the long header has version and length before the id.
        let id = match first & 0x80 {
            0 => rest.get(..LENGTH)?,
            _ => match rest.get(4..)?.split_first()? {
                (&length, rest) if usize::from(length) == LENGTH => rest.get(..LENGTH)?,
                _ => return None,
            },
        };
        self.read(id)
    }

    fn read(&self, id: &[u8]) -> Option<ServerId> {
        let (name, random) = id.split_at_checked(NAME)?;
        let name = self.mask(name.try_into().ok()?, random);
        let [process @ .., high, low] = name;
        Some(ServerId { process: u32::from_be_bytes(process), worker: u16::from_be_bytes([high, low]) })
    }

    fn mask(&self, name: [u8; NAME], random: &[u8]) -> [u8; NAME] {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(random);
        let mut masked = name;
        masked.iter_mut().zip(hasher.finish().to_be_bytes()).for_each(|(byte, mask)| *byte ^= mask);
        masked
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let ServerId { process, worker } = self.own;
        let mut name = [0; NAME];
        name.iter_mut()
            .zip(process.to_be_bytes().into_iter().chain(worker.to_be_bytes()))
            .for_each(|(to, from)| *to = from);
        // Unpredictable: an observer who could compute the generator's state would tell which ids follow one another.
        let mut random = [0; RANDOM];
        if getrandom(&mut random, GetRandomFlags::empty()).is_err() {
            random = fastrand::u64(..).to_be_bytes();
        }
        let mut id = [0; LENGTH];
        id.iter_mut()
            .zip(self.mask(name, &random).into_iter().chain(random))
            .for_each(|(to, from)| *to = from);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match self.read(id) {
            Some(server) if server == self.own => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(process: u32, worker: u16) -> ConnectionIds {
        ConnectionIds::new([7; 16], ServerId { process, worker })
    }

    /// A packet with this destination id: short, and long.
    fn packets(id: &[u8]) -> [Vec<u8>; 2] {
        let long = [&[0xc0, 0, 0, 0, 1, u8::try_from(id.len()).expect("short")][..], id, &[0; 9]].concat();
        [[&[0x40][..], id, &[0; 9]].concat(), long]
    }

    proptest! {
        #[test]
        fn packets_name_their_worker_wherever_they_arrive(process: u32, worker: u16, other: u16) {
            let id = ids(process, worker).generate_cid();
            prop_assert!(ids(process, worker).validate(&id).is_ok());
            for packet in packets(&id) {
                let named = ids(process, other).server_of(&packet);
                prop_assert_eq!(named, Some(ServerId { process, worker }));
            }
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            ids(1, 2).server_of(&bytes);
        }
    }

    #[test]
    fn a_cut_packet_names_no_one() {
        let id = ids(1, 2).generate_cid();
        for (packet, needed) in packets(&id).iter().zip([1 + LENGTH, 6 + LENGTH]) {
            for cut in 0..needed {
                assert_eq!(ids(1, 2).server_of(&packet[..cut]), None, "{cut}");
            }
        }
    }

    #[test]
    fn ids_of_one_worker_have_nothing_in_common() {
        let mut ids = ids(1, 2);
        let (one, other) = (ids.generate_cid(), ids.generate_cid());
        assert_ne!(one[..NAME], other[..NAME]);
    }
}
