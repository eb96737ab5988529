//! Checks a whole table: every byte is read and under its checksum, every fact agrees with the entries.
//!
//! One error for each damaged block, so that a report says all that is lost; facts are compared only where every
//! block could be read. Tests: `tests/table/reader.rs`, `tests/table/damage.rs`.

use kelvin_base::hash64;
use kelvin_base::key::{append_internal, compare_internal};
use kelvin_base::{Error, Result, SEQUENCE_MAX};

use crate::block::{Block, Malformed};
use crate::format::Handle;
use crate::lookup::ReadIo;
use crate::properties::Properties;
use crate::reader::{Table, is_damage};

/// Bytes read at once.
const READ_BYTES: u64 = 1 << 20;

/// What the entries were found to be.
#[derive(Debug)]
struct Walk {
    found: Properties,
    /// Internal key of the last entry.
    last: Vec<u8>,
    /// Scratch: user key, and internal key, of the entry at hand.
    key: Vec<u8>,
    internal: Vec<u8>,
}

impl Table {
    /// Reads every byte of the file and checks it: checksums, the order of the entries, index, filter and counts.
    /// Answers the damage found, one error a damaged block.
    #[must_use]
    pub fn verify(&self) -> Vec<Error> {
        let mut damage = Vec::new();
        damage.extend(self.check_tail().err());
        let found = Properties { sequence_min: SEQUENCE_MAX, ..Properties::default() };
        let mut walk = Walk { found, last: Vec::new(), key: Vec::new(), internal: Vec::new() };
        let mut number = 0;
        while let Some(handles) = self.chunk(number) {
            self.verify_chunk(number, &handles, &mut walk, &mut damage);
            number += handles.len();
        }
        if damage.is_empty() {
            damage.extend(self.check_facts(&walk.found).err());
        }
        damage
    }

    /// The blocks from `number` on that are read together; `None` behind the last.
    fn chunk(&self, number: usize) -> Option<Vec<Handle>> {
        let first = self.index().handle(number)?;
        let mut handles = vec![first];
        while let Some(next) = self.index().handle(number + handles.len())
            && next.offset + next.len_with_trailer() as u64 - first.offset <= READ_BYTES
        {
            handles.push(next);
        }
        Some(handles)
    }

    fn verify_chunk(&self, number: usize, handles: &[Handle], walk: &mut Walk, damage: &mut Vec<Error>) {
        let mut io = ReadIo::default();
        // The cache is passed by: what matters is what the device holds.
        let together = self.blocks(handles, false, &mut io);
        if matches!(&together, Err(error) if is_damage(error)) && handles.len() > 1 {
            for (at, handle) in handles.iter().enumerate() {
                self.verify_chunk(number + at, &[*handle], walk, damage);
            }
            return;
        }
        let outcome = together.and_then(|blocks| {
            handles.iter().zip(blocks).enumerate().try_for_each(|(at, (handle, block))| {
                self.walk(number + at, &block, walk)
                    .map_err(|what| Error::corruption(self.path(), handle.offset, what))
            })
        });
        damage.extend(outcome.err());
    }

    /// Walks a block's entries.
    fn walk(&self, number: usize, block: &Block, walk: &mut Walk) -> Result<(), Malformed> {
        let entries = block.entries();
        let mut offset = 0;
        walk.key.clear();
        while offset < entries.end() {
            let entry = entries.entry(offset)?;
            if entry.shared > walk.key.len() {
                return Err("an entry shares more than the key before it has");
            }
            walk.key.truncate(entry.shared);
            walk.key.extend_from_slice(entry.unshared);
            walk.internal.clear();
            append_internal(&mut walk.internal, &walk.key, entry.trailer);
            if walk.found.entries > 0 && compare_internal(&walk.last, &walk.internal).is_ge() {
                return Err("entries are out of order");
            }
            std::mem::swap(&mut walk.last, &mut walk.internal);
            walk.found.see(&walk.key, entry.trailer, entry.value)?;
            if !self.may_contain(hash64(&walk.key)) {
                return Err("the filter excludes a key that the table has");
            }
            if self.index().seek(&walk.key, entry.trailer) != number {
                return Err("the index leads to another block than the one that holds an entry");
            }
            offset = entry.next;
        }
        walk.found.data_blocks += 1;
        Ok(())
    }

    fn check_facts(&self, found: &Properties) -> Result<()> {
        let says = self.properties();
        let wrong = |what: &str, said: u64, found: u64| {
            Err(Error::corruption(self.path(), 0, format!("a table has not the {what} that it says"))
                .expected(said, found))
        };
        let pairs = [
            ("number of entries", says.entries, found.entries),
            ("number of deletions", says.deletions, found.deletions),
            ("number of copies", says.copies, found.copies),
            ("number of expiring entries", says.expiring, found.expiring),
            ("earliest expiry", says.expiry_min_ms, found.expiry_min_ms),
            ("latest expiry", says.expiry_max_ms, found.expiry_max_ms),
            ("bytes of keys", says.key_bytes, found.key_bytes),
            ("bytes of values", says.value_bytes, found.value_bytes),
            ("number of blocks", says.data_blocks, found.data_blocks),
        ];
        for (what, said, found) in pairs {
            if said != found {
                return wrong(what, said, found);
            }
        }
        if found.entries > 0
            && (found.sequence_min < says.sequence_min || found.sequence_max > says.sequence_max)
        {
            return wrong("sequence numbers", says.sequence_max, found.sequence_max);
        }
        Ok(())
    }
}
