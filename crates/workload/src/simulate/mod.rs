//! A benchmark in simulated time: the shipped store with all its threads, on modelled disks and processors.
//!
//! Files are in memory, values little more than their lengths. A disk takes the time that its [`Limits`] say, an operation and a megabyte written the
//! processor time that [`Machine`] says, everything else none. So a run says what a store does on disks that are not there, as often as asked
//! the same to the byte, whatever the machine that computes it does meanwhile. What it cannot say is what the processor really takes.
//! Tests stand below.

mod computing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kelvin::{Db, Env, Options};
use kelvin_base::{Clock, Error, OrderedStore, PointStore, Result, ThreadPool};
use kelvin_sim::world::{Cores, World, WorldClock};
use kelvin_storage::throttle::Limits;
use kelvin_storage::{MemoryStorage, Storage, ThrottledStorage};

use crate::kelvin::{KelvinSubject, settings};

use crate::options::{BenchOptions, Workload};
use crate::report::Report;
use crate::runner::{Progress, run_on};
use crate::subject::{Counters, Fill, Subject, Used};
use computing::Computing;

/// The wall time at which every simulation begins: 2026-01-01.
const START_UNIX_MILLIS: u64 = 1_767_225_600_000;

/// The machine that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Processor time of an operation.
    pub operation: Duration,
    /// Processor time of a megabyte (10^6 bytes) written: log, flushes, compactions.
    pub megabyte: Duration,
    /// The fast disk and the slow one.
    pub disks: [Limits; 2],
}

/// A store that was loaded in a simulation: runs begin with copies of it.
#[derive(Clone, Debug)]
pub struct Image {
    disks: [MemoryStorage; 2],
    /// Where it lies on them.
    fast: PathBuf,
    slow: Option<PathBuf>,
}

impl Machine {
    fn check(&self) -> Result<()> {
        let rates = self
            .disks
            .iter()
            .flat_map(|disk| [disk.read_iops, disk.write_iops, disk.read_bandwidth, disk.write_bandwidth]);
        if self.cores == 0 || rates.flatten().any(|rate| rate == 0) {
            return Err(Error::invalid(
                "a machine without a processor, or with a disk that moves nothing, does nothing",
            )
            .advice("give at least 1 processor, read, write and byte a second"));
        }
        Ok(())
    }
}

/// Loads the store that `options` begin with, in no time.
///
/// # Errors
/// As [`simulate`].
pub fn load(options: &BenchOptions, progress: &mut dyn Progress) -> Result<Image> {
    let machine = Machine {
        cores: 1,
        operation: Duration::ZERO,
        megabyte: Duration::ZERO,
        disks: [Limits::default(), Limits::default()],
    };
    let options = BenchOptions { workload: Workload::Load, ops: None, reuse: false, ..options.clone() };
    let disks = [MemoryStorage::new(), MemoryStorage::new()];
    run(&options, &machine, disks.clone(), progress)?;
    Ok(Image { disks, fast: options.fast, slow: options.slow })
}

/// Runs the benchmark of `options` on `machine`: with `options.reuse` on a copy of `image`, else on a store that it loads.
///
/// # Errors
/// As [`crate::run`]; `InvalidArgument` for a system that is not Kelvin, for `reuse` without an image, and for a machine that does nothing.
pub fn simulate(
    options: &BenchOptions,
    machine: &Machine,
    image: Option<&Image>,
    progress: &mut dyn Progress,
) -> Result<Report> {
    match image.filter(|_| options.reuse) {
        Some(Image { disks: [fast_disk, slow_disk], fast, slow }) => {
            let options = BenchOptions { fast: fast.clone(), slow: slow.clone(), ..options.clone() };
            run(&options, machine, [fast_disk.fork(), slow_disk.fork()], progress)
        }
        None if options.reuse => {
            Err(Error::invalid("a simulated store begins empty").advice("leave --reuse out"))
        }
        None => run(options, machine, [MemoryStorage::new(), MemoryStorage::new()], progress),
    }
}

fn run(
    options: &BenchOptions,
    machine: &Machine,
    disks: [MemoryStorage; 2],
    progress: &mut dyn Progress,
) -> Result<Report> {
    options.check()?;
    machine.check()?;
    if options.system.is_peer() {
        return Err(Error::invalid("only Kelvin's own systems can be simulated")
            .advice("give --system kelvin, fat or fast-only"));
    }
    let options = BenchOptions { sparse_values: true, ..options.clone() };
    World::run(|world| {
        let clock: Arc<dyn Clock> = Arc::new(WorldClock::new(Arc::clone(world), START_UNIX_MILLIS));
        let subject = Simulated::open(settings(&options), options.seed, machine, disks, world, &clock)?;
        run_on(&options, &subject, &*clock, progress)
    })
}

/// Kelvin on a machine that is simulated.
struct Simulated {
    kelvin: KelvinSubject,
    cores: Arc<Cores>,
    operation: Duration,
    disks: [MemoryStorage; 2],
}

impl Simulated {
    fn open(
        settings: Options,
        seed: u64,
        machine: &Machine,
        disks: [MemoryStorage; 2],
        world: &Arc<World>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let config = settings.derive()?;
        let cores = Arc::new(Cores::new(Arc::clone(world), machine.cores));
        let slowed = |disk: usize| -> Arc<dyn Storage> {
            let limits = machine.disks[disk];
            let inner =
                Arc::new(ThrottledStorage::new(Arc::new(disks[disk].clone()), limits, Arc::clone(clock)));
            match machine.megabyte.is_zero() {
                true => inner,
                false => Arc::new(Computing { inner, cores: Arc::clone(&cores), megabyte: machine.megabyte }),
            }
        };
        let threads = ThreadPool::on(
            Arc::clone(clock),
            config.flushes_max,
            config.compactions_max,
            config.read_threads,
        );
        let env = Env {
            fast: slowed(0),
            slow: slowed(1),
            clock: Arc::clone(clock),
            executor: Arc::new(
                threads
                    .map_err(|error| Error::io("cannot start the background threads", &config.dir, error))?,
            ),
            seed,
        };
        let kelvin = KelvinSubject { db: Db::open(settings.env(env))? };
        Ok(Self { kelvin, cores, operation: machine.operation, disks })
    }

    /// The store, once the processor time of an operation has passed.
    fn for_operation(&self) -> &Db {
        self.cores.compute(self.operation);
        &self.kelvin.db
    }
}

impl PointStore for Simulated {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.for_operation().get(key)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.for_operation().put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.for_operation().delete(key)
    }

    fn update(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<()> {
        PointStore::update(self.for_operation(), key, change)
    }
}

impl OrderedStore for Simulated {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        OrderedStore::scan(self.for_operation(), start, limit, each)
    }
}

impl Subject for Simulated {
    fn store(&self) -> &dyn OrderedStore {
        self
    }

    fn counters(&self) -> Counters {
        let mut counters = self.kelvin.counters();
        // The processor that computes this is not the one that is simulated.
        counters.more.retain(|(name, _)| name != "ralt.cpu_us" && !name.starts_with("cpu."));
        counters
    }

    fn levels(&self) -> Vec<(String, u64)> {
        self.kelvin.levels()
    }

    fn bulk_load(&self, fill: Fill<'_>) -> Result<()> {
        self.kelvin.bulk_load(fill)
    }

    fn settle(&self) -> Result<()> {
        self.kelvin.settle()
    }

    fn used(&self) -> Option<Used> {
        let [fast, slow] = [0, 1].map(|disk| self.disks[disk].used_bytes());
        Some(Used {
            cpu: self.cores.spent(),
            memory_bytes: self.kelvin.db.stats().memory_used_bytes_max,
            fast_bytes: fast,
            slow_bytes: slow,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::System;
    use crate::runner::NoProgress;

    const MACHINE: Machine = Machine {
        cores: 2,
        operation: Duration::from_micros(10),
        megabyte: Duration::ZERO,
        disks: [
            Limits {
                read_iops: Some(50_000),
                write_iops: None,
                read_bandwidth: Some(500_000_000),
                write_bandwidth: Some(500_000_000),
                latency: Duration::from_micros(100),
                request_bytes: 256 << 10,
            },
            Limits {
                read_iops: Some(1000),
                write_iops: None,
                read_bandwidth: Some(100_000_000),
                write_bandwidth: Some(100_000_000),
                latency: Duration::from_micros(100),
                request_bytes: 256 << 10,
            },
        ],
    };

    fn options(system: System) -> BenchOptions {
        let mut options = BenchOptions::new(system, "/simulated/fast");
        options.slow = system.is_tiered().then(|| "/simulated/slow".into());
        options.fast_capacity = Some(2 << 20);
        options.memory = 8 << 20;
        options.records = 8_000;
        options.ops = Some(8_000);
        options.threads = 4;
        options.workload = crate::Workload::Rw;
        options
    }

    #[test]
    fn a_simulation_is_the_same_to_the_byte_each_time() {
        let run = || simulate(&options(System::Kelvin), &MACHINE, None, &mut NoProgress).unwrap();
        let (first, second) = (run().to_json(), run().to_json());
        assert_eq!(first.to_string(), second.to_string());
        let mut other = options(System::Kelvin);
        other.seed = 2;
        let other = simulate(&other, &MACHINE, None, &mut NoProgress).unwrap().to_json();
        assert_ne!(first.to_string(), other.to_string(), "it is the seed that decides");
    }

    #[test]
    fn the_disks_and_processors_are_what_limits_it() {
        let mut options = options(System::FastOnly);
        (options.workload, options.keys) = (crate::Workload::Ro, crate::KeyDistribution::Uniform);
        let speed = |machine: &Machine| {
            let report = simulate(&options, machine, None, &mut NoProgress).unwrap();
            (report.whole.ops_per_s, report.whole.cpu_us_per_op)
        };
        let (idle, cpu) = speed(&MACHINE);
        assert!((9.9..10.1).contains(&cpu), "{cpu}");
        // Four threads that each wait 110 us at most.
        assert!((36_000.0..=400_000.0).contains(&idle), "{idle}");
        let busy = Machine { cores: 1, operation: Duration::from_millis(1), ..MACHINE };
        let (slow, _) = speed(&busy);
        assert!((950.0..=1_000.0).contains(&slow), "one processor that takes 1 ms each: {slow}");
        let mut disks = MACHINE.disks;
        disks[0].read_iops = Some(100);
        let (slow, _) = speed(&Machine { disks, ..MACHINE });
        assert!(slow < 1_000.0 && slow < idle / 10.0, "100 reads a second: {slow}");
    }

    #[test]
    fn what_is_written_takes_the_processor_where_that_is_said() {
        let options = options(System::Kelvin);
        let spent = |machine: &Machine| {
            let report = simulate(&options, machine, None, &mut NoProgress).unwrap();
            let written = [report.bytes.fast_written, report.bytes.slow_written].map(Option::unwrap);
            (report.whole.cpu_us_per_op, written.iter().sum::<u64>() as f64 / report.ops as f64)
        };
        let (cpu, bytes) = spent(&Machine { megabyte: Duration::from_millis(3), ..MACHINE });
        // 3 ms a megabyte are 3 us a kilobyte; files that end before a stretch is full count for less.
        let expected = 10.0 + bytes * 3e-3;
        assert!(cpu > expected * 0.7 && cpu < expected * 1.05, "{cpu} us, {bytes} bytes an operation");
        assert!(spent(&MACHINE).0 < 10.1);
    }

    #[test]
    fn runs_on_a_loaded_image_leave_it_as_it_is() {
        let mut options = options(System::Kelvin);
        let image = load(&options, &mut NoProgress).unwrap();
        (options.reuse, options.fast) = (true, "/wherever".into());
        let run = || simulate(&options, &MACHINE, Some(&image), &mut NoProgress).unwrap();
        let (first, second) = (run(), run());
        assert!(first.load.is_none() && first.slow_used_bytes > 1 << 20);
        assert_eq!(first.to_json().to_string(), second.to_json().to_string());
    }

    #[test]
    fn a_store_that_is_loaded_at_once_has_the_rest_put_and_all_of_it_there() {
        let mut options = options(System::Kelvin);
        options.bulk_load = true;
        (options.workload, options.keys) = (crate::Workload::Ro, crate::KeyDistribution::Uniform);
        // Every read is checked.
        let report = simulate(&options, &MACHINE, None, &mut NoProgress).unwrap();
        let load = report.load.as_ref().unwrap();
        assert!(report.ops == 8_000 && load.ops_per_s > 0.0);
        let written = |options: &BenchOptions| {
            let report = simulate(
                &BenchOptions { workload: crate::Workload::Load, ..options.clone() },
                &MACHINE,
                None,
                &mut NoProgress,
            );
            let bytes = report.unwrap().bytes;
            [bytes.fast_written, bytes.slow_written].map(Option::unwrap)
        };
        let at_once = written(&options);
        options.bulk_load = false;
        let put = written(&options);
        assert!(at_once[0] < put[0] / 2, "a quarter of the records is put: {at_once:?} {put:?}");
        // With one tier nothing is left to put.
        let mut options = self::options(System::FastOnly);
        options.bulk_load = true;
        assert_eq!(simulate(&options, &MACHINE, None, &mut NoProgress).unwrap().ops, 8_000);
        options.system = System::RocksdbFast;
        assert!(options.check().unwrap_err().to_string().contains("cannot be loaded at once"));
    }

    #[test]
    fn what_is_not_kelvins_own_is_refused() {
        let refused = |change: &dyn Fn(&mut BenchOptions)| {
            let mut options = options(System::Kelvin);
            change(&mut options);
            simulate(&options, &MACHINE, None, &mut NoProgress).unwrap_err().to_string()
        };
        assert!(
            refused(&|options| options.system = System::RocksdbFat).contains("only Kelvin's own systems")
        );
        assert!(refused(&|options| options.reuse = true).contains("begins empty"));
        assert!(refused(&|options| options.threads = 0).contains("threads"));
        let mut machine = MACHINE;
        machine.disks[1].read_bandwidth = Some(0);
        for machine in [machine, Machine { cores: 0, ..MACHINE }] {
            let error = simulate(&options(System::Kelvin), &machine, None, &mut NoProgress).unwrap_err();
            assert!(error.to_string().contains("does nothing"), "{error}");
        }
    }
}
