//! What a harmed store answers, by every way of asking, and whether that is the state of a moment. Tests: `tests/rot.rs`.

use std::collections::{BTreeMap, BTreeSet};

use kelvin::{Db, DbIterator, Error, ErrorKind, IterOptions, Keyspace};

use super::fixture::{Fixture, World};
use kelvin_storage::MemoryStorage;

type Pair = (Vec<u8>, Vec<u8>);
type Answer = Result<Option<Vec<u8>>, Error>;

/// What a store answered.
pub(super) struct Look {
    /// Why it did not open.
    pub(super) refused: Option<Error>,
    keyspaces: BTreeMap<String, Answers>,
}

/// The answers of a keyspace.
struct Answers {
    /// By key, of `get` and of `multi_get`.
    points: [BTreeMap<Vec<u8>, Answer>; 2],
    /// Forward, and backward.
    scans: [(Vec<Pair>, Option<Error>); 2],
}

/// Opens the store on `device` and asks for everything.
pub(super) fn look(fixture: &Fixture, device: &MemoryStorage) -> Result<Look, String> {
    let world = World::at(fixture.now_ms);
    let mut look = Look { refused: None, keyspaces: BTreeMap::new() };
    let db = match Db::open(fixture.setup.options(&fixture.dirs, device, &world)) {
        Ok(db) => db,
        Err(error) => {
            look.refused = Some(error);
            return Ok(look);
        }
    };
    for name in fixture.oracle.names() {
        if !db.keyspaces().contains(&name) {
            return Err(format!("the keyspace {name} is gone without a word"));
        }
        let keyspace = db.keyspace(&name).map_err(|error| format!("the keyspace {name}: {error}"))?;
        look.keyspaces.insert(name.clone(), answers(fixture, &name, &keyspace)?);
    }
    Ok(look)
}

fn answers(fixture: &Fixture, name: &str, keyspace: &Keyspace) -> Result<Answers, String> {
    let keys = keys_of(fixture, name);
    let many: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let many =
        keyspace.multi_get(&many).into_iter().map(|answer| answer.map(|found| found.map(|v| v.to_vec())));
    let single = keys.iter().map(|key| keyspace.get(key).map(|found| found.map(|value| value.to_vec())));
    let points = [keys.iter().cloned().zip(single).collect(), keys.iter().cloned().zip(many).collect()];
    let count = 2 * keys.len() + 10;
    let mut scans = [(Vec::new(), None), (Vec::new(), None)];
    for (is_forward, scan) in [true, false].into_iter().zip(&mut scans) {
        let outcome =
            keyspace.iter(IterOptions::default()).and_then(|iter| walk(iter, is_forward, count, &mut scan.0));
        scan.1 = outcome.err();
        if scan.0.len() >= count {
            return Err(format!("an iterator over {name} does not end"));
        }
    }
    Ok(Answers { points, scans })
}

/// Every key that was ever written.
fn keys_of(fixture: &Fixture, name: &str) -> BTreeSet<Vec<u8>> {
    fixture.oracle.keyspace(name).map(|history| history.keys().cloned().collect()).unwrap_or_default()
}

fn walk(mut iter: DbIterator, is_forward: bool, most: usize, found: &mut Vec<Pair>) -> Result<(), Error> {
    if is_forward {
        iter.seek_to_first()?
    } else {
        iter.seek_to_last()?
    }
    while iter.valid() && found.len() < most {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        if is_forward { iter.next()? } else { iter.prev()? }
    }
    Ok(())
}

/// Whether an error says what a user can do something about: its kind, and a file.
pub(super) fn is_told(error: &Error) -> Result<(), String> {
    let is_kind = match error.kind() {
        ErrorKind::Corruption | ErrorKind::InvalidArgument | ErrorKind::TierUnavailable => true,
        ErrorKind::Io => error.os().is_some_and(|os| os.kind() == std::io::ErrorKind::NotFound),
        _ => false,
    };
    if !is_kind {
        return Err(format!("an error of the wrong kind: {error}"));
    }
    if error.path().is_none() {
        return Err(format!("an error that names no file: {error}"));
    }
    Ok(())
}

impl Look {
    /// Every error met.
    pub(super) fn errors(&self) -> impl Iterator<Item = &Error> {
        let of_answers = self.keyspaces.values().flat_map(|one| {
            let points =
                one.points.iter().flat_map(|answers| answers.values().filter_map(|one| one.as_ref().err()));
            points.chain(one.scans.iter().filter_map(|(_, error)| error.as_ref()))
        });
        self.refused.iter().chain(of_answers)
    }

    /// True if everything that was answered is the state of `moment`.
    pub(super) fn is_of(&self, fixture: &Fixture, moment: u64) -> Result<(), String> {
        for (name, answers) in &self.keyspaces {
            let Some(history) = fixture.oracle.keyspace(name) else { continue };
            for (how, points) in ["get", "multi_get"].into_iter().zip(&answers.points) {
                for (key, answer) in points {
                    let expected = history.get(key, moment, fixture.now_ms);
                    if let Ok(found) = answer
                        && found.as_deref() != expected
                    {
                        return Err(wrong(&format!("{how} of {name}"), key, found.as_deref(), expected));
                    }
                }
            }
            let mut expected = history.scan(None, None, moment, fixture.now_ms);
            for (how, (found, error)) in ["forward", "backward"].into_iter().zip(&answers.scans) {
                let same = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
                if same < found.len() || (error.is_none() && same < expected.len()) {
                    let key = found.get(same).or(expected.get(same)).map(|(key, _)| key.clone());
                    let what = format!("a scan of {name}, {how},");
                    let value = |pairs: &[Pair]| pairs.get(same).map(|(_, value)| value.clone());
                    let (found, expected) = (value(found), value(&expected));
                    return Err(wrong(
                        &what,
                        &key.unwrap_or_default(),
                        found.as_deref(),
                        expected.as_deref(),
                    ));
                }
                expected.reverse();
            }
        }
        Ok(())
    }
}

fn wrong(what: &str, key: &[u8], found: Option<&[u8]>, expected: Option<&[u8]>) -> String {
    let text = |value: Option<&[u8]>| {
        value.map_or_else(|| "nothing".into(), |value| value.escape_ascii().to_string())
    };
    format!("{what} at {} answers {}, not {}", key.escape_ascii(), text(found), text(expected))
}
