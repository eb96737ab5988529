//! The sorted table: data blocks, index, filter, range tombstones and properties in one immutable file.
//!
//! Reading order: [`block`] (entries), [`index`], [`filter`], [`fragments`] (range tombstones), [`format`] (trailers and
//! footer), [`writer`], [`reader`], [`iter`]. The bytes are described in docs/formats/table.md.

pub mod block;
pub mod filter;
pub mod format;
pub mod fragments;
pub mod fuzz;
pub mod index;
pub mod iter;
pub mod lookup;
pub mod properties;
pub mod reader;
pub mod remains;
pub mod verify;
pub mod writer;

pub use block::Block;
pub use format::Compression;
pub use fragments::{Fragment, Fragments};
pub use iter::{ScanOptions, TableIter};
pub use lookup::{BlockCache, LookupKey, ReadIo, TableEntry};
pub use properties::Properties;
pub use reader::Table;
pub use remains::Remains;
pub use writer::{TableOptions, TableWriter};
