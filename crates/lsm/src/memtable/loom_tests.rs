//! Model tests of the link protocol and the arena (`cargo xtask loom`).

use kelvin_base::sync::model;
use loom::sync::Arc;
use loom::thread;

use super::arena::Arena;
use super::skiplist::{Inserter, SkipList, Target};

/// The keys of a scan at level 0, checked against their values.
fn scan(list: &SkipList) -> Vec<u8> {
    let (mut keys, mut node) = (Vec::new(), list.first());
    while let Some(at) = node {
        assert_eq!(at.value(), at.user_key(), "a reader sees all of a node");
        keys.push(at.user_key()[0]);
        node = at.successor();
    }
    keys
}

fn insert(list: &SkipList, key: u8, height: usize) -> bool {
    Inserter::new(list).insert_at_height(&[key], 1, &[key], height)
}

#[test]
fn loom_concurrent_inserts_between_the_same_neighbours_are_both_linked() {
    model(|| {
        let list = Arc::new(SkipList::new(0));
        assert!(insert(&list, 1, 2));
        let other = Arc::clone(&list);
        let worker = thread::spawn(move || assert!(insert(&other, 3, 2)));
        assert!(insert(&list, 2, 2));
        worker.join().unwrap();
        assert_eq!(scan(&list), [1, 2, 3]);
        for key in 1..=3 {
            assert_eq!(list.seek(&Target::new(&[key], 1)).map(|node| node.user_key()[0]), Some(key));
        }
    });
}

#[test]
fn loom_a_reader_sees_whole_nodes_in_order() {
    model(|| {
        let list = Arc::new(SkipList::new(0));
        let other = Arc::clone(&list);
        let worker = thread::spawn(move || {
            assert!(insert(&other, 2, 2));
            assert!(insert(&other, 1, 1));
        });
        let seen = scan(&list);
        assert!([&[][..], &[2], &[1, 2]].contains(&seen.as_slice()), "{seen:?}");
        if let Some(node) = list.seek(&Target::new(&[1], 1)) {
            assert_eq!(node.value(), node.user_key());
        }
        worker.join().unwrap();
        assert_eq!(scan(&list), [1, 2]);
    });
}

#[test]
fn loom_the_same_key_is_linked_once() {
    model(|| {
        let list = Arc::new(SkipList::new(0));
        let other = Arc::clone(&list);
        let worker = thread::spawn(move || insert(&other, 1, 1));
        let mine = insert(&list, 1, 1);
        assert!(mine != worker.join().unwrap(), "exactly one of them");
        assert_eq!(scan(&list), [1]);
    });
}

#[test]
fn loom_the_arena_gives_no_byte_twice() {
    model(|| {
        let arena = Arc::new(Arena::new());
        // Leave room for one of the two, so that the other makes a chunk.
        arena.allocate(3000);
        let other = Arc::clone(&arena);
        let worker = thread::spawn(move || other.allocate(800).addr().get());
        let mine = arena.allocate(800).addr().get();
        let theirs = worker.join().unwrap();
        assert!(mine.abs_diff(theirs) >= 800);
        assert!(arena.used_bytes() >= 4600);
    });
}
