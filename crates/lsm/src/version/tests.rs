//! Versions, edits and the manifest under truncation, flipped bits and failing devices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use kelvin_base::{Error, ErrorKind, KeyRange, Result, Tier};
use kelvin_storage::fault::{Effect, Op, Rule};
use kelvin_storage::{Create, FaultStorage, IoMode, MemoryStorage, Storage};
use kelvin_table::Table;

use super::manifest::{FRAME_BYTES, parse, read_whole};
use super::*;

pub(crate) fn meta(number: u64, smallest: &str, largest: &str) -> TableMeta {
    TableMeta {
        number,
        tier: Tier::Fast,
        size_bytes: 1000,
        tail_bytes: 100,
        smallest: Bytes::copy_from_slice(smallest.as_bytes()),
        largest: Bytes::copy_from_slice(largest.as_bytes()),
        largest_exclusive: false,
        sequence_min: number,
        sequence_max: number,
        entries: 10,
        deletions: 0,
        range_tombstones: 0,
        copies: 0,
        expiring: 0,
        expiry_min_ms: 0,
        key_bytes: 100,
        value_bytes: 900,
    }
}

pub(super) fn full_edit() -> Edit {
    let mut edit = Edit {
        store: Some(StoreId { uuid: [7; 16], epoch: 3 }),
        next_file_number: Some(900),
        ..Edit::default()
    };
    edit.create_keyspace(4, "default", 11);
    edit.drop_keyspace(2);
    edit.set_wal_number(1, 12);
    edit.set_last_sequence(u64::MAX >> 8);
    edit.remove(1, 0, 77);
    edit.add(1, 11, TableMeta { tier: Tier::Slow, largest_exclusive: true, ..meta(78, "", "zebra") });
    edit.add(4, 3, meta(79, "a", "a"));
    edit
}

/// Opens nothing and counts deletions.
#[derive(Default)]
pub(crate) struct NoTables(AtomicUsize);

impl TableOpener for NoTables {
    fn open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        Err(Error::invalid(format!("table {} is not to be opened here", meta.number)))
    }

    fn delete(&self, _: &TableMeta) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A directory, and the disk that it is on, which fails as a test says.
struct Disk {
    files: Arc<MemoryStorage>,
    faults: Arc<FaultStorage>,
}

impl Disk {
    fn new() -> Self {
        let files = MemoryStorage::new();
        files.create_dir_all(Path::new(DIR)).unwrap();
        Self::of(files)
    }

    fn of(files: MemoryStorage) -> Self {
        let files = Arc::new(files);
        let faults = Arc::new(FaultStorage::new(Arc::clone(&files) as Arc<dyn Storage>, 0));
        Self { files, faults }
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.faults) as Arc<dyn Storage>
    }

    /// Operations fail after so many that do not; of an append a part is written.
    fn fail(&self, op: Op, after: u64) {
        self.faults.clear();
        self.faults.add(Rule::new(op, Effect::TornWrite).after(after));
    }

    fn work(&self) {
        self.faults.clear();
    }

    fn bytes(&self, path: &Path) -> Vec<u8> {
        read_whole(&*self.files, path, u64::MAX).unwrap()
    }

    fn replace(&self, path: &Path, bytes: &[u8]) {
        self.files.remove(path).unwrap();
        let mut file = self.files.create(path, Create::new(IoMode::Buffered)).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }
}

const DIR: &str = "fast";

fn fresh(disk: &Disk) -> VersionSet {
    let mut first = Edit { store: Some(StoreId { uuid: [9; 16], epoch: 1 }), ..Edit::default() };
    first.create_keyspace(0, "default", 1);
    VersionSet::create(disk.storage(), Path::new(DIR), Arc::new(NoTables::default()), true, &first).unwrap()
}

fn reopen(disk: &Disk) -> Result<Option<VersionSet>> {
    VersionSet::recover(disk.storage(), Path::new(DIR), Arc::new(NoTables::default()), true)
}

fn adding(number: u64, smallest: &str, largest: &str) -> Edit {
    let mut edit = Edit::default();
    edit.add(0, 3, meta(number, smallest, largest));
    edit.set_last_sequence(number);
    edit
}

fn numbers(set: &VersionSet) -> Vec<u64> {
    set.live_tables().into_iter().map(|(_, number)| number).collect()
}

#[test]
fn what_was_logged_is_there_after_reopening_and_numbers_go_on() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    set.log_and_apply(&adding(10, "a", "c")).unwrap();
    let mut edit = adding(11, "d", "f");
    edit.create_keyspace(1, "other", 5);
    edit.set_wal_number(0, 4);
    set.log_and_apply(&edit).unwrap();
    let before = set.recorded();
    drop(set);
    let set = reopen(&disk).unwrap().unwrap();
    assert_eq!(set.recorded().keyspaces, before.keyspaces);
    assert_eq!((set.store(), set.last_sequence()), (StoreId { uuid: [9; 16], epoch: 1 }, 11));
    assert_eq!((set.wal_number_min(), set.next_keyspace()), (Some(4), 2));
    assert!(set.new_file_number() >= before.next_file_number);
    assert!(set.warnings().is_empty());
    let manifests = disk.files.list(Path::new(DIR)).unwrap();
    assert_eq!(manifests.len(), 2, "CURRENT and one manifest: {manifests:?}");
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing_on_disk() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    set.log_and_apply(&adding(10, "a", "m")).unwrap();
    let bytes = set.manifest_bytes();
    let mut absent = Edit::default();
    absent.remove(0, 3, 99);
    let mut foreign = Edit::default();
    foreign.add(8, 3, meta(12, "x", "y"));
    for edit in [adding(11, "m", "z"), adding(10, "x", "y"), absent, foreign] {
        assert_eq!(set.log_and_apply(&edit).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!((set.manifest_bytes(), numbers(&set)), (bytes, vec![10]));
}

#[test]
fn a_manifest_cut_at_any_byte_gives_a_prefix_of_its_edits_or_a_named_corruption() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    for number in 10..14 {
        set.log_and_apply(&adding(number, &format!("k{number}"), &format!("k{number}z"))).unwrap();
    }
    let number = set.manifest_number();
    let path = Path::new(DIR).join(manifest_name(number));
    let bytes = disk.bytes(&path);
    let whole = parse(&path, number, &bytes).unwrap();
    assert_eq!((whole.edits.len(), whole.torn_at), (5, None));
    for cut in 0..bytes.len() {
        match parse(&path, number, &bytes[..cut]) {
            Ok(read) => {
                assert_eq!(read.edits[..], whole.edits[..read.edits.len()], "cut at {cut}");
                assert!(read.edits.len() < whole.edits.len() || cut >= bytes.len() - FRAME_BYTES);
            }
            Err(error) => {
                assert!(cut < 44, "cut at {cut}: {error}");
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(error.path().is_some() && error.at().is_some());
            }
        }
    }
}

#[test]
fn any_flipped_bit_is_a_named_corruption_and_no_edit_is_lost_without_a_word() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    for number in 10..14 {
        set.log_and_apply(&adding(number, &format!("k{number}"), &format!("k{number}z"))).unwrap();
    }
    let number = set.manifest_number();
    let path = Path::new(DIR).join(manifest_name(number));
    let mut bytes = disk.bytes(&path);
    let whole = parse(&path, number, &bytes).unwrap();
    let mut in_marks = 0;
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        match parse(&path, number, &bytes) {
            Ok(read) => {
                assert_eq!(read.edits, whole.edits, "bit {bit}");
                in_marks += 1;
            }
            Err(error) => assert!(error.path().is_some() && error.at().is_some(), "{error}"),
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(in_marks, 4 * FRAME_BYTES * 8, "a mark says nothing itself");
}

#[test]
fn an_edit_is_found_behind_a_mark_that_a_power_loss_took() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    set.log_and_apply(&adding(10, "a", "b")).unwrap();
    let number = set.manifest_number();
    let path = Path::new(DIR).join(manifest_name(number));
    let end = disk.bytes(&path).len();
    set.log_and_apply(&adding(11, "c", "d")).unwrap();
    let mut bytes = disk.bytes(&path);
    let whole = parse(&path, number, &bytes).unwrap();
    bytes[end - FRAME_BYTES..end].fill(0);
    assert_eq!(parse(&path, number, &bytes).unwrap().edits, whole.edits);
}

#[test]
fn a_damaged_pointer_to_the_manifest_and_a_newer_format_are_refused_by_name() {
    let disk = Disk::new();
    let number = fresh(&disk).manifest_number();
    let current = Path::new(DIR).join(CURRENT);
    let pointer = disk.bytes(&current);
    for bit in 0..pointer.len() * 8 {
        let mut harmed = pointer.clone();
        harmed[bit / 8] ^= 1 << (bit % 8);
        disk.replace(&current, &harmed);
        let error = read_recorded(&*disk.files, Path::new(DIR)).unwrap_err();
        assert_eq!(
            (error.kind(), error.path()),
            (ErrorKind::Corruption, Some(current.as_path())),
            "bit {bit}"
        );
    }
    let path = Path::new(DIR).join(manifest_name(number));
    let mut bytes = disk.bytes(&path);
    bytes[8] = 2;
    let check = kelvin_base::hash::hash64_seeded(kelvin_base::hash::place_seed(number, 0), &bytes[..36]);
    bytes[36..44].copy_from_slice(&check.to_le_bytes());
    let error = parse(&path, number, &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn after_a_failed_append_a_new_manifest_takes_over_with_the_edit() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    set.log_and_apply(&adding(10, "a", "b")).unwrap();
    let old = set.manifest_number();
    // The append to the old manifest fails half way; those to the new one succeed.
    disk.fail(Op::Append, 0);
    let error = set.log_and_apply(&adding(11, "c", "d")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(set.is_doubtful() && set.failed().is_none());
    assert_eq!(numbers(&set), [10]);
    assert!(set.is_in_doubt(Tier::Fast, 11), "a crash may find the edit done");
    // The next edit was never written where a crash could find it.
    assert!(set.log_and_apply(&adding(13, "g", "h")).is_err() && !set.is_in_doubt(Tier::Fast, 13));
    assert!(set.settle().is_err() && set.take_refuted().is_empty());
    disk.work();
    set.log_and_apply(&adding(12, "e", "f")).unwrap();
    assert!(!set.is_doubtful() && set.manifest_number() > old);
    assert_eq!(set.take_refuted(), [(Tier::Fast, 11)]);
    assert_eq!(numbers(&reopen(&disk).unwrap().unwrap()), [10, 12]);
}

#[test]
fn settling_a_doubt_begins_a_manifest_without_the_edit() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    set.log_and_apply(&adding(10, "a", "b")).unwrap();
    let before = set.manifest_number();
    set.settle().unwrap();
    assert_eq!(set.manifest_number(), before, "without a doubt there is nothing to do");
    disk.fail(Op::Append, 0);
    set.log_and_apply(&adding(11, "c", "d")).unwrap_err();
    disk.work();
    set.settle().unwrap();
    assert!(!set.is_doubtful() && !set.is_in_doubt(Tier::Fast, 11));
    assert_eq!(set.take_refuted(), [(Tier::Fast, 11)]);
    assert_eq!(set.take_refuted(), []);
    assert_eq!(numbers(&reopen(&disk).unwrap().unwrap()), [10]);
}

#[test]
fn an_edit_that_drops_a_keyspace_is_never_in_doubt() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    let mut edit = Edit::default();
    edit.create_keyspace(7, "gone", 1);
    set.log_and_apply(&edit).unwrap();
    let mut edit = Edit::default();
    edit.drop_keyspace(7);
    for after in 0..3 {
        disk.fail(Op::Append, after);
        assert!(set.log_and_apply(&edit).is_err());
        assert!(!set.is_doubtful(), "append {after}");
        let recorded = read_recorded(&*disk.faults, Path::new(DIR)).unwrap().unwrap();
        assert!(recorded.keyspaces.contains_key(&7), "append {after}");
    }
    disk.work();
    set.log_and_apply(&edit).unwrap();
    assert!(reopen(&disk).unwrap().unwrap().version(7).is_none());
}

#[test]
fn after_a_failed_sync_or_switch_the_error_stays_and_reopening_finds_one_of_both_outcomes() {
    for operation in [Op::Sync, Op::Rename, Op::SyncDir] {
        let disk = Disk::new();
        let mut set = fresh(&disk);
        set.log_and_apply(&adding(10, "a", "b")).unwrap();
        if operation == Op::Sync {
            disk.fail(operation, 0);
        } else {
            set.poison_writer_for_test();
            disk.fail(operation, 0);
        }
        let error = set.log_and_apply(&adding(11, "c", "d")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{operation:?}");
        disk.work();
        assert!(set.log_and_apply(&adding(12, "e", "f")).is_err(), "the error of {operation:?} stays");
        assert_eq!(numbers(&set), [10]);
        let found = numbers(&reopen(&disk).unwrap().unwrap());
        assert!(found == [10] || found == [10, 11], "{operation:?}: {found:?}");
    }
}

#[test]
fn every_operation_that_fails_at_every_moment_leaves_a_store_that_opens() {
    for operation in [Op::Create, Op::Append, Op::Sync, Op::SyncDir, Op::Rename] {
        for after in 0..12 {
            let disk = Disk::new();
            let mut set = fresh(&disk);
            disk.fail(operation, after);
            let mut acknowledged = Vec::new();
            for number in 10..16 {
                if set.log_and_apply(&adding(number, &format!("k{number}"), &format!("k{number}z"))).is_ok() {
                    acknowledged.push(number);
                }
            }
            disk.work();
            let found = numbers(&reopen(&disk).unwrap().unwrap());
            assert!(
                acknowledged.iter().all(|number| found.contains(number)),
                "{operation:?} {after}: {found:?}"
            );
        }
    }
}

#[test]
fn a_long_manifest_gives_way_to_a_short_one() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    let old = set.manifest_number();
    let wide = "x".repeat(4000);
    let mut number = 100;
    while set.manifest_number() == old {
        number += 1;
        let mut edit = adding(number, &wide, &wide);
        if number > 101 {
            edit.remove(0, 3, number - 1);
        }
        set.log_and_apply(&edit).unwrap();
    }
    assert!(set.manifest_bytes() < 10_000);
    assert_eq!(numbers(&reopen(&disk).unwrap().unwrap()), [number]);
}

#[test]
fn a_new_manifest_that_cannot_be_begun_leaves_the_long_one_in_force_and_is_tried_again() {
    let disk = Disk::new();
    let mut set = fresh(&disk);
    set.rotate_above(1_000);
    let (old, wide) = (set.manifest_number(), "x".repeat(400));
    disk.fail(Op::Create, 0);
    for number in 101..110 {
        set.log_and_apply(&adding(number, &format!("{number}{wide}"), &format!("{number}{wide}"))).unwrap();
    }
    let tried = set.warnings().len();
    assert!(tried > 0 && tried < 6, "each time that it is twice as long: {:?}", set.warnings());
    assert!(set.warnings().iter().all(|told| told.starts_with("a new manifest could not be begun")));
    assert_eq!(set.manifest_number(), old);
    let all: Vec<u64> = (101..110).collect();
    let after_a_kill = Disk::of(disk.files.fork());
    assert_eq!(numbers(&reopen(&after_a_kill).unwrap().unwrap()), all, "and it has every edit");
    disk.work();
    let mut number = 110;
    while set.manifest_number() == old {
        set.log_and_apply(&adding(number, &format!("{number}{wide}"), &format!("{number}{wide}"))).unwrap();
        number += 1;
        assert!(number < 200, "{}", set.manifest_bytes());
    }
    let all: Vec<u64> = (101..number).collect();
    assert_eq!((numbers(&set), numbers(&reopen(&disk).unwrap().unwrap())), (all.clone(), all));
}

#[test]
fn a_manifest_whose_edits_contradict_each_other_is_a_named_corruption() {
    let mut drops = Edit::default();
    drops.drop_keyspace(5);
    let mut makes = Edit::default();
    makes.create_keyspace(0, "again", 1);
    let mut logs = Edit::default();
    logs.set_wal_number(5, 1);
    let mut removes = Edit::default();
    removes.remove(0, 3, 11);
    let mut foreign = Edit::default();
    foreign.add(5, 3, meta(12, "a", "b"));
    let twice = adding(10, "a", "b");
    for (edit, told) in [
        (drops, "drops keyspace 5"),
        (makes, "makes keyspace 0 twice"),
        (logs, "names keyspace 5"),
        (removes, "removes table 11 from level 3"),
        (foreign, "adds table 12"),
        (twice, "adds table 10 twice"),
    ] {
        let disk = Disk::new();
        let mut set = fresh(&disk);
        set.log_and_apply(&adding(10, "a", "b")).unwrap();
        let (number, uuid) = (set.manifest_number(), set.store().uuid);
        let mut edits = [Vec::new(), Vec::new()];
        set.recorded().snapshot().encode(&mut edits[0]);
        edit.encode(&mut edits[1]);
        drop(set);
        let edits: Vec<&[u8]> = edits.iter().map(Vec::as_slice).collect();
        let bytes = super::manifest::sign(number, uuid, &edits).unwrap();
        disk.replace(&Path::new(DIR).join(manifest_name(number)), &bytes);
        let error = reopen(&disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let path = error.path().unwrap().to_string_lossy().into_owned();
        assert!(error.to_string().contains(told) && path.ends_with(&manifest_name(number)), "{error}");
    }
}

#[test]
fn a_checkpoint_of_the_manifest_opens_as_the_same_store() {
    let (disk, copy) = (Disk::new(), Disk::new());
    let mut set = fresh(&disk);
    set.log_and_apply(&adding(10, "a", "b")).unwrap();
    write_recorded(&*copy.faults, Path::new(DIR), &set.recorded()).unwrap();
    assert_eq!(reopen(&copy).unwrap().unwrap().recorded().keyspaces, set.recorded().keyspaces);
}

#[test]
fn a_file_is_deleted_when_its_last_holder_goes_and_only_once_obsolete() {
    let opener = Arc::new(NoTables::default());
    let kept = Arc::new(TableFile::new(meta(1, "a", "b"), Arc::clone(&opener) as Arc<dyn TableOpener>));
    drop(kept);
    assert_eq!(opener.0.load(Ordering::Relaxed), 0);
    let file = Arc::new(TableFile::new(meta(2, "a", "b"), Arc::clone(&opener) as Arc<dyn TableOpener>));
    let reader = Arc::clone(&file);
    file.mark_obsolete();
    drop(file);
    assert_eq!(opener.0.load(Ordering::Relaxed), 0, "a reader still holds it");
    drop(reader);
    assert_eq!(opener.0.load(Ordering::Relaxed), 1);
}

#[test]
fn the_candidate_of_a_key_is_the_table_whose_range_holds_it() {
    let opener: Arc<dyn TableOpener> = Arc::new(NoTables::default());
    let file = |meta| Arc::new(TableFile::new(meta, Arc::clone(&opener)));
    for prefix in ["", "user", "a prefix longer than eight bytes: "] {
        let key = |text: &str| format!("{prefix}{text}");
        let mut tables: [Vec<Arc<TableFile>>; LEVELS] = Default::default();
        let ends = [("b", "d", false), ("f", "h", true), ("h", "h", false), ("k", "kkkkkkkkkk", false)];
        for (number, (smallest, largest, exclusive)) in (1..).zip(ends) {
            let facts = meta(number, &key(smallest), &key(largest));
            tables[4].push(file(TableMeta { largest_exclusive: exclusive, ..facts }));
        }
        tables[4].reverse();
        let version = Version::new(0, tables, true).unwrap();
        let at = |text: &str| version.candidate(4, key(text).as_bytes()).map(|file| file.meta.number);
        let keys =
            ["a", "b", "c", "d", "da", "e", "f", "gzzzzzzzzzz", "h", "ha", "kkkkkkkkkj", "kkkkkkkkkkk"];
        let expected =
            [None, Some(1), Some(1), Some(1), None, None, Some(2), Some(2), Some(3), None, Some(4), None];
        assert_eq!(keys.map(at), expected, "prefix {prefix:?}");
        let met =
            version.overlapping(4, KeyRange::half_open(Some(key("d").as_bytes()), Some(key("h").as_bytes())));
        assert_eq!(met.iter().map(|file| file.meta.number).collect::<Vec<_>>(), [1, 2]);
        let met = version.overlapping(4, KeyRange::closed(key("da").as_bytes(), key("h").as_bytes()));
        assert_eq!(met.iter().map(|file| file.meta.number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(version.candidate(5, b"b").map(|file| file.meta.number), None);
    }
}
