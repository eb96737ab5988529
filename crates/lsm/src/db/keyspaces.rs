//! The open keyspaces by number and name. Immutable; replaced whole when one is made or dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::db::DEFAULT_KEYSPACE;
use crate::view::KeyspaceState;

/// The keyspaces of an open store.
#[derive(Clone)]
pub struct Keyspaces {
    by_id: BTreeMap<u32, Arc<KeyspaceState>>,
    default: Arc<KeyspaceState>,
}

impl Keyspaces {
    /// The keyspaces `all`; `None` if the default one is not among them.
    pub fn new(all: impl IntoIterator<Item = Arc<KeyspaceState>>) -> Option<Self> {
        let by_id: BTreeMap<u32, Arc<KeyspaceState>> = all.into_iter().map(|one| (one.id, one)).collect();
        let default = by_id.values().find(|one| one.name == DEFAULT_KEYSPACE).map(Arc::clone)?;
        Some(Self { by_id, default })
    }

    /// The keyspace of this number.
    pub fn by_id(&self, id: u32) -> Option<&Arc<KeyspaceState>> {
        if id == self.default.id { Some(&self.default) } else { self.by_id.get(&id) }
    }

    /// The keyspace of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<KeyspaceState>> {
        self.by_id.values().find(|one| one.name == name)
    }

    /// Whether there is another keyspace than the default one.
    pub fn are_several(&self) -> bool {
        self.by_id.len() > 1
    }

    /// The keyspace "default".
    pub fn default_one(&self) -> Arc<KeyspaceState> {
        Arc::clone(&self.default)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<KeyspaceState>> {
        self.by_id.values()
    }

    /// Names, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_id.values().map(|one| one.name.clone()).collect();
        names.sort();
        names
    }

    /// With `one` added.
    pub fn with(&self, one: Arc<KeyspaceState>) -> Self {
        let mut next = self.clone();
        next.by_id.insert(one.id, one);
        next
    }

    /// Without the one of this number.
    pub fn without(&self, id: u32) -> Self {
        let mut next = self.clone();
        next.by_id.remove(&id);
        next
    }
}
