//! Model tests of the publication of views (`cargo xtask loom`).

use std::sync::Arc;

use kelvin_base::sync::model;
use kelvin_base::{Kind, Sequence};
use loom::thread;

use super::{KeyspaceState, View};
use crate::memtable::MemTable;
use crate::promotion::PromotionCache;
use crate::version::Version;
use crate::write::publish::Publisher;

const KEY: &[u8] = b"k";

fn version() -> Arc<Version> {
    Arc::new(Version::empty(1, false))
}

/// A keyspace with a memtable that takes writes, 2, and one that was sealed, 1.
fn keyspace() -> KeyspaceState {
    let view = View {
        mem: Arc::new(MemTable::new(2, 2)),
        imms: vec![Arc::new(MemTable::new(1, 1))],
        version: version(),
    };
    KeyspaceState::new(1, "one".into(), view, PromotionCache::OFF)
}

/// As a rotation of the log does.
fn seal(keyspace: &KeyspaceState) {
    keyspace.change_view(|view| View {
        mem: Arc::new(MemTable::new(3, 3)),
        imms: std::iter::once(&view.mem).chain(&view.imms).map(Arc::clone).collect(),
        version: Arc::clone(&view.version),
    });
}

fn insert(keyspace: &KeyspaceState, sequence: Sequence) {
    keyspace.peek().mem.insert(KEY, sequence, Kind::Value as u8, b"");
}

#[test]
fn loom_of_two_changes_none_is_lost() {
    model(|| {
        let keyspace = Arc::new(keyspace());
        let other = Arc::clone(&keyspace);
        let sealing = thread::spawn(move || seal(&other));
        let flushed = version();
        keyspace.change_view(|view| View {
            mem: Arc::clone(&view.mem),
            imms: view.imms.iter().filter(|imm| imm.id() != 1).map(Arc::clone).collect(),
            version: Arc::clone(&flushed),
        });
        sealing.join().unwrap();
        let view = keyspace.view();
        let ids: Vec<u64> = view.memtables().map(|mem| mem.id()).collect();
        assert_eq!((ids, Arc::ptr_eq(&view.version, &flushed)), (vec![3, 2], true));
    });
}

#[test]
fn loom_a_read_finds_whatever_was_visible_when_it_began() {
    model(|| {
        let all = Arc::new((keyspace(), Publisher::new(0)));
        let other = Arc::clone(&all);
        let writing = thread::spawn(move || {
            let (keyspace, publisher) = &*other;
            publisher.enqueue(1, Vec::new());
            insert(keyspace, 1);
            publisher.inserted(1);
            seal(keyspace);
            publisher.enqueue(2, Vec::new());
            insert(keyspace, 2);
            publisher.inserted(2);
        });
        let (keyspace, publisher) = &*all;
        let before = publisher.visible();
        let view = keyspace.peek();
        let at = publisher.visible();
        let found = view.memtables().find_map(|mem| mem.get(KEY, at)).map_or(0, |entry| entry.sequence);
        assert!((before..=at).contains(&found), "{found} of {before} to {at}");
        writing.join().unwrap();
    });
}

#[test]
fn loom_groups_become_visible_in_the_order_of_their_commits() {
    model(|| {
        let publisher = Arc::new(Publisher::new(0));
        let other = Arc::clone(&publisher);
        publisher.enqueue(1, Vec::new());
        publisher.enqueue(2, Vec::new());
        let first_is_in = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let is_in = Arc::clone(&first_is_in);
        let first = thread::spawn(move || {
            is_in.store(true, loom::sync::atomic::Ordering::Relaxed);
            other.inserted(1);
        });
        publisher.inserted(2);
        if publisher.visible() > 0 {
            assert!(
                first_is_in.load(loom::sync::atomic::Ordering::Relaxed),
                "what is visible is in the memtables"
            );
        }
        publisher.wait_visible(2);
        first.join().unwrap();
        assert_eq!(publisher.visible(), 2);
    });
}
