//! Targets of the whole engine: a store made of fuzzed files, operations against the model, and a power cut among them.
//!
//! Tests: `tests/corpus.rs`.

use std::sync::Arc;

use kelvin::{Db, Env, IterOptions, Options};
use kelvin_base::coding::get_bytes;
use kelvin_base::{ManualClock, ManualExecutor, Result};
use kelvin_sim::crash::scenarios;
use kelvin_sim::settings::{ALL, run_bytes};
use kelvin_storage::Storage;

use crate::stream::{DIR, storage};
use crate::{log, manifest};

/// Most operations of one run.
const OPERATIONS_MAX: u64 = 400;
/// Keys they are about.
const KEYS: u64 = 60;

/// A store whose manifest is made of the first part and whose logs are made of the rest, under good checksums.
pub(crate) fn store(mut data: &[u8]) -> bool {
    let edits = get_bytes(&mut data).unwrap_or_default();
    let storage = storage();
    manifest::put_manifest(&storage, &manifest::sign(edits));
    log::put_logs(&storage, &log::sign(data));
    let executor = Arc::new(ManualExecutor::new());
    let fast: Arc<dyn Storage> = Arc::new(storage);
    let env = Env {
        slow: Arc::clone(&fast),
        fast,
        clock: Arc::new(ManualClock::new(1_000_000)),
        executor: Arc::clone(&executor) as _,
        seed: 1,
    };
    let options = || Options::new(DIR).memory(8 << 20).env(env.clone());
    drop(kelvin::check(options(), &mut |_, _| {}));
    let Ok(db) = Db::open(options()) else { return false };
    let used = use_store(&db, &executor);
    let closed = db.close();
    executor.run_all();
    // A store that could be used and closed can be opened again.
    if used.is_ok() && closed.is_ok() {
        Db::open(options()).and_then(Db::close).expect("a store that was closed opens again");
    }
    used.is_ok()
}

fn use_store(db: &Db, executor: &ManualExecutor) -> Result<()> {
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let mut iter = keyspace.iter(IterOptions::default())?;
        iter.seek_to_first()?;
        while iter.valid() {
            iter.next()?;
        }
        keyspace.put(b"a key", b"a value")?;
        keyspace.flush()?;
    }
    executor.run_all();
    Ok(())
}

/// Operations chosen by the bytes, their answers compared with the model's; the first byte chooses the configuration.
pub(crate) fn ops(data: &[u8]) -> bool {
    let Some((&first, choices)) = data.split_first() else { return false };
    let by_hand: Vec<_> = ALL.iter().filter(|configuration| !configuration.threads).collect();
    let configuration = by_hand[usize::from(first) % by_hand.len()];
    if let Err(mismatch) = run_bytes(configuration, choices, OPERATIONS_MAX, KEYS) {
        panic!("{mismatch}");
    }
    true
}

/// Operations and a moment of theirs at which the power fails, all chosen by the bytes: what is left must open and keep what was promised.
pub(crate) fn crash(data: &[u8]) -> bool {
    let (scenario, cut) = scenarios::of_bytes(data);
    if scenario.steps.is_empty() {
        return false;
    }
    if let Err(what) = scenario.run_cut(cut) {
        panic!("{what}");
    }
    true
}
