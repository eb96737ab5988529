//! The hot level is advisory (promise 6): with its files missing, cut off or damaged the store opens, answers the same, gives them up
//! and says so; nothing else is lost with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::Event;
use kelvin_base::events::What;
use kelvin_lsm::check::FileKind;
use kelvin_lsm::compaction::pick::Forced;
use kelvin_lsm::db::Db;
use kelvin_lsm::options::{HotParts, Hotness, Options};
use kelvin_storage::Storage;
use parking_lot::Mutex;

use crate::rig::{Rig, assert_filled, check, fill, key};

fn promoting(options: Options) -> Options {
    options.advanced(|advanced| {
        advanced.hotness = Some(Hotness::Oracle);
        advanced.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
        advanced.promotion_bytes = Some(6 << 10);
    })
}

/// A closed store with at least two runs of copies of the `a` keys; their files.
pub fn with_runs(rig: &Rig) -> (Options, Vec<PathBuf>) {
    let options = promoting(rig.filled());
    let db = Db::open(options.clone()).unwrap();
    for number in 0..200 {
        db.get(&key('a', number)).unwrap().unwrap();
        rig.executor.run_all();
    }
    let audit = db.audit().unwrap();
    assert!(audit.run_files.len() >= 2 && audit.copies > 15, "{audit:?}");
    db.close().unwrap();
    rig.executor.run_all();
    (options, audit.run_files)
}

fn assert_answers(db: &Db) {
    for (letter, count) in [('a', 200), ('f', 100), ('w', 50)] {
        assert_filled(db, letter, count);
    }
    let audit = db.audit().unwrap();
    assert_eq!(audit.findings, Vec::<String>::new());
}

/// What `check` says of damaged copies: which file, and that nothing is lost.
fn assert_checked(options: &Options, files: &[PathBuf]) {
    let report = check(options.clone());
    let damaged = report.damaged_files();
    let mut named: Vec<_> = damaged.iter().map(|file| file.path.clone()).collect();
    named.sort();
    assert_eq!(named, files);
    for file in damaged {
        assert_eq!((file.kind, &file.lost), (FileKind::Table, &Vec::new()));
        assert!(file.notes.iter().any(|note| note.contains("nothing is lost")), "{file:?}");
    }
}

#[test]
fn a_run_whose_file_is_missing_or_cut_off_is_given_up_at_the_opening() {
    let damages: [fn(&Rig, &Path); 3] = [
        |rig, path| rig.fast_memory.remove(path).unwrap(),
        |rig, path| rig.change(path, |bytes| bytes.truncate(bytes.len() / 2)),
        |rig, path| rig.change(path, Vec::clear),
    ];
    for damage in damages {
        let rig = Rig::new();
        let (options, runs) = with_runs(&rig);
        damage(&rig, &runs[0]);
        assert_checked(&options, &runs[..1]);
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let listener = Arc::clone(&told);
        let listening =
            options.clone().listener(Arc::new(move |event: &Event| listener.lock().push(event.clone())));
        let db = Db::open(listening).unwrap();
        assert_answers(&db);
        let stats = db.stats();
        assert_eq!((stats.boundary.damaged_tables, stats.background_failures), (1, 0));
        rig.executor.run_all();
        let is_it = |event: &Event| matches!(event.what, What::CopiesDropped { tables: 1, .. });
        assert_eq!(told.lock().iter().filter(|event| is_it(event)).count(), 1);
        assert!(!db.audit().unwrap().run_files.contains(&runs[0]));
        assert!(db.check().is_well(), "{:?}", db.check().damaged_files());
        fill(&db, 'z', 50);
        db.flush().unwrap();
        db.compact_range(None, None).unwrap();
        assert_answers(&db);
        db.close().unwrap();
        let db = Db::open(options).unwrap();
        assert_eq!(db.stats().boundary.damaged_tables, 0);
        assert_answers(&db);
    }
}

#[test]
fn a_damaged_run_is_given_up_by_the_merge_that_meets_it_and_the_others_stay() {
    // In the records, and in what is read when the table is opened.
    for at in [2, 1] {
        let rig = Rig::new();
        let (options, runs) = with_runs(&rig);
        rig.change(&runs[0], |bytes| {
            let place = if at == 2 { bytes.len() / 2 } else { bytes.len() - 60 };
            bytes[place] ^= 0x10;
        });
        assert_checked(&options, &runs[..1]);
        let db = Db::open(options).unwrap();
        assert_answers(&db);
        let mut left = 100;
        while db.stats().boundary.damaged_tables == 0 {
            assert!(db.force(Forced::Runs, 0), "there are two runs");
            rig.executor.run_all();
            left -= 1;
            assert!(left > 0, "{:?}", db.levels());
        }
        let stats = db.stats();
        assert_eq!((stats.background_failures, stats.background_error), (0, None));
        let audit = db.audit().unwrap();
        assert!(!audit.run_files.is_empty() && !audit.run_files.contains(&runs[0]), "{audit:?}");
        assert!(db.check().is_well(), "{:?}", db.check().damaged_files());
        assert_answers(&db);
        db.compact_range(None, None).unwrap();
        assert_answers(&db);
    }
}

#[test]
fn a_checkpoint_does_without_a_run_whose_file_is_gone() {
    let rig = Rig::new();
    let (options, runs) = with_runs(&rig);
    let db = Db::open(options.clone()).unwrap();
    rig.fast_memory.remove(&runs[0]).unwrap();
    db.checkpoint(Path::new("/fast2"), Some(Path::new("/slow2"))).unwrap();
    assert_answers(&db);
    let copy = Options { dir: "/fast2".into(), ..options.slow("/slow2") };
    assert!(check(copy.clone()).is_well());
    let copy = Db::open(copy).unwrap();
    assert_answers(&copy);
    assert_eq!(copy.audit().unwrap().run_files.len(), runs.len() - 1);
    assert_eq!(copy.stats().boundary.damaged_tables, 0);
}
