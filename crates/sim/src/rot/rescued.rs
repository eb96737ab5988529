//! What a salvage of a harmed store makes of it: every record in its place is right, and every other one is told of. Tests: `tests/rot.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kelvin::salvage::{How, Record, Salvaged, Sink, rescue, salvage};
use kelvin::{Db, IterOptions, Options};
use kelvin_storage::MemoryStorage;

use super::fixture::{Dirs, Fixture, World, expiry_of};

type Records = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Records by keyspace.
#[derive(Default)]
pub(super) struct Kept(BTreeMap<String, Records>);

impl Sink for Kept {
    fn keyspace(&mut self, name: &str) -> kelvin::Result<()> {
        self.0.entry(name.to_string()).or_default();
        Ok(())
    }

    fn record(&mut self, name: &str, record: Record<'_>) -> kelvin::Result<()> {
        let records = self.0.entry(name.to_string()).or_default();
        records.insert(record.key.to_vec(), (record.value.to_vec(), record.expiry_ms));
        Ok(())
    }
}

/// What is rescued of the store on `device`.
pub(super) fn rescue_from(
    fixture: &Fixture,
    device: &MemoryStorage,
    how: How,
) -> kelvin::Result<(Salvaged, Kept)> {
    let world = World::at(fixture.now_ms);
    let mut kept = Kept::default();
    let options = fixture.setup.options(&fixture.dirs, device, &world);
    let salvaged = rescue(options, how, &mut kept, &mut |_| {})?;
    Ok((salvaged, kept))
}

/// The records that a salvage puts into a new store, read back.
pub(super) fn salvage_from(fixture: &Fixture, device: &MemoryStorage) -> Result<Kept, String> {
    let told = |error: kelvin::Error| format!("a salvage that succeeded before: {error}");
    let world = World::at(fixture.now_ms);
    let old = fixture.setup.options(&fixture.dirs, device, &world);
    let dirs = Dirs {
        fast: "/new/fast".into(),
        slow: fixture.dirs.slow.as_ref().map(|_| PathBuf::from("/new/slow")),
    };
    let into = || -> Options { fixture.setup.options(&dirs, device, &world) };
    salvage(old, into(), How::default(), &mut |_| {}).map_err(told)?;
    let db = Db::open(into()).map_err(told)?;
    let mut kept = Kept::default();
    for name in db.keyspaces() {
        let records = kept.0.entry(name.clone()).or_default();
        let mut iter = db.keyspace(&name).and_then(|one| one.iter(IterOptions::default())).map_err(told)?;
        let mut outcome = iter.seek_to_first();
        while outcome.is_ok() && iter.valid() {
            records.insert(iter.key().to_vec(), (iter.value().to_vec(), iter.expiry_ms()));
            outcome = iter.next();
        }
        outcome.map_err(told)?;
    }
    Ok(kept)
}

impl Kept {
    /// Whether both hold the same.
    pub(super) fn is_as(&self, other: &Self) -> Result<(), String> {
        if self.0 == other.0 {
            Ok(())
        } else {
            Err("the new store does not hold what was rescued".to_string())
        }
    }

    /// Whether the state is that of `moment`, but for what is told as lost or doubtful.
    pub(super) fn is_of(&self, salvaged: &Salvaged, fixture: &Fixture, moment: u64) -> Result<(), String> {
        let none = Records::new();
        for name in fixture.oracle.names() {
            let Some(history) = fixture.oracle.keyspace(&name) else { continue };
            let told = salvaged.keyspaces.iter().find(|one| one.name == name);
            let told = told.ok_or_else(|| format!("the keyspace {name} is not told of"))?;
            let (sure, doubtful) =
                (self.0.get(&name).unwrap_or(&none), self.0.get(&told.doubtful_name).unwrap_or(&none));
            if (told.rescued, told.doubtful) != (sure.len() as u64, doubtful.len() as u64) {
                return Err(format!("records of {name} are not counted right: {told:?}"));
            }
            let text = |key: &[u8]| key.escape_ascii().to_string();
            for (key, (value, expiry_ms)) in sure {
                if history.get(key, moment, fixture.now_ms) != Some(value) {
                    let value = value.escape_ascii();
                    return Err(format!(
                        "{name}: {} was rescued as {value}, which is stale or deleted",
                        text(key)
                    ));
                }
                if *expiry_ms != expiry_of(key) {
                    return Err(format!("{name}: {} was rescued with expiry {expiry_ms:?}", text(key)));
                }
            }
            for (key, _) in history.scan(None, None, moment, fixture.now_ms) {
                let is_told =
                    sure.contains_key(&key) || doubtful.contains_key(&key) || is_lost(salvaged, &name, &key);
                if !is_told {
                    return Err(format!("{name}: {} is missing, and in nothing that is lost", text(&key)));
                }
            }
            for key in doubtful.keys() {
                let is_in = |(from, to): &(kelvin::Bytes, kelvin::Bytes)| {
                    from.as_ref() <= &key[..] && &key[..] <= to.as_ref()
                };
                if sure.contains_key(key) || !told.doubtful_ranges.iter().any(is_in) {
                    return Err(format!("{name}: {} is doubtful, and no range says so", text(key)));
                }
            }
        }
        Ok(())
    }

    /// Whether every record is one that was written once.
    pub(super) fn was_written(&self, fixture: &Fixture) -> Result<(), String> {
        for (key, (value, _)) in self.0.values().flatten() {
            let was = |name: &String| {
                let history = fixture.oracle.keyspace(name);
                history.is_some_and(|history| {
                    (0..=fixture.last()).any(|moment| history.get(key, moment, 0) == Some(value))
                })
            };
            if !fixture.oracle.names().iter().any(was) {
                return Err(format!("{} was never {}", key.escape_ascii(), value.escape_ascii()));
            }
        }
        Ok(())
    }
}

fn is_lost(salvaged: &Salvaged, keyspace: &str, key: &[u8]) -> bool {
    salvaged.lost.iter().any(|lost| {
        let is_its = lost.keyspace.as_ref().is_none_or(|name| name == keyspace);
        let is_in = |(from, to): &(kelvin::Bytes, kelvin::Bytes)| from.as_ref() <= key && key <= to.as_ref();
        is_its && lost.keys.as_ref().is_none_or(is_in)
    })
}
