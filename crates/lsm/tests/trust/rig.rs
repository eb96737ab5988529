//! Two devices in memory that can fail, a clock and background work stepped by hand, and a small store on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::{Error, ErrorKind, ManualClock, ManualExecutor, Tier};
use kelvin_lsm::check::CheckReport;
use kelvin_lsm::db::Db;
use kelvin_lsm::options::{CompressionChoice, Env, Options};
use kelvin_storage::{AlignedBuf, Create, FaultStorage, IoMode, MemoryStorage, Storage};

/// The fast tier's directory.
pub const FAST: &str = "/fast";
/// The slow tier's directory.
pub const SLOW: &str = "/slow";

/// The world of a store.
pub struct Rig {
    pub fast: Arc<FaultStorage>,
    pub slow: Arc<FaultStorage>,
    pub fast_memory: MemoryStorage,
    pub slow_memory: MemoryStorage,
    pub clock: Arc<ManualClock>,
    pub executor: Arc<ManualExecutor>,
}

impl Rig {
    pub fn new() -> Self {
        let (fast_memory, slow_memory) = (MemoryStorage::new(), MemoryStorage::new());
        Self {
            fast: Arc::new(FaultStorage::new(Arc::new(fast_memory.clone()), 1)),
            slow: Arc::new(FaultStorage::new(Arc::new(slow_memory.clone()), 2)),
            fast_memory,
            slow_memory,
            clock: Arc::new(ManualClock::new(1_000_000)),
            executor: Arc::new(ManualExecutor::new()),
        }
    }

    pub fn env(&self) -> Env {
        Env {
            fast: self.fast.clone(),
            slow: self.slow.clone(),
            clock: self.clock.clone(),
            executor: self.executor.clone(),
            seed: 7,
        }
    }

    /// A store of both tiers, a megabyte fast.
    pub fn tiered(&self) -> Options {
        self.single().slow(SLOW).fast_capacity(1 << 20)
    }

    /// A store of one tier.
    pub fn single(&self) -> Options {
        Options::new(FAST).memory(1 << 20).compression(CompressionChoice::None).env(self.env())
    }

    /// A closed store whose keys `a0000`.. lie in tables on the slow tier (among others), `f0000`.. in a table on the fast tier and
    /// `w0000`.. in the WAL only.
    pub fn filled(&self) -> Options {
        let options = self.tiered();
        let db = Db::open(options.clone()).unwrap();
        fill(&db, 'a', 200);
        // Keys on both sides of them push them off the fast tier.
        let on_slow = |key: &[u8]| db.explain_key("default", key).unwrap().tier == Some(Tier::Slow);
        let mut number = 0;
        while number % 500 != 0 || !(0..200).all(|number| on_slow(&key('a', number))) {
            for letter in ['A', 'b'] {
                let key = key(letter, number);
                db.put(&key, &value(&key)).unwrap();
            }
            self.executor.run_all();
            number += 1;
            assert!(number < 9000, "{:?}", db.levels());
        }
        fill(&db, 'f', 100);
        db.flush().unwrap();
        fill(&db, 'w', 50);
        db.close().unwrap();
        options
    }

    /// The storage of the directory `path` lies in.
    pub fn memory_of(&self, path: &Path) -> &MemoryStorage {
        if path.starts_with(FAST) { &self.fast_memory } else { &self.slow_memory }
    }

    /// The files in `dir` whose name ends so, sorted. Directories in it are none.
    pub fn files(&self, dir: &str, ending: &str) -> Vec<PathBuf> {
        let dir = Path::new(dir);
        let storage = self.memory_of(dir);
        let names = storage.list(dir).unwrap();
        names
            .iter()
            .filter(|name| name.to_string_lossy().ends_with(ending))
            .map(|name| dir.join(name))
            .filter(|path| storage.file_len(path).is_ok())
            .collect()
    }

    /// The bytes of a file.
    pub fn read(&self, path: &Path) -> Vec<u8> {
        let file = self.memory_of(path).open(path, IoMode::Buffered).unwrap();
        let len = usize::try_from(file.len().unwrap()).unwrap();
        if len == 0 {
            return Vec::new();
        }
        let mut buf = AlignedBuf::new();
        let range = file.read_at(0, len, &mut buf).unwrap();
        buf.as_slice()[range].to_vec()
    }

    /// Replaces a file's bytes behind the store's back.
    pub fn write(&self, path: &Path, bytes: &[u8]) {
        let storage = self.memory_of(path);
        if storage.exists(path).unwrap() {
            storage.remove(path).unwrap();
        }
        storage.create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = storage.create(path, Create::new(IoMode::Buffered)).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }

    /// Changes a file's bytes behind the store's back.
    pub fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(path);
        change(&mut bytes);
        self.write(path, &bytes);
    }

    /// Every file of both directories and of the tracker's with its bytes, the lock files excepted.
    pub fn image(&self) -> Vec<(PathBuf, Vec<u8>)> {
        [FAST, "/fast/ralt", SLOW]
            .iter()
            .filter(|dir| self.memory_of(Path::new(dir)).exists(Path::new(dir)).unwrap())
            .flat_map(|dir| self.files(dir, ""))
            .filter(|path| !path.ends_with("LOCK"))
            .map(|path| (path.clone(), self.read(&path)))
            .collect()
    }

    /// The world as a process that is killed now leaves it.
    pub fn killed(&self) -> Self {
        let after = Self::new();
        for (path, bytes) in self.image() {
            after.write(&path, &bytes);
        }
        after
    }

    /// The table on the slow tier that holds the key `a0000`.
    pub fn slow_table(&self) -> PathBuf {
        let holds = |path: &PathBuf| self.read(path).windows(10).any(|bytes| bytes == b"a0000a0000");
        self.files(SLOW, ".tbl").into_iter().find(holds).unwrap()
    }

    /// Names, lengths and hashes of the tables and logs, for "nothing was changed".
    pub fn fingerprint(&self) -> Vec<(PathBuf, usize, u64)> {
        let file = |(path, bytes): (PathBuf, Vec<u8>)| (path, bytes.len(), kelvin_base::hash64(&bytes));
        let records =
            |(path, _): &(PathBuf, Vec<u8>)| path.extension().is_some_and(|end| end == "tbl" || end == "wal");
        self.image().into_iter().filter(records).map(file).collect()
    }

    /// Lets every delayed retry happen now.
    pub fn let_time_pass(&self) {
        self.executor.run_all();
        self.executor.fire_delayed();
        self.executor.run_all();
    }
}

/// The key `letter` and `number`.
pub fn key(letter: char, number: usize) -> Vec<u8> {
    format!("{letter}{number:04}").into_bytes()
}

/// The value that belongs to a key.
pub fn value(key: &[u8]) -> Vec<u8> {
    key.iter().copied().cycle().take(400).collect()
}

/// Puts `count` pairs whose keys begin with `letter`.
pub fn fill(db: &Db, letter: char, count: usize) {
    for number in 0..count {
        let key = key(letter, number);
        db.put(&key, &value(&key)).unwrap_or_else(|error| panic!("{}: {error}", key.escape_ascii()));
    }
}

/// Reads back what [`fill`] put.
pub fn assert_filled(db: &Db, letter: char, count: usize) {
    for number in 0..count {
        let key = key(letter, number);
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(&*value(&key)), "{}", key.escape_ascii());
    }
}

/// The error of an opening that must fail.
pub fn refused(options: Options) -> Error {
    match Db::open(options) {
        Err(error) => error,
        Ok(_) => panic!("the store opened"),
    }
}

/// Asserts the kind, that every one of `words` is said, and that there is advice.
pub fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

/// Checks the closed store.
pub fn check(options: Options) -> CheckReport {
    kelvin_lsm::check::check(options, &mut |_, _| {}).unwrap()
}

/// Writes `letter`'s keys until a write is refused; the error, and how many were acknowledged.
pub fn write_until_full(rig: &Rig, db: &Db, letter: char) -> (Error, usize) {
    for number in 0..9999 {
        let key = key(letter, number);
        if let Err(error) = db.put(&key, &value(&key)) {
            return (error, number);
        }
        if number % 50 == 0 {
            rig.executor.run_all();
        }
    }
    panic!("nothing was ever full");
}
