//! The write-ahead log: batches in commit order, in files that are replayed after a crash.
//!
//! A log is a file of 32 KiB blocks; a record (first sequence number and batch) is cut into fragments that do not
//! cross blocks. Each fragment's checksum covers its length, kind and payload and is seeded by the log's number and
//! the fragment's offset, so bytes of an older log in a recycled file, or of another place, are never accepted.
//!
//! What a reader makes of bytes that are no fragment depends on evidence. A *sync mark*, written as soon as a sync has
//! succeeded, says that everything before an offset was synced: bad bytes before a mark are `Corruption`. Bad bytes that
//! no mark vouches for are where an interrupted write (or an unsynced one that the disk reordered) ends the log: its
//! tail is *torn*.
//! Docs: docs/formats/wal.md. Reading order: [`format`], [`writer`], [`reader`], [`replay`], [`files`].
//! Tests: `tests/`.

pub mod files;
pub mod format;
pub mod reader;
pub mod replay;
#[cfg(test)]
mod tests;
pub mod writer;

pub use files::LogFiles;
pub use reader::{Tail, WalReader, WalRecord};
pub use replay::{Gap, ReplayRecord, Replayed, replay, replay_remains};
pub use writer::WalWriter;
