//! A damaged store is rescued into a new one: what can be read is there, what is lost is told, and what may be stale or deleted is kept apart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_base::{Clock, ErrorKind};
use kelvin_lsm::check::FileKind;
use kelvin_lsm::db::{Db, WriteOptions};
use kelvin_lsm::options::Options;
use kelvin_lsm::salvage::{How, Part, Salvaged, salvage};
use kelvin_storage::{Create, IoMode, Storage};

use crate::copies::with_runs;
use crate::rig::{FAST, Rig, SLOW, assert_filled, assert_says, fill, key, refused, value};

const NEW: &str = "/new";
const NEW_SLOW: &str = "/new-slow";

fn into(rig: &Rig) -> Options {
    Options { dir: NEW.into(), ..rig.tiered().slow(NEW_SLOW) }
}

/// Rescues the store of `options`, which must be left as it was, and opens the new one.
fn rescued(rig: &Rig, options: Options, how: How) -> (Salvaged, Db) {
    let before = rig.image();
    let salvaged = salvage(options, into(rig), how, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rig.image(), before, "nothing was changed");
    (salvaged, Db::open(into(rig)).unwrap())
}

/// How many records of [`fill`] are there, all of which must be right.
fn present(db: &Db, keyspace: &str, letter: char, count: usize) -> usize {
    if !db.keyspaces().contains(&keyspace.to_string()) {
        return 0;
    }
    let keyspace = db.keyspace(keyspace).unwrap();
    let is_there = |key: &Vec<u8>| match keyspace.get(key).unwrap() {
        Some(found) => {
            assert_eq!(*found, *value(key));
            true
        }
        None => false,
    };
    (0..count).map(|number| key(letter, number)).filter(is_there).count()
}

fn file_of(rig: &Rig, dir: &str, ending: &str, part: &[u8]) -> PathBuf {
    let holds = |path: &PathBuf| rig.read(path).windows(part.len()).any(|bytes| bytes == part);
    rig.files(dir, ending).into_iter().find(holds).unwrap()
}

/// Flips a bit where `part` stands last in a file.
fn flip(rig: &Rig, path: &Path, part: &[u8]) {
    rig.change(path, |bytes| {
        let at = bytes.windows(part.len()).rposition(|bytes| bytes == part).unwrap();
        bytes[at] ^= 0x10;
    });
}

/// A closed store of one tier: `old` values of `a0000`.. in a table below, `new` ones of some of them in a table of level 0 above,
/// which has a range tombstone too; and `w0000`.. in the log.
fn layered(rig: &Rig) -> (Options, PathBuf) {
    let options = rig.single();
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 100);
    fill(&db, 'z', 5);
    db.compact_range(None, None).unwrap();
    for number in 40..60 {
        db.put(&key('a', number), b"a newer one").unwrap();
    }
    db.delete_range(b"a0070", b"a0080").unwrap();
    db.delete(b"a0090").unwrap();
    db.flush().unwrap();
    fill(&db, 'w', 20);
    db.close().unwrap();
    let above = file_of(rig, FAST, ".tbl", b"a newer one");
    (options, above)
}

#[test]
fn a_sound_store_is_rescued_whole() {
    let rig = Rig::new();
    let (salvaged, new) = rescued(&rig, rig.filled(), How::default());
    assert!(salvaged.is_whole() && salvaged.notes.is_empty(), "{salvaged:?}");
    assert_eq!(salvaged.doubtful(), 0);
    for (letter, count) in [('a', 200), ('f', 100), ('w', 50)] {
        assert_filled(&new, letter, count);
    }
    assert_eq!(new.keyspaces(), ["default"]);
}

#[test]
fn a_damaged_block_costs_its_own_records_and_no_other() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.slow_table();
    flip(&rig, &path, b"a0007a0007");
    let (salvaged, new) = rescued(&rig, options, How::default());
    assert_eq!(salvaged.lost.len(), 1, "{:?}", salvaged.lost);
    let lost = &salvaged.lost[0];
    assert_eq!((lost.kind, lost.part, &lost.path), (FileKind::Table, Part::Block, &path));
    assert!(lost.offset.is_some() && lost.bytes.is_some_and(|bytes| bytes > 0));
    let (from, to) = lost.keys.clone().unwrap();
    for number in 0..200 {
        let key = key('a', number);
        match new.get(&key).unwrap() {
            Some(found) => assert_eq!(*found, *value(&key)),
            None => assert!(from.as_ref() <= &key[..] && &key[..] <= to.as_ref(), "{}", key.escape_ascii()),
        }
    }
    assert_eq!(new.get(b"a0007").unwrap(), None);
    assert!(present(&new, "default", 'a', 200) > 100);
    assert_filled(&new, 'f', 100);
    assert_filled(&new, 'w', 50);
    assert_eq!(salvaged.doubtful(), 0, "nothing lies below it");
}

#[test]
fn what_a_lost_block_above_may_have_overwritten_is_kept_apart() {
    let rig = Rig::new();
    let (options, above) = layered(&rig);
    flip(&rig, &above, b"a newer one");
    let (salvaged, new) = rescued(&rig, options, How::default());
    let (from, to) = salvaged.lost[0].keys.clone().unwrap();
    assert!(from.as_ref() <= &b"a0040"[..] && to.as_ref() >= &b"a0059"[..], "{from:?} {to:?}");
    for number in 40..60 {
        assert_eq!(new.get(&key('a', number)).unwrap(), None, "it was overwritten");
    }
    let default = &salvaged.keyspaces[0];
    assert_eq!(default.doubtful_name, "default.doubtful");
    let doubtful = new.keyspace("default.doubtful").unwrap();
    assert_eq!(doubtful.get(b"a0050").unwrap().as_deref(), Some(&*value(b"a0050")));
    assert!(default.doubtful_ranges[0].0.as_ref() <= &b"a0050"[..], "{:?}", default.doubtful_ranges);
    assert_filled(&new, 'w', 20);
    assert_filled(&new, 'z', 5);
    for gone in 70..80 {
        assert_eq!(new.get(&key('a', gone)).unwrap(), None, "its tombstone can be read");
        assert_eq!(doubtful.get(&key('a', gone)).unwrap(), None);
    }
}

#[test]
fn lost_range_tombstones_make_all_of_their_table_s_range_doubtful() {
    let rig = Rig::new();
    let (options, above) = layered(&rig);
    rig.change(&above, |bytes| {
        let at = bytes.windows(10).rposition(|bytes| bytes == b"a0070\x05a0080"[..10].as_ref()).unwrap();
        bytes[at] ^= 1;
    });
    let (salvaged, new) = rescued(&rig, options, How::default());
    assert_eq!(salvaged.lost.len(), 1);
    assert_eq!(salvaged.lost[0].part, Part::Tombstones, "{:?}", salvaged.lost);
    assert_eq!(new.get(b"a0075").unwrap(), None, "deleted, which nobody can know");
    let doubtful = new.keyspace("default.doubtful").unwrap();
    assert_eq!(doubtful.get(b"a0075").unwrap().as_deref(), Some(&*value(b"a0075")));
    assert_eq!(present(&new, "default", 'z', 5), 5, "outside of its range");
    assert_eq!(new.get(b"a0090").unwrap(), None);
    assert_eq!(doubtful.get(b"a0090").unwrap(), None, "its deletion can be read");
}

#[test]
fn a_table_that_is_gone_cut_off_or_without_an_index_is_lost_with_its_range() {
    let harms: [fn(&Rig, &Path); 3] = [
        |rig, path| rig.memory_of(path).remove(path).unwrap(),
        |rig, path| rig.change(path, |bytes| bytes.truncate(bytes.len() / 2)),
        |rig, path| {
            rig.change(path, |bytes| {
                let last = bytes.len() - 50;
                bytes[last] ^= 1;
            });
        },
    ];
    for harm in harms {
        let rig = Rig::new();
        let (options, above) = layered(&rig);
        harm(&rig, &above);
        let (salvaged, new) = rescued(&rig, options, How::default());
        assert_eq!(salvaged.lost.len(), 1, "{salvaged:?}");
        assert_eq!((salvaged.lost[0].part, &salvaged.lost[0].path), (Part::Table, &above));
        let (from, to) = salvaged.lost[0].keys.clone().unwrap();
        assert_eq!((from.as_ref(), to.as_ref()), (&b"a0040"[..], &b"a0090"[..]));
        assert_eq!(present(&new, "default", 'a', 100), 40 + 9);
        assert_eq!(present(&new, "default.doubtful", 'a', 100), 51);
        assert_filled(&new, 'w', 20);
    }
}

#[test]
fn lost_records_of_the_log_make_everything_older_doubtful_and_what_is_behind_them_is_rescued() {
    let rig = Rig::new();
    let (options, _) = layered(&rig);
    let log = file_of(&rig, FAST, ".wal", b"w0010w0010");
    flip(&rig, &log, b"w0010w0010");
    refused(options.clone());
    let (salvaged, new) = rescued(&rig, options, How::default());
    assert_eq!(salvaged.lost.len(), 1, "{salvaged:?}");
    let lost = &salvaged.lost[0];
    assert_eq!((lost.kind, lost.part, &lost.path), (FileKind::Wal, Part::LogRecords, &log));
    assert!(lost.offset.is_some_and(|at| at > 24) && lost.bytes.is_some_and(|bytes| bytes > 400));
    assert_eq!(lost.keys, None, "any key may be concerned");
    assert_eq!(present(&new, "default", 'w', 20), 9, "those behind it");
    assert_eq!(present(&new, "default.doubtful", 'w', 20), 10, "those before it");
    assert_eq!(present(&new, "default", 'a', 100), 0);
}

#[test]
fn a_log_that_ends_torn_is_taken_as_an_opening_takes_it() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    fill(&db, 'w', 50);
    rig.executor.discard();
    let killed = rig.killed();
    drop(db);
    let log = killed.files(FAST, ".wal").pop().unwrap();
    killed.change(&log, |bytes| bytes.truncate(10_000));
    let (salvaged, new) = rescued(&killed, killed.single(), How::default());
    assert!(salvaged.is_whole() && salvaged.doubtful() == 0, "{salvaged:?}");
    assert!(salvaged.notes[0].contains("not made durable"), "{:?}", salvaged.notes);
    let there = present(&new, "default", 'w', 50);
    let opened = Db::open(killed.single()).unwrap();
    assert!(there > 10 && there == present(&opened, "default", 'w', 50));
}

#[test]
fn without_its_manifest_a_store_is_rescued_as_doubtful_if_that_is_asked_for() {
    let rig = Rig::new();
    let options = rig.filled();
    let manifest = rig.files(FAST, ".manifest").pop().unwrap();
    rig.change(&manifest, |bytes| bytes[50] ^= 1);
    let error = salvage(options.clone(), into(&rig), How::default(), &mut |_| {}).unwrap_err();
    assert_says(&error, ErrorKind::Corruption, &[&manifest.to_string_lossy(), "--without-manifest"]);
    assert!(!rig.fast_memory.exists(NEW.as_ref()).unwrap(), "nothing was made");
    let how = How { without_manifest: true, ..How::default() };
    let (salvaged, new) = rescued(&rig, options, how);
    assert_eq!((salvaged.rescued(), salvaged.lost[0].kind), (0, FileKind::Manifest));
    // What keyspace tables are of stood in the damaged record, or in one that can be read; the log says it itself.
    for (letter, count) in [('a', 200), ('f', 100), ('w', 50)] {
        let there = |keyspace: &str| present(&new, keyspace, letter, count);
        assert_eq!(there("unknown.doubtful") + there("default.doubtful"), count, "{letter}");
        assert_eq!(there("default"), 0);
    }
    assert_eq!(present(&new, "default.doubtful", 'w', 50), 50);
}

#[test]
fn without_the_file_that_names_it_the_one_manifest_there_is_will_do() {
    for harm in [
        |rig: &Rig, path: &Path| rig.change(path, |bytes| bytes[3] ^= 1),
        |rig: &Rig, path: &Path| {
            rig.fast_memory.remove(path).unwrap();
        },
    ] {
        let rig = Rig::new();
        let options = rig.filled();
        harm(&rig, "/fast/CURRENT".as_ref());
        let (salvaged, new) = rescued(&rig, options, How::default());
        assert!(salvaged.is_whole() && salvaged.notes[0].contains("CURRENT"), "{salvaged:?}");
        assert_filled(&new, 'a', 200);
        assert_filled(&new, 'w', 50);
    }
}

#[test]
fn an_open_store_is_busy_and_a_directory_in_use_is_refused() {
    let rig = Rig::new();
    let options = rig.filled();
    let db = Db::open(options.clone()).unwrap();
    let error = salvage(options.clone(), into(&rig), How::default(), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    db.close().unwrap();
    rig.fast_memory.create_dir_all(NEW.as_ref()).unwrap();
    drop(rig.fast_memory.create("/new/holiday.jpg".as_ref(), Create::new(IoMode::Buffered)).unwrap());
    let error = salvage(options.clone(), into(&rig), How::default(), &mut |_| {}).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["not empty", "holiday.jpg"]);
    let error = salvage(options.clone(), options, How::default(), &mut |_| {}).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["not empty", FAST]);
}

#[test]
fn a_copy_rescues_an_original_that_is_lost() {
    let rig = Rig::new();
    let (options, runs) = with_runs(&rig);
    let copied: Vec<usize> = (0..200)
        .filter(|&number| {
            let value = [key('a', number), key('a', number)].concat();
            runs.iter().any(|run| rig.read(run).windows(10).any(|bytes| bytes == value))
        })
        .collect();
    assert!(copied.len() > 15, "{copied:?}");
    for path in rig.files(SLOW, ".tbl") {
        rig.slow_memory.remove(&path).unwrap();
    }
    let (salvaged, new) = rescued(&rig, options, How::default());
    assert!(salvaged.lost.iter().all(|lost| lost.part == Part::Table), "{salvaged:?}");
    for number in copied {
        let key = key('a', number);
        assert_eq!(new.get(&key).unwrap().as_deref(), Some(&*value(&key)), "{number}");
    }
    assert_eq!(salvaged.doubtful(), 0);
}

#[test]
fn a_damaged_copy_costs_nothing() {
    let rig = Rig::new();
    let (options, runs) = with_runs(&rig);
    rig.change(&runs[0], |bytes| bytes.truncate(20));
    let (salvaged, new) = rescued(&rig, options, How::default());
    assert!(salvaged.is_whole() && salvaged.notes.iter().any(|note| note.contains("copies")), "{salvaged:?}");
    assert_filled(&new, 'a', 200);
}

#[test]
fn a_slow_tier_that_is_lost_is_done_without_only_if_that_is_said() {
    let rig = Rig::new();
    let options = rig.filled();
    let alone = || rig.single();
    let error = salvage(alone(), into(&rig), How::default(), &mut |_| {}).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["--without-slow"]);
    for path in rig.files(SLOW, "") {
        rig.slow_memory.remove(&path).unwrap();
    }
    let error = salvage(options, into(&rig), How::default(), &mut |_| {}).unwrap_err();
    assert_says(&error, ErrorKind::TierUnavailable, &["mount", "--without-slow"]);
    let how = How { without_slow: true, ..How::default() };
    let (salvaged, new) = rescued(&rig, alone(), how);
    assert!(!salvaged.is_whole());
    assert_eq!(present(&new, "default", 'f', 100), 100);
    assert_eq!(present(&new, "default", 'w', 50), 50);
    assert_eq!(present(&new, "default", 'a', 200) + present(&new, "default.doubtful", 'a', 200), 0);
}

#[test]
fn expiries_and_keyspaces_are_kept() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    let two = db.keyspace("two").unwrap();
    db.keyspace("empty").unwrap();
    let soon = WriteOptions { ttl: Some(Duration::from_secs(5)), ..WriteOptions::default() };
    two.put_with(b"soon", b"gone", &soon).unwrap();
    two.put(b"later", b"stays").unwrap();
    two.flush().unwrap();
    db.put_with(b"soon", b"gone", &soon).unwrap();
    db.close().unwrap();
    let expected = rig.clock.unix_millis() + 5_000;
    let (salvaged, new) = rescued(&rig, rig.single(), How::default());
    assert_eq!(salvaged.rescued(), 3);
    assert_eq!(new.keyspaces(), ["default", "empty", "two"]);
    let two = new.keyspace("two").unwrap();
    let mut iter = two.iter(Default::default()).unwrap();
    iter.seek(b"soon").unwrap();
    assert_eq!((iter.key(), iter.expiry_ms()), (&b"soon"[..], Some(expected)));
    drop(iter);
    rig.clock.advance(Duration::from_secs(6));
    assert_eq!((two.get(b"soon").unwrap(), new.get(b"soon").unwrap()), (None, None));
    assert_eq!(two.get(b"later").unwrap().as_deref(), Some(&b"stays"[..]));
}

#[test]
fn without_its_manifest_a_table_that_cannot_be_read_at_all_is_told_as_lost_and_nothing_else_is() {
    let rig = Rig::new();
    let options = rig.filled();
    let (lost, manifest) = (rig.slow_table(), rig.files(FAST, ".manifest").pop().unwrap());
    let in_it: Vec<usize> = {
        let bytes = rig.read(&lost);
        let is_in = |number: &usize| {
            let (key, mut pair) = (key('a', *number), key('a', *number));
            pair.extend_from_slice(&key);
            bytes.windows(pair.len()).any(|found| found == pair)
        };
        (0..200).filter(is_in).collect()
    };
    assert!(!in_it.is_empty());
    rig.change(&lost, |bytes| bytes.truncate(bytes.len() / 2));
    rig.fast_memory.remove(&manifest).unwrap();
    let how = How { without_manifest: true, ..How::default() };
    let (salvaged, new) = rescued(&rig, options, how);
    let tables: Vec<_> = salvaged.lost.iter().filter(|lost| lost.kind == FileKind::Table).collect();
    assert_eq!(tables.len(), 1, "{salvaged:?}");
    assert_eq!((&tables[0].path, tables[0].part, tables[0].keys.is_none()), (&lost, Part::Table, true));
    let keyspaces = ["unknown.doubtful", "default.doubtful"].map(|name| new.keyspace(name).unwrap());
    let is_there = |letter: char, number: usize| {
        let key = key(letter, number);
        let found = keyspaces.iter().filter_map(|one| one.get(&key).unwrap());
        found.inspect(|found| assert_eq!(*found, *value(&key))).count() > 0
    };
    assert!((0..100).all(|number| is_there('f', number)) && (0..50).all(|number| is_there('w', number)));
    let missing: Vec<usize> = (0..200).filter(|number| !is_there('a', *number)).collect();
    assert_eq!(missing, in_it);
}

#[test]
fn where_there_is_no_store_nothing_is_rescued_and_nothing_made() {
    let rig = Rig::new();
    [FAST, SLOW].iter().for_each(|dir| rig.write(&Path::new(dir).join("notes"), b"not a store's"));
    for how in [How::default(), How { without_manifest: true, ..How::default() }] {
        let error = salvage(rig.tiered(), into(&rig), how, &mut |_| {}).unwrap_err();
        assert_says(&error, ErrorKind::InvalidArgument, &["no store in this directory"]);
        assert!(!rig.fast_memory.exists(NEW.as_ref()).unwrap());
    }
}
