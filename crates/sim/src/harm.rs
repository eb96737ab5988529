//! Harm to what is advisory, while a store is closed (promise 6): the files of the hot-key tracker, the tables of the hot level.
//!
//! The number that is given chooses what is done and where, so that an operation list says it all. Tests: `tests/model.rs`.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin::{Db, Options};
use kelvin_base::hash::hash64_seeded;
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

/// Where another store lies on the fast device, whose tracker takes the place of the store's own.
const OTHER: &str = "/other";
/// The tracker's directory in a store's.
const TRACKER: &str = "ralt";

type Files = Vec<(PathBuf, Vec<u8>)>;

/// Harms the store in a directory of a device.
pub struct Harm<F: Fn(&Path) -> Options> {
    device: Arc<dyn Storage>,
    dir: PathBuf,
    other: F,
    /// The files of another store's tracker.
    foreign: OnceCell<Files>,
}

impl<F: Fn(&Path) -> Options> Harm<F> {
    /// Harm to the store in `dir` of `device`; `other` are the options of a store like it in another directory there.
    pub fn new(device: Arc<dyn Storage>, dir: &str, other: F) -> Self {
        Self { device, dir: dir.into(), other, foreign: OnceCell::new() }
    }

    /// Does the harm that `number` says, if there is anything to do it to; `copies` are the tables of the hot level.
    ///
    /// # Errors
    /// A failure of the device, which is in memory and has none, or of the other store.
    pub fn inflict(&self, number: u64, copies: &[PathBuf]) -> Result<String, String> {
        let tracker = self.tracker_files()?;
        let chosen = |files: &[PathBuf]| {
            let index = hash64_seeded(number, b"file") % files.len().max(1) as u64;
            files.get(usize::try_from(index).unwrap_or(0)).cloned()
        };
        let (what, path) = match number % 9 {
            0 => {
                tracker.iter().try_for_each(|path| self.device.remove(path)).map_err(told)?;
                return Ok("without its tracker's files".into());
            }
            1 => return self.replace(&tracker),
            2 => ("random bytes in", chosen(&tracker)),
            3 => ("half of", chosen(&tracker)),
            4 => ("a flipped bit in", chosen(&tracker)),
            5 => ("without", chosen(copies)),
            6 => ("half of", chosen(copies)),
            7 => ("random bytes in", chosen(copies)),
            _ => ("a flipped bit in", chosen(copies)),
        };
        let Some(path) = path else { return Ok("reopened".into()) };
        // Threads may have merged the run, and removed its table, before the store was closed.
        if !self.device.exists(&path).map_err(told)? {
            return Ok("reopened".into());
        }
        let mut bytes = read(&*self.device, &path).map_err(told)?;
        match what {
            "half of" => bytes.truncate(bytes.len() / 2),
            "random bytes in" => {
                bytes.iter_mut().zip(0_u64..).for_each(|(byte, at)| {
                    *byte = hash64_seeded(number, &at.to_le_bytes()).to_le_bytes()[0];
                });
            }
            _ if !bytes.is_empty() => {
                let at = usize::try_from(hash64_seeded(number, b"place") % bytes.len() as u64).unwrap_or(0);
                bytes[at] ^= 1 << (number / 9 % 8);
            }
            _ => {}
        }
        self.device.remove(&path).map_err(told)?;
        if what != "without" {
            write(&*self.device, &path, &bytes).map_err(told)?;
        }
        Ok(format!("reopened with {what} {}", path.display()))
    }

    fn tracker_files(&self) -> Result<Vec<PathBuf>, String> {
        let dir = self.dir.join(TRACKER);
        Ok(list(&*self.device, &dir).map_err(told)?.into_iter().map(|name| dir.join(name)).collect())
    }

    /// Puts another store's tracker in the place of the store's own.
    fn replace(&self, own: &[PathBuf]) -> Result<String, String> {
        if self.foreign.get().is_none() {
            let made = self.make_foreign()?;
            self.foreign.get_or_init(|| made);
        }
        own.iter().try_for_each(|path| self.device.remove(path)).map_err(told)?;
        let dir = self.dir.join(TRACKER);
        self.device.create_dir_all(&dir).map_err(told)?;
        for (name, bytes) in self.foreign.get().into_iter().flatten() {
            write(&*self.device, &dir.join(name), bytes).map_err(told)?;
        }
        Ok("reopened with another store's tracker".into())
    }

    fn make_foreign(&self) -> Result<Files, String> {
        let failed = |error: kelvin::Error| format!("another store: {error}");
        let db = Db::open((self.other)(Path::new(OTHER))).map_err(failed)?;
        for number in 0..300_u32 {
            let key = format!("k{:05}", number % 150);
            db.put(key.as_bytes(), b"another store's").map_err(failed)?;
            db.get(key.as_bytes()).map_err(failed)?;
        }
        db.close().map_err(failed)?;
        let dir = Path::new(OTHER).join(TRACKER);
        let read = |name: PathBuf| Ok((name.clone(), read(&*self.device, &dir.join(&name)).map_err(told)?));
        list(&*self.device, &dir).map_err(told)?.into_iter().map(read).collect()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err passes it")]
fn told(error: io::Error) -> String {
    format!("harming the store: {error}")
}

/// The names in `dir`; none if it is not there.
pub(crate) fn list(device: &dyn Storage, dir: &Path) -> io::Result<Vec<PathBuf>> {
    if device.exists(dir)? { device.list(dir) } else { Ok(Vec::new()) }
}

/// The tables in `dir`.
///
/// # Errors
/// The device's.
pub fn tables_in(device: &dyn Storage, dir: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let names = list(device, dir).map_err(told)?;
    let is_table = |name: &PathBuf| name.extension().is_some_and(|kind| kind == "tbl");
    Ok(names.into_iter().filter(is_table).map(|name| dir.join(name)).collect())
}

/// The bytes of a file.
pub(crate) fn read(device: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = device.open(path, IoMode::Buffered)?;
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut buf = AlignedBuf::new();
    let range = if len == 0 { 0..0 } else { file.read_at(0, len, &mut buf)? };
    Ok(buf.as_slice().get(range).unwrap_or_default().to_vec())
}

/// Makes a file of `bytes`.
pub(crate) fn write(device: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = device.create(path, Create::new(IoMode::Buffered))?;
    file.append(bytes)?;
    file.sync()
}
