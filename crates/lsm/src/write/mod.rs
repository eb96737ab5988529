//! The write path: back-pressure → group → sequence → WAL → memtable → publish.
//!
//! It touches no cache and no policy (DESIGN section 5). Invariants
//! - W1 Only the leader touches [`Log`]; sequence numbers are given in the order of WAL records.
//! - W2 An acknowledgement follows the level asked for, never precedes it (promise 1).
//! - W3 A failed WAL write uses up no sequence number and spoils its file: the next group starts a new file, so
//!   that nothing is ever appended behind a doubtful tail.
//! - W4 A failed WAL sync turns the store read-only (promise 9).
//!
//! Tests: `db/tests`, the crash test and the model test.

pub mod group;
pub mod log;
pub mod publish;
pub(crate) mod room;
pub mod stall;

use std::sync::Arc;

use kelvin_base::{RangeTombstone, Result, Sequence};
use smallvec::SmallVec;

use crate::batch::{BatchOp, WriteBatch};
use crate::db::engine::Engine;
use crate::db::keyspaces::Keyspaces;
use crate::memtable::MemTable;
use crate::options::Durability;
use crate::write::group::{Joined, Pending};

/// Checked by the leader, with every earlier write visible, before the batch gets its sequence numbers.
pub type Guard<'a> = &'a dyn Fn() -> Result<()>;

type Targets = SmallVec<[(u32, Arc<MemTable>); 2]>;

impl Engine {
    /// Commits `batch` at `durability` and answers its last sequence number once it is visible.
    ///
    /// # Errors
    /// `ReadOnly` after a failed sync, `NoSpace` with a full tier, or the WAL's error. The batch is then not visible; after a
    /// crash it may or may not be there as a whole, until something else was acknowledged: then it never is.
    pub fn commit(&self, batch: WriteBatch, durability: Durability) -> Result<Sequence> {
        self.commit_guarded(batch, durability, None)
    }

    /// As [`Self::commit`], if `guard` lets it.
    ///
    /// # Errors
    /// As [`Self::commit`], and the guard's.
    pub fn commit_guarded(
        &self,
        batch: WriteBatch,
        durability: Durability,
        guard: Option<Guard<'_>>,
    ) -> Result<Sequence> {
        if batch.is_empty() {
            return guard.map_or(Ok(()), |guard| guard()).map(|()| self.publisher.visible());
        }
        self.health.check_writable()?;
        self.wait_for_room(batch.bytes().len())?;
        let me = Arc::new(if guard.is_some() {
            Pending::alone(batch, durability)
        } else {
            Pending::new(batch, durability)
        });
        let group = match self.queue.join(&me) {
            Joined::Done(outcome) => return outcome,
            Joined::Leads(group) => group,
        };
        let logged = self.lead(&group, guard);
        self.queue.hand_over();
        match logged {
            Ok((first, last, targets)) => {
                insert_group(&group, first, &targets);
                self.publisher.inserted(last);
                me.wait_done()
            }
            Err(error) => {
                for member in &group {
                    member.finish(Err(error.clone()));
                }
                Err(error)
            }
        }
    }

    /// The leader's part: memtables with room, guard, sequence numbers, WAL. Answers the group's first and last
    /// sequence number and the memtables to insert into.
    fn lead(
        &self,
        group: &[Arc<Pending>],
        guard: Option<Guard<'_>>,
    ) -> Result<(Sequence, Sequence, Targets)> {
        let mut log = self.log.lock();
        self.health.check_writable()?;
        let targets = self.make_room(&mut log, group)?;
        if let Some(guard) = guard {
            self.publisher.wait_visible(log.last_sequence);
            guard()?;
        }
        let first = log.last_sequence + 1;
        let mut next = first;
        let mut durability = Durability::Memory;
        let mut bytes = 0;
        for member in group {
            log.append(next, &member.batch, self)?;
            next += u64::from(member.batch.count());
            bytes += member.batch.bytes().len() as u64;
            durability = durability.max(member.durability);
        }
        if log.is_overlong(self.config.memtable_bytes) {
            self.account_logs();
        }
        log.make_durable(durability, self)?;
        log.last_sequence = next - 1;
        let writes = &self.counters.writes;
        writes.groups.add(1);
        writes.operations.add(next - first);
        writes.bytes.add(bytes);
        self.publisher.enqueue(next - 1, group.to_vec());
        Ok((first, next - 1, targets))
    }

    /// The keyspace whose memtable is the largest, if those that take writes fill half the write buffers' budget together:
    /// many keyspaces share the memory that one has.
    fn largest_of_too_much(&self) -> Option<u32> {
        let keyspaces = self.keyspaces.load();
        if !keyspaces.are_several() {
            // Its memtable is sealed when it is full, which is before that.
            return None;
        }
        let sizes = || keyspaces.iter().map(|one| (one.peek().mem.memory_bytes(), one.id));
        let all: u64 = sizes().map(|(bytes, _)| bytes).sum();
        if all < self.open_memtables_bytes_max(&keyspaces) { None } else { sizes().max().map(|(_, id)| id) }
    }

    /// What the memtables that take writes may come to together, bytes, before one is sealed.
    pub(crate) fn open_memtables_bytes_max(&self, keyspaces: &Keyspaces) -> u64 {
        let one = self.config.memtable_bytes;
        if keyspaces.are_several() { (self.config.memtable_budget_bytes / 2).max(one) } else { one }
    }

    /// The memtable of every keyspace the group writes, each with room: full ones are sealed.
    fn make_room(&self, log: &mut log::Log, group: &[Arc<Pending>]) -> Result<Targets> {
        let mut ids: SmallVec<[u32; 2]> = SmallVec::new();
        for member in group {
            for id in member.batch.keyspaces() {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        let keyspaces = self.keyspaces.load();
        let mut full: SmallVec<[u32; 2]> = SmallVec::new();
        for &id in &ids {
            // A keyspace dropped meanwhile takes no writes: they are as good as dropped with it.
            if let Some(keyspace) = keyspaces.by_id(id)
                && keyspace.peek().mem.memory_bytes() >= self.config.memtable_bytes
            {
                full.push(id);
            }
        }
        if full.is_empty() {
            full.extend(self.largest_of_too_much());
        }
        let starts_anew = log.is_spoilt();
        if starts_anew {
            self.start_anew(log)?;
        }
        if !full.is_empty() || starts_anew && self.has_too_many_logs() {
            self.rotate(log, &full)?;
        }
        let mem = |&id: &u32| Some((id, Arc::clone(&keyspaces.by_id(id)?.peek().mem)));
        Ok(ids.iter().filter_map(mem).collect())
    }
}

fn insert_group(group: &[Arc<Pending>], first: Sequence, targets: &Targets) {
    let mut sequence = first;
    for member in group {
        for op in member.batch.ops() {
            let (BatchOp::Point { keyspace, .. } | BatchOp::RangeDelete { keyspace, .. }) = op;
            if let Some((_, mem)) = targets.iter().find(|(id, _)| *id == keyspace) {
                insert(mem, sequence, op);
            }
            sequence += 1;
        }
    }
}

/// Puts one operation into a memtable.
pub fn insert(mem: &MemTable, sequence: Sequence, op: BatchOp<'_>) {
    match op {
        BatchOp::Point { key, kind_byte, stored, .. } => mem.insert(key, sequence, kind_byte, stored),
        BatchOp::RangeDelete { start, end, .. } => mem.insert_tombstone(RangeTombstone {
            start: bytes::Bytes::copy_from_slice(start),
            end: bytes::Bytes::copy_from_slice(end),
            sequence,
        }),
    }
}
