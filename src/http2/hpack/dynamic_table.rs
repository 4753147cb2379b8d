//! The dynamic table (RFC 7541 §2.3.2 and §4).

use std::collections::VecDeque;
use std::fmt;

/// Bytes that an entry counts besides its name and value (§4.1).
const ENTRY_OVERHEAD: usize = 32;
/// Upper bound of the limit, as offsets are kept in 32 bits.
const MAX_LIMIT: usize = 1 << 30;

/// Entries with the newest first.
///
/// Names and values of all entries stand in one buffer, the oldest first. Evicted entries are removed from it when it
/// is full, so that most insertions move no other entry. An empty table owns no heap memory.
pub(super) struct DynamicTable {
    entries: VecDeque<TableEntry>,
    /// Texts of evicted entries, then those of the entries.
    texts: Vec<u8>,
    /// Bytes of the entries as HPACK counts them, at most `max_size`.
    size: usize,
    /// As the last size update says, at most `limit`.
    max_size: usize,
    /// Upper bound of `max_size`. `texts` has at most twice as many bytes.
    limit: usize,
}

/// Where an entry stands in the texts.
#[derive(Clone, Copy)]
struct TableEntry {
    name: u32,
    value: u32,
    end: u32,
}

/// The name of a new entry.
#[derive(Clone, Copy)]
pub(super) enum TableName<'a> {
    Literal(&'a [u8]),
    /// The name of the entry at this index.
    Entry(usize),
}

impl TableEntry {
    fn size(self) -> usize {
        (self.end - self.name) as usize + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    pub(super) fn new(max_size: usize, limit: usize) -> Self {
        let limit = limit.min(MAX_LIMIT);
        let max_size = max_size.min(limit);
        Self { entries: VecDeque::new(), texts: Vec::new(), size: 0, max_size, limit }
    }

    /// Name and value of the entry at `index`; the newest has index 0.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        let name = self.texts.get(entry.name as usize..entry.value as usize)?;
        let value = self.texts.get(entry.value as usize..entry.end as usize)?;
        Some((name, value))
    }

    /// Sets the maximum size in bytes and evicts the entries beyond it. Whether the limit allows that size.
    pub(super) fn resize(&mut self, max_size: usize) -> bool {
        if max_size > self.limit {
            return false;
        }
        self.max_size = max_size;
        self.evict_to(max_size);
        if self.entries.is_empty() {
            self.clear();
        }
        true
    }

    /// Evicts all entries and frees their memory.
    fn clear(&mut self) {
        (self.entries, self.texts, self.size) = (VecDeque::new(), Vec::new(), 0);
    }

    /// Inserts an entry as the newest and evicts the oldest ones beyond the maximum size. An entry that is larger than
    /// that empties the table. `None`: the name refers to no entry.
    pub(super) fn insert(&mut self, name: TableName<'_>, value: &[u8]) -> Option<()> {
        let name_length = match name {
            TableName::Literal(name) => name.len(),
            TableName::Entry(index) => self.get(index)?.0.len(),
        };
        let length = name_length.saturating_add(value.len());
        let Some(room) = self.max_size.checked_sub(length.saturating_add(ENTRY_OVERHEAD)) else {
            self.clear();
            return Some(());
        };
        self.make_room(length);
        let start = self.texts.len();
        // The name is copied before the entry that it refers to may be evicted (§4.4).
        match name {
            TableName::Literal(name) => self.texts.extend_from_slice(name),
            TableName::Entry(index) => {
                let entry = *self.entries.get(index)?;
                self.texts.extend_from_within(entry.name as usize..entry.value as usize);
            }
        }
        self.texts.extend_from_slice(value);
        self.evict_to(room);
        let [name, value, end] = [start, start + name_length, start + length].map(u32::try_from);
        let entry = TableEntry { name: name.ok()?, value: value.ok()?, end: end.ok()? };
        self.size += entry.size();
        self.entries.push_front(entry);
        Some(())
    }

    /// Evicts the oldest entries until the others have at most `size` bytes.
    fn evict_to(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
    }

    /// Makes room for `length` bytes in the texts, where the limit is a bound of `length`.
    ///
    /// Texts of evicted entries are removed if they have as many bytes as the others, or if the buffer may not grow.
    /// The bytes that are moved are at most those of evicted entries and of the new one, so an insertion takes constant
    /// time for each byte.
    fn make_room(&mut self, length: usize) {
        let max_capacity = 2 * self.limit;
        if self.texts.len() + length <= self.texts.capacity() {
            return;
        }
        let evicted = self.entries.back().map_or(self.texts.len(), |oldest| oldest.name as usize);
        if 2 * evicted >= self.texts.len() || self.texts.len() + length > max_capacity {
            self.remove_evicted(evicted);
        }
        let needed = self.texts.len() + length;
        let capacity = needed.max((2 * self.texts.capacity()).min(max_capacity));
        if needed > self.texts.capacity() {
            self.texts.reserve_exact(capacity - self.texts.len());
        }
    }

    fn remove_evicted(&mut self, evicted: usize) {
        self.texts.drain(..evicted);
        // Offsets of the entries are at least those of the oldest, and fit into 32 bits.
        let evicted = u32::try_from(evicted).unwrap_or(u32::MAX);
        for entry in &mut self.entries {
            entry.name -= evicted;
            entry.value -= evicted;
            entry.end -= evicted;
        }
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.texts.capacity() + self.entries.capacity() * size_of::<TableEntry>()
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

/// Names and values are left out, as they may be secret.
impl fmt::Debug for DynamicTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.len();
        formatter.debug_struct("DynamicTable").field("entries", &entries).field("size", &self.size).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn insert(table: &mut DynamicTable, name: &str, value: &str) {
        table.insert(TableName::Literal(name.as_bytes()), value.as_bytes()).unwrap();
    }

    #[test]
    fn an_entry_may_take_its_name_from_the_entry_it_evicts() {
        let mut table = DynamicTable::new(40, 40);
        insert(&mut table, "name", "old");
        table.insert(TableName::Entry(0), b"new").unwrap();
        assert_eq!(table.get(0), Some((&b"name"[..], &b"new"[..])));
        assert_eq!(table.get(1), None);
        assert_eq!(table.insert(TableName::Entry(1), b""), None);
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(40, 40);
        insert(&mut table, "name", "valu");
        assert_eq!(table.size(), 40);
        insert(&mut table, "name", "value");
        assert_eq!((table.get(0), table.size()), (None, 0));
    }

    #[test]
    fn an_empty_table_owns_no_memory() {
        let mut table = DynamicTable::new(4096, 4096);
        assert_eq!(table.memory(), 0);
        insert(&mut table, "name", "value");
        assert!(table.resize(0));
        assert_eq!(table.memory(), 0);
        assert!(!table.resize(4097));
    }

    proptest! {
        #[test]
        fn the_table_is_a_bounded_queue(
            limit in 0_usize..300,
            steps in prop::collection::vec((0_usize..120, 0_usize..120, any::<u8>(), 0_usize..9, 0_usize..400), 0..200),
        ) {
            let mut table = DynamicTable::new(limit, limit);
            let (mut model, mut max) = (VecDeque::<(Vec<u8>, Vec<u8>)>::new(), limit);
            let size = |model: &VecDeque<(Vec<u8>, Vec<u8>)>| {
                model.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
            };
            for (name, value, byte, index, resize) in steps {
                if resize < 50 {
                    prop_assert_eq!(table.resize(resize), resize <= limit);
                    max = if resize <= limit { resize } else { max };
                } else {
                    let (literal, value) = (vec![byte; name], vec![!byte; value]);
                    let known = model.get(index).map(|(name, _)| name.clone());
                    let name = if known.is_some() { TableName::Entry(index) } else { TableName::Literal(&literal) };
                    table.insert(name, &value).unwrap();
                    model.push_front((known.unwrap_or(literal.clone()), value));
                }
                while size(&model) > max {
                    model.pop_back();
                }
                prop_assert_eq!(table.size(), size(&model));
                for (index, (name, value)) in model.iter().enumerate() {
                    prop_assert_eq!(table.get(index), Some((&name[..], &value[..])));
                }
                prop_assert_eq!(table.get(model.len()), None);
                prop_assert!(table.texts.capacity() <= 2 * limit.max(8));
            }
        }
    }
}
