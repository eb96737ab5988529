//! An edit: everything that changes in one install, over all keyspaces and both tiers, all or nothing.
//!
//! Encoded as records of tag, length and payload (docs/formats/manifest.md). A tag this version does not know is
//! refused, unless its bit 6 says that skipping it is safe. Tests: below, and `manifest.rs`.

use kelvin_base::coding::{get_bytes, get_varint, put_bytes, put_varint};
use kelvin_base::{Error, ErrorKind, Result, Sequence};

use super::{FIRST_SLOW, HOT_RUNS, LEVELS, LEVELS_FAST, StoreId, TableMeta, is_hot_run};

const STORE: u64 = 1;
const NEXT_FILE_NUMBER: u64 = 2;
const LAST_SEQUENCE: u64 = 3;
const NEXT_KEYSPACE: u64 = 4;
const CREATE_KEYSPACE: u64 = 5;
const DROP_KEYSPACE: u64 = 6;
const WAL_NUMBER: u64 = 7;
const REMOVE_TABLE: u64 = 8;
const ADD_TABLE: u64 = 9;
/// Levels on disk: those of the tree in order, the hot level's runs after them.
const HOT_ON_DISK: usize = LEVELS - HOT_RUNS;
/// Tags with this bit may be skipped by versions that do not know them.
const SKIPPABLE: u64 = 0x40;

/// A keyspace as the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceEntry {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The oldest WAL that may hold a write of it that is in no table.
    pub wal_number: u64,
}

/// What changes in one install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Who the store is; in the first edit of every manifest, and when the epoch changes.
    pub store: Option<StoreId>,
    /// Keyspaces made.
    pub created: Vec<KeyspaceEntry>,
    /// Numbers of keyspaces dropped, with everything in them.
    pub dropped: Vec<u32>,
    /// Tables removed: keyspace, level, number.
    pub removed: Vec<(u32, usize, u64)>,
    /// Tables added: keyspace, level, facts. A table moved to another level is removed and added.
    pub added: Vec<(u32, usize, TableMeta)>,
    /// By keyspace, the oldest WAL that may hold a write of it that is in no table.
    pub wal_numbers: Vec<(u32, u64)>,
    /// No file has this number or a larger one.
    pub next_file_number: Option<u64>,
    /// No keyspace ever had this number or a larger one.
    pub next_keyspace: Option<u32>,
    /// Every sequence number in a table is at most this.
    pub last_sequence: Option<Sequence>,
}

impl Edit {
    /// Makes a keyspace whose writes begin in WAL `wal_number`.
    pub fn create_keyspace(&mut self, id: u32, name: &str, wal_number: u64) {
        self.created.push(KeyspaceEntry { id, name: name.to_string(), wal_number });
        self.next_keyspace = self.next_keyspace.max(id.checked_add(1));
    }

    /// Drops a keyspace and its tables.
    pub fn drop_keyspace(&mut self, id: u32) {
        self.dropped.push(id);
    }

    /// Adds a table.
    pub fn add(&mut self, keyspace: u32, level: usize, meta: TableMeta) {
        self.added.push((keyspace, level, meta));
    }

    /// Removes a table.
    pub fn remove(&mut self, keyspace: u32, level: usize, number: u64) {
        self.removed.push((keyspace, level, number));
    }

    /// Says that no WAL older than `wal_number` holds a write of `keyspace` that is in no table.
    pub fn set_wal_number(&mut self, keyspace: u32, wal_number: u64) {
        self.wal_numbers.push((keyspace, wal_number));
    }

    /// Raises the last sequence number.
    pub fn set_last_sequence(&mut self, sequence: Sequence) {
        self.last_sequence = self.last_sequence.max(Some(sequence));
    }

    /// Numbers of the keyspaces it concerns, each once, sorted.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.created.iter().map(|entry| entry.id).collect();
        all.extend(self.removed.iter().map(|(keyspace, ..)| *keyspace));
        all.extend(self.added.iter().map(|(keyspace, ..)| *keyspace));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Appends the encoded edit to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        let mut record = |tag: u64, fill: &dyn Fn(&mut Vec<u8>)| {
            payload.clear();
            fill(&mut payload);
            put_varint(out, tag);
            put_bytes(out, &payload);
        };
        if let Some(store) = self.store {
            record(STORE, &|out| {
                out.extend_from_slice(&store.uuid);
                put_varint(out, store.epoch);
            });
        }
        let next_keyspace = self.next_keyspace.map(u64::from);
        let figures = [
            (NEXT_FILE_NUMBER, self.next_file_number),
            (LAST_SEQUENCE, self.last_sequence),
            (NEXT_KEYSPACE, next_keyspace),
        ];
        for (tag, figure) in figures {
            if let Some(figure) = figure {
                record(tag, &|out| put_varint(out, figure));
            }
        }
        for id in &self.dropped {
            record(DROP_KEYSPACE, &|out| put_varint(out, u64::from(*id)));
        }
        for entry in &self.created {
            record(CREATE_KEYSPACE, &|out| {
                put_varint(out, u64::from(entry.id));
                put_varint(out, entry.wal_number);
                put_bytes(out, entry.name.as_bytes());
            });
        }
        for (keyspace, number) in &self.wal_numbers {
            record(WAL_NUMBER, &|out| put_pair(out, *keyspace, *number));
        }
        for (keyspace, level, number) in &self.removed {
            record(REMOVE_TABLE, &|out| {
                put_level(out, *keyspace, *level);
                put_varint(out, *number);
            });
        }
        for (keyspace, level, meta) in &self.added {
            record(ADD_TABLE, &|out| {
                put_level(out, *keyspace, *level);
                meta.encode(out);
            });
        }
    }

    /// Decodes an edit that fills `input`.
    ///
    /// # Errors
    /// `Corruption` if a record is cut off or malformed; `InvalidArgument` for a record of a newer version.
    pub fn decode(mut input: &[u8]) -> Result<Self> {
        let mut edit = Self::default();
        let len = input.len();
        while !input.is_empty() {
            let at = len - input.len();
            let malformed = || {
                Error::new(
                    ErrorKind::Corruption,
                    format!("a manifest record is malformed at byte {at} of its edit"),
                )
            };
            let tag = get_varint(&mut input).ok_or_else(malformed)?;
            let mut payload = get_bytes(&mut input).ok_or_else(malformed)?;
            if !(STORE..=ADD_TABLE).contains(&tag) {
                if tag & SKIPPABLE != 0 {
                    continue;
                }
                return Err(Error::invalid(format!(
                    "the manifest has a record of tag {tag}, which this version does not know"
                ))
                .advice("open the store with the version that wrote it, or a newer one"));
            }
            edit.decode_record(tag, &mut payload).filter(|()| payload.is_empty()).ok_or_else(malformed)?;
        }
        Ok(edit)
    }

    fn decode_record(&mut self, tag: u64, input: &mut &[u8]) -> Option<()> {
        match tag {
            STORE => {
                let (uuid, rest) = input.split_first_chunk::<16>()?;
                *input = rest;
                self.store = Some(StoreId { uuid: *uuid, epoch: get_varint(input)? });
            }
            NEXT_FILE_NUMBER => self.next_file_number = Some(get_varint(input)?),
            LAST_SEQUENCE => self.last_sequence = Some(get_varint(input)?),
            NEXT_KEYSPACE => self.next_keyspace = Some(get_id(input)?),
            DROP_KEYSPACE => self.dropped.push(get_id(input)?),
            CREATE_KEYSPACE => {
                let (id, wal_number) = (get_id(input)?, get_varint(input)?);
                let name = std::str::from_utf8(get_bytes(input)?).ok()?.to_string();
                self.created.push(KeyspaceEntry { id, name, wal_number });
            }
            WAL_NUMBER => self.wal_numbers.push((get_id(input)?, get_varint(input)?)),
            REMOVE_TABLE => self.removed.push((get_id(input)?, get_level(input)?, get_varint(input)?)),
            ADD_TABLE => self.added.push((get_id(input)?, get_level(input)?, TableMeta::decode(input)?)),
            _ => return None,
        }
        Some(())
    }
}

fn put_pair(out: &mut Vec<u8>, keyspace: u32, second: u64) {
    put_varint(out, u64::from(keyspace));
    put_varint(out, second);
}

fn put_level(out: &mut Vec<u8>, keyspace: u32, level: usize) {
    let on_disk = match level {
        _ if is_hot_run(level) => level - LEVELS_FAST + HOT_ON_DISK,
        _ if level >= FIRST_SLOW => level - HOT_RUNS,
        _ => level,
    };
    put_pair(out, keyspace, on_disk as u64);
}

fn get_id(input: &mut &[u8]) -> Option<u32> {
    u32::try_from(get_varint(input)?).ok()
}

fn get_level(input: &mut &[u8]) -> Option<usize> {
    let on_disk = usize::try_from(get_varint(input)?).ok().filter(|level| *level < LEVELS)?;
    Some(match on_disk {
        _ if on_disk >= HOT_ON_DISK => on_disk - HOT_ON_DISK + LEVELS_FAST,
        _ if on_disk >= LEVELS_FAST => on_disk + HOT_RUNS,
        _ => on_disk,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{full_edit, meta};
    use super::*;

    #[test]
    fn an_edit_round_trips_and_every_cut_of_it_is_refused_or_shorter() {
        let edit = full_edit();
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        assert_eq!(Edit::decode(&bytes).unwrap(), edit);
        for cut in 0..bytes.len() {
            if let Ok(shorter) = Edit::decode(&bytes[..cut]) {
                assert_ne!(shorter, edit, "cut at {cut}");
            }
        }
    }

    #[test]
    fn no_flipped_bit_makes_the_decoder_panic() {
        let mut bytes = Vec::new();
        full_edit().encode(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _either_way = Edit::decode(&bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn an_unknown_record_is_refused_by_its_tag_unless_it_may_be_skipped() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 0x2a);
        put_bytes(&mut bytes, b"news");
        let error = Edit::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains("tag 42"), "{error}");
        bytes.clear();
        put_varint(&mut bytes, 0x2a | SKIPPABLE);
        put_bytes(&mut bytes, b"news");
        assert_eq!(Edit::decode(&bytes).unwrap(), Edit::default());
    }

    #[test]
    fn a_table_whose_range_is_empty_is_refused() {
        let mut edit = Edit::default();
        edit.add(1, 2, meta(7, "m", "c"));
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        assert_eq!(Edit::decode(&bytes).unwrap_err().kind(), ErrorKind::Corruption);
    }
}
