//! The slot map of a cluster: the node of each slot. [`SlotMap`] is pure; [`SharedSlotMap`] is that of one worker,
//! shared by the task that reads it and the connections to the nodes.

use std::cell::RefCell;
use std::collections::HashMap;

use tokio::sync::Notify;

use super::resp::RespValue;
use super::settings::RedisServer;
use super::slot::{HashSlot, SLOTS};

/// The maximum number of known nodes of a cluster.
const MAX_NODES: usize = 1_000;
/// The maximum number of hash tags tried to find one in a node's slots.
const MAX_TAGS: u32 = 1 << 16;

/// The node of each slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    masters: Vec<RedisServer>,
    /// An index in `masters`, or [`NO_NODE`].
    owners: Box<[u16]>,
}

const NO_NODE: u16 = u16::MAX;

impl SlotMap {
    /// A map in which no slot has a node.
    pub(super) fn new() -> Self {
        Self { masters: Vec::new(), owners: vec![NO_NODE; SLOTS].into() }
    }

    /// Reads the reply of `teller` to `CLUSTER SLOTS`; `None` if it is not a slot map, or has too many nodes.
    pub fn read(reply: &RespValue, teller: &RedisServer) -> Option<Self> {
        let mut map = Self::new();
        let mut indices = HashMap::new();
        for range in list(reply)? {
            let [RespValue::Integer(first), RespValue::Integer(last), master, ..] = list(range)? else {
                return None;
            };
            let range = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            let master = read_server(master, teller)?;
            let index = match indices.get(&master) {
                Some(index) => *index,
                None => {
                    let index = map.add(master.clone())?;
                    indices.insert(master, index);
                    index
                }
            };
            map.owners.get_mut(range)?.fill(index);
        }
        Some(map)
    }

    /// The nodes that have slots.
    pub fn masters(&self) -> &[RedisServer] {
        &self.masters
    }

    /// The index among [`Self::masters`] of the node of this slot.
    pub(super) fn owner(&self, slot: HashSlot) -> Option<usize> {
        self.owners.get(slot.index()).filter(|owner| **owner != NO_NODE).map(|owner| usize::from(*owner))
    }

    /// Assigns the slot to `server`. Returns the node's index; `None` if there are too many nodes.
    pub(super) fn learn(&mut self, slot: HashSlot, server: &RedisServer) -> Option<usize> {
        let index = self.index_of(server)?;
        *self.owners.get_mut(slot.index())? = u16::try_from(index).ok()?;
        Some(index)
    }

    /// The node's index, which is added if it is new; `None` if there are too many nodes.
    pub(super) fn index_of(&mut self, server: &RedisServer) -> Option<usize> {
        let known = self.masters.iter().position(|master| master == server);
        known.or_else(|| self.add(server.clone()).map(usize::from))
    }

    /// A number that, as a hash tag, is in one of the node's slots; `None` if the node has none.
    pub(super) fn tag_of(&self, server: &RedisServer) -> Option<u32> {
        let index = self.masters.iter().position(|master| master == server)?;
        let falls = |number: &u32| {
            self.owner(HashSlot::of(itoa::Buffer::new().format(*number).as_bytes())) == Some(index)
        };
        (0..MAX_TAGS).find(falls)
    }

    fn add(&mut self, server: RedisServer) -> Option<u16> {
        let index = u16::try_from(self.masters.len()).ok()?;
        (self.masters.len() < MAX_NODES).then(|| self.masters.push(server))?;
        Some(index)
    }
}

fn list(value: &RespValue) -> Option<&[RespValue]> {
    match value {
        RespValue::List(list) => Some(list),
        RespValue::Integers(integers) if integers.is_empty() => Some(&[]),
        _ => None,
    }
}

/// Reads a node: host, port, and optional further data. A missing or unknown host is the teller's.
fn read_server(value: &RespValue, teller: &RedisServer) -> Option<RedisServer> {
    let [host, RespValue::Integer(port), ..] = list(value)? else { return None };
    let host = match host {
        RespValue::Nothing => teller.host.clone(),
        RespValue::Bytes(host) if host.is_empty() || **host == *b"?" => teller.host.clone(),
        RespValue::Bytes(host) => std::str::from_utf8(host).ok()?.into(),
        _ => return None,
    };
    Some(RedisServer { host, port: u16::try_from(*port).ok()? })
}

/// A worker's slot map, and the request for a newer one.
#[derive(Debug)]
pub(super) struct SharedSlotMap {
    /// Never borrowed across a wait.
    pub(super) map: RefCell<SlotMap>,
    suspicion: Notify,
}

impl SharedSlotMap {
    /// A map in which no slot has a node.
    pub(super) fn new() -> Self {
        Self { map: RefCell::new(SlotMap::new()), suspicion: Notify::new() }
    }

    /// Requests a new map, since this one may be wrong.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Ready once a new map was requested.
    pub(super) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// Replaces the map: returns the old one. `None` if both are the same.
    pub(super) fn replace(&self, map: SlotMap) -> Option<SlotMap> {
        let mut known = self.map.borrow_mut();
        (*known != map).then(|| std::mem::replace(&mut *known, map))
    }
}

#[cfg(test)]
mod tests {
    use super::super::resp;
    use super::*;

    fn server(host: &str, port: u16) -> RedisServer {
        RedisServer { host: host.into(), port }
    }

    fn slot(number: u16) -> HashSlot {
        HashSlot::new(number).unwrap()
    }

    #[test]
    fn a_map_is_read_and_learned() {
        let node = |host: &str, port| format!("*3\r\n{host}\r\n:{port}\r\n$2\r\nid\r\n");
        let reply = [
            "*4\r\n".to_owned(),
            format!("*4\r\n:0\r\n:99\r\n{}{}", node("$1\r\na", 1), node("$7\r\nreplica", 9)),
            format!("*3\r\n:100\r\n:199\r\n{}", node("$0\r\n", 2)),
            format!("*3\r\n:200\r\n:299\r\n{}", node("$-1", 3)),
            format!("*3\r\n:300\r\n:16383\r\n{}", node("$1\r\na", 1)),
        ];
        let (reply, _) = resp::read(reply.concat().as_bytes()).unwrap().unwrap();
        let mut map = SlotMap::read(&reply, &server("asked", 7)).unwrap();
        assert_eq!(map.masters(), [server("a", 1), server("asked", 2), server("asked", 3)]);
        let owners = [0, 99, 100, 199, 200, 299, 300, 16_383].map(|number| map.owner(slot(number)).unwrap());
        assert_eq!(owners, [0, 0, 1, 1, 2, 2, 0, 0]);

        for master in map.masters().to_vec() {
            let tag = map.tag_of(&master).unwrap().to_string();
            assert_eq!(map.masters()[map.owner(HashSlot::of(tag.as_bytes())).unwrap()], master);
        }
        assert_eq!(map.learn(slot(5), &server("new", 4)), Some(3));
        assert_eq!(map.learn(slot(6), &server("a", 1)), Some(0));
        assert_eq!((map.owner(slot(5)), map.owner(slot(6))), (Some(3), Some(0)));
        assert_eq!(map.tag_of(&server("unknown", 1)), None);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for reply in [
            "+OK\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*2\r\n:0\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:9\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n",
        ] {
            let (value, _) = resp::read(reply.as_bytes()).unwrap().unwrap();
            assert_eq!(SlotMap::read(&value, &server("a", 1)), None, "{reply}");
        }
        assert_eq!(SlotMap::new().owner(slot(0)), None);
        let mut map = SlotMap::new();
        let learned = (0..2_000).map_while(|port| map.learn(slot(port), &server("a", port))).count();
        assert_eq!(learned, MAX_NODES);
    }
}
