//! The promotion cache: records lately read from the slow tier, kept in memory between the fast levels and the slow
//! ones (HotRAP §3.3). What a promotion by flush is writing is *frozen*, the rest is open to insertions: the paper's immutable and mutable promotion
//! cache. Tests: `tests.rs`, `hazards_tests.rs`, `compaction_tests.rs`, `storm_tests.rs`, `model_tests.rs`, `loom_tests.rs`.
//!
//! A lookup that no fast level has answered asks it before the hot level, whose copies say the same, and before the slow
//! levels. So a record in it must never hide a newer version that lies in a slow level; one above hides the record. Words: the *slow part* of a version are its levels from
//! [`FIRST_SLOW`](crate::version::FIRST_SLOW) on; what it *answers* for a key is the newest entry of the key there, or the
//! range tombstone that covers it.
//!
//! Invariants
//! - C1 What the slow part answers for a key depends on the one table of each slow level whose range holds the key, and on
//!   nothing else. Tables never change and their numbers never return: the same tables mean the same answer.
//! - C2 The slow part changes only by a compaction that writes it, and for a key only within the compaction's range, the
//!   extents of range tombstones included. What it answers for a key changes only if the compaction takes something of the key from the fast levels, or drops
//!   an entry that has expired: else the merge leaves the newest entry, or nothing where a tombstone or nothing was. Every such compaction makes a claim before it starts and
//!   releases it after its install or its failure. The claim *covers* the keys in the range of each table that comes from the fast levels, and of all others in the compaction's
//!   range records that expire. It *changes* of these those of which something may come down: a table of the fast levels whose filter excludes the key, and that has no range tombstone,
//!   brings nothing of it.
//! - C3 While a claim is in force, the cache holds no record that it changes: the claim keeps new ones out, and takes those
//!   out that it covers, before it returns.
//! - C4 An insertion looks at the claims and at the keyspace's version while it holds the gate shared, and a claim takes the
//!   gate exclusively to come into force. So no claim comes between the look and the insertion; and as without a
//!   claim that changes it nothing can be installed that changes the answer, what the version looked at answers is still what the one in force at the insertion does.
//! - C5 A record is inserted if no claim changes it, the newest entry of the slow part that the reader had pinned was
//!   read, and for each slow level the table that may hold the key is the one it was then in the version looked at, or there is none as there
//!   was none then. By C1 and C4 the slow part of now answers with that record.
//! - C6 From C2 to C5: as long as a record is in the cache, the slow part of the version in force answers for its key with
//!   exactly that record. Nothing newer is below it, and its original is.
//! - C7 What a failed compaction took comes back, only if no other claim covered the record at any time while the failed one
//!   was in force: the slow part then answers for its key what it did. A reader may have found it again meanwhile (C5): then it is there.
//!
//! - C8 What a compaction hands up ([`Lifted`]) comes in after its install and under its claim, with the checks of C7. It is the newest version of
//!   its key that the fast input had, no range tombstone covers it, and its original went to the slow part with that install, or lay
//!   there: the slow part answers with it.
//! - C9 What is frozen is in the cache: C3 and C6 hold for it, and a claim takes it out too. What thaws comes back as an insertion does: if no claim has taken it out, and none
//!   that is in force changes it.
//!
//! Why a lookup may use a record (k, s). It has a view, and a sequence number `at` with s ≤ at; the view's memtables and fast
//! levels hold nothing of k that it may see. The cache is asked later than the view was taken, so it may know more than
//! the view, never less: were a newer version of k that it may see in the view's slow part, then by C6 that would have had to leave
//! the slow part with s staying behind, which a merge never does. If s lies in the view, s is therefore its
//! answer. If it does not, s was written after the view was taken; a reader that fixed `at` first (snapshots,
//! transactions, `multi_get`) has every version up to `at` in its view, so this is a plain get, which took `at` last: s became
//! visible while that get ran and was then the newest version, which is an answer it may give. For the same reason a
//! deletion above a record never loses its hold: a merge drops it only if nothing older lies below, and the record's original
//! does (C6).
//!
//! Locks: the schedule's `work` → the gate → a shard → the room. Readers only try the gate and, to insert, a shard; nobody who holds
//! one of these waits for I/O.

mod cache;
mod claimed;
mod claims;
#[cfg(test)]
mod compaction_tests;
mod flush;
#[cfg(test)]
mod flush_tests;
#[cfg(test)]
mod hazards_tests;
mod lifted;
#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(test)]
mod model_tests;
mod room;
mod skew;
#[cfg(test)]
mod storm_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use cache::{Insertion, Promoted, PromotionCache};
#[cfg(test)]
pub(crate) use claimed::entries;
pub use claimed::{Claimed, Exchange};
pub use flush::Wants;
pub use lifted::Lifted;
pub use room::Room;
pub use skew::Skew;
