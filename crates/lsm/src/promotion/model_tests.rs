//! Random operations on a tiny store over two tiers against a `BTreeMap`, reads and promotions stopped half-way among them; and
//! readers and writers on threads, each read checked against what was written when it began and when it ended.
//!
//! A get does four things that others may come between: it pins a view, takes a sequence number, asks (the view never changes, the
//! promotion cache does), and inserts what it found. The random reads stop before each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use kelvin_base::{Clock, Sequence, SystemClock, ThreadPool};
use kelvin_storage::MemoryStorage;

use super::testing::{HalfRead, counted, walk};
use crate::compaction::pick::Forced;
use crate::db::testing::{World, begin_step, key, lay_floor};
use crate::db::{Db, IterOptions, Snapshot, WriteOptions};
use crate::options::{CompressionChoice, Env, HotParts, Hotness, Options};
use crate::version::{FIRST_SLOW, LEVELS_FAST};
use crate::view::View;

const KEYS: usize = 120;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// A value and the time at which it expires; none if there is none.
type State = Option<(Vec<u8>, u64)>;
type Map = BTreeMap<usize, (Vec<u8>, u64)>;

/// A get that has pinned its view, and then perhaps taken its sequence number.
struct Paused {
    number: usize,
    view: Arc<View>,
    at: Option<Sequence>,
    /// What the key was from then on until the number was taken: it must be answered with one of these.
    states: Vec<State>,
}

struct Model {
    db: Db,
    random: Random,
    map: Map,
    paused: Vec<Paused>,
    half: Vec<HalfRead>,
    snapshots: Vec<(Snapshot, Map)>,
    writes: usize,
    /// Goes last: it forgets what the others leave queued.
    world: World,
}

impl Model {
    fn new(seed: u64) -> Self {
        let world = World::new();
        // Every read of the slow tier may promote, and what was read is kept.
        let options = world.options().advanced(|advanced| {
            advanced.hotness = Some(Hotness::Oracle);
            advanced.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
            advanced.promotion_bytes = Some(6 << 10);
        });
        let db = Db::open(options).unwrap();
        lay_floor(&db, FIRST_SLOW + 1);
        let random = Random(seed * 0x9e37_79b9 + 1);
        let (paused, half) = (Vec::new(), Vec::new());
        Self { world, db, random, map: Map::new(), paused, half, snapshots: Vec::new(), writes: 0 }
    }

    /// `number` is not what it was: gets that have no sequence number yet may see that.
    fn changed(&mut self, number: usize) {
        let state = self.map.get(&number);
        for read in self.paused.iter_mut().filter(|read| read.number == number && read.at.is_none()) {
            read.states.push(state.cloned());
        }
    }

    fn key(&mut self) -> usize {
        // Half of all operations go to a few keys.
        let bound = if self.random.below(2) == 0 { 12 } else { KEYS };
        self.random.below(bound)
    }

    fn now_ms(&self) -> u64 {
        self.world.clock.unix_millis()
    }

    fn wanted(map: &Map, now_ms: u64, number: usize) -> Option<Vec<u8>> {
        map.get(&number).filter(|(_, expiry_ms)| *expiry_ms > now_ms).map(|(value, _)| value.clone())
    }

    fn put(&mut self) {
        let number = self.key();
        self.writes += 1;
        let text = format!("{number}-{}-", self.writes).repeat(1 + self.random.below(12));
        let ttl = (self.random.below(8) == 0).then(|| Duration::from_secs(30));
        let options = WriteOptions { ttl, ..WriteOptions::default() };
        self.db.put_with(&key(number), text.as_bytes(), &options).unwrap();
        let expiry_ms = ttl.map_or(u64::MAX, |_| self.now_ms() + 30_000);
        self.map.insert(number, (text.into_bytes(), expiry_ms));
        self.changed(number);
    }

    fn delete(&mut self) {
        let number = self.key();
        if self.random.below(3) > 0 {
            self.db.delete(&key(number)).unwrap();
            self.map.remove(&number);
            return self.changed(number);
        }
        let end = number + self.random.below(10);
        self.db.delete_range(&key(number), &key(end)).unwrap();
        self.map.retain(|one, _| !(number..end).contains(one));
        (number..end).for_each(|number| self.changed(number));
    }

    fn get(&mut self) {
        let number = self.key();
        let wanted = Self::wanted(&self.map, self.now_ms(), number);
        assert_eq!(self.db.get(&key(number)).unwrap().map(|value| value.to_vec()), wanted, "key {number}");
        let other = self.key();
        let both = [number, other].map(key);
        let answers = self.db.multi_get(&[&both[0], &both[1]]);
        for (answer, number) in answers.into_iter().zip([number, other]) {
            let wanted = Self::wanted(&self.map, self.now_ms(), number);
            assert_eq!(answer.unwrap().map(|value| value.to_vec()), wanted, "key {number} of many");
        }
    }

    fn half_read(&mut self) {
        if self.half.len() < 6 {
            let number = self.key();
            self.half.push(HalfRead::begin(&self.db, &key(number)));
        } else {
            let index = self.random.below(self.half.len());
            self.half.swap_remove(index).finish();
        }
    }

    /// Begins a get, or lets one do the next thing.
    fn paused_read(&mut self) {
        if self.paused.len() < 8 {
            let number = self.key();
            let (view, states) = (self.db.state.view(), vec![self.map.get(&number).cloned()]);
            return self.paused.push(Paused { number, view, at: None, states });
        }
        let index = self.random.below(self.paused.len());
        let visible = self.db.engine.visible();
        let Some(at) = self.paused[index].at else {
            self.paused[index].at = Some(visible);
            return;
        };
        let Paused { number, view, states, .. } = self.paused.swap_remove(index);
        let read = HalfRead::at(&self.db, view, at, &key(number));
        let answer = read.found.as_ref().and_then(|found| found.value.as_ref()).map(|value| value.to_vec());
        let now_ms = self.now_ms();
        let lives = |state: State| state.filter(|(_, expiry_ms)| *expiry_ms > now_ms).map(|(value, _)| value);
        let found = states.into_iter().any(|state| lives(state) == answer);
        assert!(found, "key {number} at {at}: {answer:?}");
        self.half.push(read);
    }

    fn snapshot(&mut self) {
        if self.random.below(6) == 0 && !self.snapshots.is_empty() {
            let index = self.random.below(self.snapshots.len());
            self.snapshots.swap_remove(index);
        } else if self.random.below(6) == 0 && self.snapshots.len() < 3 {
            self.snapshots.push((self.db.snapshot(), self.map.clone()));
        }
        let number = self.key();
        for (snapshot, map) in &self.snapshots {
            let wanted = Self::wanted(map, self.now_ms(), number);
            assert_eq!(snapshot.get(&key(number)).unwrap().map(|value| value.to_vec()), wanted);
        }
    }

    /// Queues a step of a compaction by hand, if nothing is queued, without running it.
    fn begin_compaction(&mut self) {
        let level = if self.random.below(4) > 0 { self.random.below(LEVELS_FAST) } else { FIRST_SLOW };
        let (what, nth) = (self.random.below(8), self.random.below(16));
        if self.world.executor.queued() == 0 {
            // What finds no room is left for later.
            match what {
                0..=1 => drop(self.db.force(Forced::Boundary, nth)),
                2 => drop(self.db.force(Forced::Runs, nth)),
                3..=5 => drop(self.db.force(Forced::Down, nth)),
                _ => drop(begin_step(&self.db, level, u64::MAX)),
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=29 => self.put(),
            30..=35 => self.delete(),
            36..=57 => self.get(),
            58..=67 => self.half_read(),
            68..=78 => self.paused_read(),
            79..=84 => self.snapshot(),
            85..=86 => self.db.flush().unwrap(),
            87..=91 => self.begin_compaction(),
            92..=97 => {
                let choice = self.random.below(4);
                self.world.executor.run_nth(choice);
            }
            98 => self.world.clock.advance(Duration::from_secs(5)),
            _ => {
                let number = self.key();
                let (lower, upper) = (key(number), key(number + 20));
                self.db.compact_range(Some(&lower), Some(&upper)).unwrap();
            }
        }
    }

    /// Everything is in order.
    fn audit(&self, step: usize) {
        let audit = self.db.audit().unwrap();
        assert!(audit.findings.is_empty(), "step {step}: {:#?}", audit.findings);
    }

    fn scan(&self) {
        let mut iter = self.db.iter(IterOptions::default()).unwrap();
        iter.seek(b"key").unwrap();
        let now_ms = self.now_ms();
        for (number, (value, _)) in self.map.iter().filter(|(_, (_, expiry_ms))| *expiry_ms > now_ms) {
            assert_eq!((iter.key(), iter.value()), (&key(*number)[..], &value[..]));
            iter.next().unwrap();
        }
        assert_eq!(iter.key(), b"z");
    }
}

#[test]
fn random_operations_with_promotions_stopped_half_way_answer_as_a_map_does() {
    let (mut seen, mut flushed_bytes) = ([0; 4], 0);
    for seed in 1..=6 {
        let mut model = Model::new(seed);
        for step in 0..4_000 {
            model.step();
            if step % 50 == 0 {
                walk(&model.db);
            }
            if step % 200 == 0 {
                model.audit(step);
            }
        }
        model.audit(4_000);
        model.scan();
        model.world.settle();
        walk(&model.db);
        for (sum, name) in seen.iter_mut().zip(["inserted", "claimed", "abandoned_compacted"]) {
            *sum += counted(&model.db, name);
        }
        let stats = model.db.stats();
        seen[3] += stats.gets_promotion;
        flushed_bytes += stats.boundary.flushed_bytes;
    }
    assert!(seen.iter().all(|&count| count > 100), "inserted, claimed, abandoned, answered: {seen:?}");
    assert!(flushed_bytes > 10_000, "{flushed_bytes}");
}

/// What happened to a key so far: an even number of changes and it has the value of that number, an odd one and it has none.
struct Cell {
    begun: AtomicU64,
    done: AtomicU64,
}

fn change(db: &Db, number: usize, cell: &Cell) {
    let next = cell.begun.load(Ordering::Relaxed) + 1;
    cell.begun.store(next, Ordering::SeqCst);
    if next % 2 == 1 {
        if next % 4 == 1 {
            db.delete(&key(number)).unwrap();
        } else {
            db.delete_range(&key(number), &key(number + 1)).unwrap();
        }
    } else {
        let mut value = next.to_le_bytes().to_vec();
        value.resize(100, 0);
        db.put(&key(number), &value).unwrap();
    }
    cell.done.store(next, Ordering::SeqCst);
}

/// Reads a key: the answer must be a state that it had between the beginning and the end of the read.
fn check_read(db: &Db, number: usize, cell: &Cell) {
    let oldest = cell.done.load(Ordering::SeqCst);
    let answer = db.get(&key(number)).unwrap();
    let newest = cell.begun.load(Ordering::SeqCst);
    match answer {
        Some(value) => {
            let change = u64::from_le_bytes(value[..8].try_into().unwrap());
            assert!((oldest..=newest).contains(&change), "key {number}: {change} in {oldest}..={newest}");
        }
        None => {
            let was_absent = oldest % 2 == 1 || newest > oldest;
            assert!(was_absent, "key {number} is gone between {oldest} and {newest}");
        }
    }
}

fn threaded_store() -> Db {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let env = Env {
        fast: Arc::new(MemoryStorage::new()),
        slow: Arc::new(MemoryStorage::new()),
        clock,
        executor: Arc::new(ThreadPool::new(1, 2, 1).unwrap()),
        seed: 7,
    };
    let options = Options::new("/fast").slow("/slow").fast_capacity(2 << 20).memory(1 << 20);
    let db = Db::open(options.compression(CompressionChoice::None).env(env)).unwrap();
    lay_floor(&db, FIRST_SLOW + 1);
    db
}

/// Lets the readers end, even if a writer or the test itself panics.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn no_reader_on_any_thread_sees_a_key_go_back() {
    const WRITERS: usize = 2;
    const ROUNDS: usize = 12;
    let db = threaded_store();
    let cells: Vec<Cell> =
        (0..KEYS).map(|_| Cell { begun: AtomicU64::new(1), done: AtomicU64::new(1) }).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopping = Stopping(&stop);
        for seed in 1..=3 {
            let (db, cells, stop) = (&db, &cells, &stop);
            scope.spawn(move || {
                let mut random = Random(seed * 77);
                while !stop.load(Ordering::SeqCst) {
                    let number = random.below(KEYS);
                    check_read(db, number, &cells[number]);
                }
            });
        }
        let write = |writer| {
            let (begin, rounds) = sync_channel::<()>(1);
            let (db, cells) = (&db, &cells);
            scope.spawn(move || {
                let mut random = Random(writer as u64 + 5);
                for () in rounds {
                    for _ in 0..300 {
                        let number = random.below(KEYS / WRITERS) * WRITERS + writer;
                        change(db, number, &cells[number]);
                    }
                }
            });
            begin
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        let mut random = Random(3);
        // However the threads are run: each round of changes goes along with a compaction and reads of everything.
        for _ in 0..ROUNDS {
            writers.iter().for_each(|begin| begin.send(()).unwrap());
            let lower = key(random.below(KEYS));
            db.compact_range(Some(&lower), None).unwrap();
            read_all_twice(&db);
        }
        drop(writers);
        drop(stopping);
    });
    db.compact_range(None, None).unwrap();
    db.wait_idle().unwrap();
    read_all_twice(&db);
    for (number, cell) in cells.iter().enumerate() {
        check_read(&db, number, cell);
    }
    walk(&db);
    assert!(counted(&db, "inserted") > 0 && db.stats().gets_promotion > 0);
    for number in [0, KEYS - 1] {
        change(&db, number, &cells[number]);
    }
    db.compact_range(None, None).unwrap();
    assert!(counted(&db, "claimed") > 0, "what is between the two was in the cache");
    walk(&db);
}

/// Reads every key twice, so that what is promoted is asked again while others write.
fn read_all_twice(db: &Db) {
    for number in (0..KEYS).chain(0..KEYS) {
        db.get(&key(number)).unwrap();
    }
}
