//! The two store traits that server, command line, workloads and bindings see.

use bytes::Bytes;

use crate::error::Result;

/// A key and its value, as a scan yields them.
pub type ScanItem = (Bytes, Bytes);

/// A store of point operations.
pub trait PointStore: Send + Sync {
    /// The value of `key`, or `None` if it has none.
    ///
    /// # Errors
    /// If a place that could hold the key cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// Sets the value of `key`.
    ///
    /// # Errors
    /// If the write is refused or not as durable as asked.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes `key`, which need not exist.
    ///
    /// # Errors
    /// If the write is refused or not as durable as asked.
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Replaces the value of `key` by what `change` makes of it, atomically; `None` removes it.
    ///
    /// # Errors
    /// As `get` and `put`.
    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()>;
}

/// What makes a new value (`None`: no value) of the one there is.
pub type Change<'a> = &'a mut (dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>> + 'a);

/// A store whose keys can be scanned in order.
pub trait OrderedStore: PointStore {
    /// Calls `each` with up to `limit` pairs from `start` on, in key order, until it answers false.
    ///
    /// # Errors
    /// If a place that could hold a key of the range cannot be read.
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;
}
