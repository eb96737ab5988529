//! Opens one image of a power loss and holds it against what had been promised.
//!
//! Tests: `tests/crash.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin::{Db, Durability, FileKind, IterOptions, WriteOptions};
use kelvin_base::Clock;
use kelvin_storage::Storage;
use kelvin_storage::crash::{CrashModel, CrashStorage, Unsynced};

use super::{Cut, Dirs, Promised, Recorded, Setup, World, failed, show};
use crate::oracle::Oracle;

/// Written to every image that was opened.
const AFTER: &[u8] = b"~after the crash";
/// Second power losses tried in one recovery.
const AGAIN: usize = 4;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// Keyspace, then its pairs.
type State = Vec<(String, Pairs)>;

/// The least an image must hold.
#[derive(Clone, Copy, Debug, Default)]
struct Least {
    moment: u64,
    generation: usize,
    after: bool,
}

/// Where in the orders of commits and keyspaces a state lies: the earliest and the latest place that look like it.
struct Found {
    first: Least,
    last: Least,
}

/// Opens the image of `cut` and checks every promise; how many images of a second power loss were opened, too.
pub(super) fn check(setup: Setup, recorded: &Recorded, cut: Cut) -> Result<u64, String> {
    let Cut { point, seed, again, .. } = cut;
    let model = super::model_of(cut.image);
    let least = least(recorded, point, model);
    let image = recorded.log.image(point, seed, model);
    let world = World::new(image, Arc::clone(&recorded.clock));
    let found = live(setup, recorded, &world, least)?;
    let (first_life, points) = (world.disk.log(), world.disk.points());
    checkpoints(setup, recorded, &world, point)?;
    reopened(setup, recorded, &world, Least { after: true, ..found.first })?;
    let losses = if again { AGAIN } else { 0 };
    for step in 0..losses {
        let spread = points / AGAIN + 1;
        let again_at = (usize::try_from(seed).unwrap_or(0) + step * spread) % (points + 1);
        let model = super::model_of((seed + step as u64) % 5);
        let world =
            World::new(first_life.image(again_at, seed + step as u64, model), Arc::clone(&recorded.clock));
        let least = Least { after: false, ..found.first };
        reopened(setup, recorded, &world, least)
            .map_err(|what| format!("power lost again at point {again_at} of recovery, {model:?}: {what}"))?;
    }
    Ok(losses as u64)
}

/// What had been acknowledged by `point` and must have survived.
fn least(recorded: &Recorded, point: usize, model: CrashModel) -> Least {
    let mut least = Least::default();
    for promise in recorded.promises.iter().filter(|promise| promise.point <= point) {
        match promise.what {
            Promised::Moment(moment, durability) => {
                let survives = durability == Durability::Sync
                    || (durability == Durability::Os && model.unsynced == Unsynced::Kept);
                if survives {
                    least.moment = least.moment.max(moment);
                }
            }
            Promised::Generation(generation) => least.generation = least.generation.max(generation),
            Promised::Checkpoint(..) => {}
        }
    }
    least
}

fn open(setup: Setup, dirs: &Dirs, world: &World) -> Result<Db, String> {
    Db::open(setup.options(dirs, world)).map_err(failed("opening the image"))
}

/// Opens, compares, writes, closes.
fn live(setup: Setup, recorded: &Recorded, world: &World, least: Least) -> Result<Found, String> {
    let db = open(setup, &setup.dirs(), world)?;
    let found = compare(&db, recorded, least)?;
    let options = WriteOptions { durability: Some(Durability::Sync), ttl: None };
    db.put_with(AFTER, b"here", &options).map_err(failed("a write after recovery"))?;
    world.executor.run_all();
    if db.get(AFTER).map_err(failed("a read after recovery"))?.as_deref() != Some(b"here") {
        return Err("a write after recovery does not read back".to_string());
    }
    db.wait_idle().map_err(failed("wait_idle"))?;
    db.close().map_err(failed("closing the image"))?;
    world.executor.run_all();
    Ok(found)
}

/// Opens once more, compares, flushes, and looks for orphans and damage.
fn reopened(setup: Setup, recorded: &Recorded, world: &World, least: Least) -> Result<(), String> {
    let db = open(setup, &setup.dirs(), world)?;
    compare(&db, recorded, least).map_err(|what| format!("opened once more: {what}"))?;
    db.put(AFTER, b"here").map_err(failed("a write after two recoveries"))?;
    db.flush().map_err(failed("a flush after two recoveries"))?;
    world.executor.run_all();
    let report = db.check();
    if let Some(file) = report.damaged_files().first() {
        return Err(format!("check finds damage: {:?}", file.damage));
    }
    let tables = report.files.iter().filter(|file| file.kind == FileKind::Table);
    let named: BTreeSet<PathBuf> = tables.map(|file| file.path.clone()).collect();
    orphans(&setup.dirs(), world, &named)?;
    db.close().map_err(failed("closing once more"))?;
    world.executor.run_all();
    Ok(())
}

/// Files that no part of an open store knows.
fn orphans(dirs: &Dirs, world: &World, named: &BTreeSet<PathBuf>) -> Result<(), String> {
    let mut on_disk = BTreeSet::new();
    let mut manifests = 0;
    for dir in [Some(&dirs.fast), dirs.slow.as_ref()].into_iter().flatten() {
        for name in list(&world.disk, dir)? {
            let path = dir.join(&name);
            match path.extension().and_then(|kind| kind.to_str()) {
                Some("tbl") => drop(on_disk.insert(path)),
                Some("manifest") => manifests += 1,
                Some("tmp" | "new") => return Err(format!("{} was left behind", path.display())),
                _ => {}
            }
        }
    }
    if manifests != 1 {
        return Err(format!("{manifests} manifests are on disk"));
    }
    if *named != on_disk {
        return Err(format!("the manifest names {named:?}, on disk are {on_disk:?}"));
    }
    Ok(())
}

fn list(disk: &CrashStorage, dir: &Path) -> Result<Vec<PathBuf>, String> {
    disk.list(dir).map_err(|error| format!("listing {}: {error}", show(dir)))
}

/// Every checkpoint acknowledged by `point` opens and holds its moment.
fn checkpoints(setup: Setup, recorded: &Recorded, world: &World, point: usize) -> Result<(), String> {
    for promise in recorded.promises.iter().filter(|promise| promise.point <= point) {
        let Promised::Checkpoint(number, generation, moment) = promise.what else { continue };
        let named = |what| format!("checkpoint {number}: {what}");
        let db = open(setup, &setup.checkpoint_dirs(number), world).map_err(named)?;
        let (state, _) = read_all(&db).map_err(named)?;
        let now_ms = recorded.clock.unix_millis();
        let expected = recorded.generations.get(generation).map(|oracle| state_at(oracle, moment, now_ms));
        if expected.as_ref() != Some(&state) {
            return Err(named(format!("it holds {}, was made of {expected:?}", describe(&state))));
        }
        db.close().map_err(failed("closing a checkpoint"))?;
        world.executor.run_all();
    }
    Ok(())
}

/// The records of `oracle` at `moment`.
fn state_at(oracle: &Oracle, moment: u64, now_ms: u64) -> State {
    let pairs = |name: &String| {
        oracle.keyspace(name).map(|history| history.scan(None, None, moment, now_ms)).unwrap_or_default()
    };
    oracle.names().into_iter().map(|name| (name.clone(), pairs(&name))).collect()
}

/// Finds the state of `db` in the orders of commits and keyspaces.
fn compare(db: &Db, recorded: &Recorded, least: Least) -> Result<Found, String> {
    let (state, after) = read_all(db)?;
    if least.after && !after {
        return Err("the write after the first recovery is lost".to_string());
    }
    let now_ms = recorded.clock.unix_millis();
    let mut found: Option<Found> = None;
    for (generation, oracle) in recorded.generations.iter().enumerate() {
        for moment in 0..=oracle.moment() {
            if state_at(oracle, moment, now_ms) == state {
                let here = Least { moment, generation, after };
                let first = found.map_or(here, |found| found.first);
                found = Some(Found { first, last: here });
            }
        }
    }
    let Some(found) = found else {
        return Err(format!("the state is no prefix of the commit order: {}", describe(&state)));
    };
    if found.last.moment < least.moment || found.last.generation < least.generation {
        return Err(format!("the state is that of {:?}, but {least:?} had been promised", found.last));
    }
    Ok(found)
}

/// A state in few words: long values are cut.
fn describe(state: &State) -> String {
    let mut text = String::new();
    for (name, pairs) in state {
        text.push_str(&format!("\n  {name}:"));
        for (key, value) in pairs {
            let head = &value[..value.len().min(12)];
            text.push_str(&format!(" {}={}", key.escape_ascii(), head.escape_ascii()));
        }
    }
    text
}

/// Everything readable, and whether the write after the crash is there.
fn read_all(db: &Db) -> Result<(State, bool), String> {
    let mut state = Vec::new();
    let mut after = false;
    for name in db.keyspaces() {
        let space = db.keyspace(&name).map_err(failed("keyspace"))?;
        let mut iter = space.iter(IterOptions::default()).map_err(failed("iter"))?;
        let mut pairs = Vec::new();
        iter.seek_to_first().map_err(failed("seek_to_first"))?;
        while iter.valid() {
            let (key, value) = (iter.key().to_vec(), iter.value().to_vec());
            let got = space.get(&key).map_err(failed("get"))?;
            if got.as_deref() != Some(value.as_slice()) {
                return Err(format!("get and scan disagree on {key:?}"));
            }
            if key == AFTER {
                after = true;
            } else {
                pairs.push((key, value));
            }
            iter.next().map_err(failed("next"))?;
        }
        state.push((name, pairs));
    }
    Ok((state, after))
}
