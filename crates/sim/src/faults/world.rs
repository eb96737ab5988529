//! The devices of a script: how they fail, what lies on them, and what is taken away from them.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::sync::Arc;

use kelvin::{Durability, Env, Hotness, Options};
use kelvin_base::{Clock, Executor, ManualClock};
use kelvin_storage::fault::FaultStorage;
use kelvin_storage::memory::MemoryStorage;
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

use super::Victim;
use super::scripts::{self, Begins, Missing, Setup};
use super::session::Session;
use super::sites::Sites;
use crate::executor::SimExecutor;
use crate::oracle::Oracle;

const FAST: &str = "/fast";
const SLOW: &str = "/slow";
/// An empty directory, as a mount point is without its disk, and one that is not there.
const UNMOUNTED: &str = "/unmounted";
const ABSENT: &str = "/absent";
/// What is put behind the names of files that are out of the way.
const AWAY: &str = "away";

/// What a store runs in.
pub(super) struct World {
    /// The devices whose I/Os are counted, and fail in turn.
    pub(super) devices: [Arc<FaultStorage>; 2],
    /// Behind each of them, one that fails as the script says.
    pub(super) scripted: [Arc<FaultStorage>; 2],
    /// And behind that one that never does.
    pub(super) well: [Arc<MemoryStorage>; 2],
    pub(super) clock: Arc<ManualClock>,
    pub(super) executor: Arc<SimExecutor>,
    pub(super) setup: Setup,
    /// Where the slow disk is said to be.
    slow_dir: RefCell<&'static Path>,
    /// Instead of the setup's.
    pub(super) hotness: Cell<Option<Hotness>>,
}

impl World {
    pub(super) fn new(setup: Setup, sites: &Arc<Sites>) -> Self {
        Self::on([MemoryStorage::new(), MemoryStorage::new()].map(Arc::new), setup, sites)
    }

    fn on(well: [Arc<MemoryStorage>; 2], setup: Setup, sites: &Arc<Sites>) -> Self {
        let scripted = well.each_ref().map(|one| Arc::new(FaultStorage::new(Arc::clone(one) as _, 0)));
        let mut seed = 0;
        let devices = scripted.each_ref().map(|scripted| {
            seed += 1;
            let device = FaultStorage::new(Arc::clone(scripted) as _, seed);
            let sites = Arc::clone(sites);
            device.watch(Arc::new(move |op| sites.note(op)));
            Arc::new(device)
        });
        Self {
            devices,
            scripted,
            well,
            clock: Arc::new(ManualClock::new(1_000_000)),
            executor: Arc::default(),
            setup,
            slow_dir: RefCell::new(Path::new(SLOW)),
            hotness: Cell::new(None),
        }
    }

    pub(super) fn device(&self, victim: Victim) -> &Arc<FaultStorage> {
        &self.devices[victim as usize]
    }

    /// Faults so far.
    pub(super) fn injected(&self) -> u64 {
        self.devices.iter().map(|device| device.injected()).sum()
    }

    pub(super) fn options(&self) -> Options {
        self.options_in(Path::new(FAST), *self.slow_dir.borrow())
    }

    /// Options of a store in these directories.
    pub(super) fn options_in(&self, fast: &Path, slow: &Path) -> Options {
        let options = Options::new(fast).compression(kelvin::CompressionChoice::None).memory(8 << 20);
        let options = if self.setup.tiered { options.slow(slow).fast_capacity(1 << 20) } else { options };
        let options = options.advanced(|a| {
            a.memtable_bytes = Some(16 << 10);
            a.table_bytes = Some(16 << 10);
            a.fast_block_bytes = Some(512);
            a.slow_block_bytes = Some(512);
        });
        let options = match self.hotness.get() {
            Some(hotness) => (self.setup.change)(options).advanced(|a| a.hotness = Some(hotness)),
            None => (self.setup.change)(options),
        };
        let [fast, slow] = &self.devices;
        options.env(Env {
            fast: Arc::clone(fast) as _,
            slow: Arc::clone(slow) as _,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            executor: Arc::clone(&self.executor) as Arc<dyn Executor>,
            seed: 7,
        })
    }

    /// Takes what is missing out of the way, or puts it back.
    pub(super) fn take_away(&self, what: Missing, back: bool) -> io::Result<()> {
        let device = &self.well[1];
        let has_ending = |name: &Path, ending| name.extension().is_some_and(|one| one == ending);
        let is_meant: &dyn Fn(&Path) -> bool = match what {
            Missing::Dir | Missing::Mount => {
                device.create_dir_all(Path::new(UNMOUNTED))?;
                let there = if what == Missing::Dir { ABSENT } else { UNMOUNTED };
                *self.slow_dir.borrow_mut() = Path::new(if back { SLOW } else { there });
                return Ok(());
            }
            Missing::Identity => &|name| name.file_stem().is_some_and(|stem| stem == "IDENTITY"),
            Missing::Tables => &|name| has_ending(name, "tbl") || has_ending(&name.with_extension(""), "tbl"),
        };
        for name in device.list(Path::new(SLOW))? {
            if !is_meant(&name) || has_ending(&name, AWAY) != back {
                continue;
            }
            let mut away = name.clone().into_os_string();
            away.push(format!(".{AWAY}"));
            let to = if back { name.with_extension("") } else { away.into() };
            device.rename(&Path::new(SLOW).join(&name), &Path::new(SLOW).join(to))?;
        }
        Ok(())
    }

    /// The devices after a power loss that took the end of a log and left the log behind it, with what is then in the store.
    fn behind_a_gap(setup: Setup, sites: &Arc<Sites>) -> Result<(Self, Oracle), String> {
        let world = Self::new(setup, sites);
        let mut session = Session::of(&world, Oracle::empty());
        session.act_all(&[scripts::puts(0, 2, Durability::Sync)])?;
        let kept = session.oracle.clone();
        // A batch that fills its memtable, so that the next one goes on in another log.
        session.act_all(&[scripts::puts(2, 120, Durability::Os), scripts::puts(122, 2, Durability::Os)])?;
        let left = world.well.each_ref().map(|device| Arc::new(device.fork()));
        let cut = || -> io::Result<()> {
            let names = left[0].list(Path::new(FAST))?;
            let logs: Vec<_> =
                names.iter().filter(|name| name.extension().is_some_and(|one| one == "wal")).collect();
            let Some(log) = logs.iter().rev().nth(1) else { return Err(io::ErrorKind::NotFound.into()) };
            cut_short(&left[0], &Path::new(FAST).join(log), 8)
        };
        cut().map_err(|error| format!("cutting a log: {error}"))?;
        let _told = session.close();
        Ok((Self::on(left, setup, sites), kept))
    }
}

/// Takes the last `bytes` of a file.
fn cut_short(device: &MemoryStorage, path: &Path, bytes: usize) -> io::Result<()> {
    let file = device.open(path, IoMode::Buffered)?;
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut buf = AlignedBuf::new();
    let range = file.read_at(0, len.saturating_sub(bytes), &mut buf)?;
    device.remove(path)?;
    let mut file = device.create(path, Create::new(IoMode::Buffered))?;
    file.append(buf.as_slice().get(range).unwrap_or_default())?;
    file.flush()
}

/// The devices that a script begins with, and what is then in the store.
pub(super) fn begin(setup: Setup, sites: &Arc<Sites>) -> Result<(World, Oracle), String> {
    match setup.begins {
        Begins::Empty => Ok((World::new(setup, sites), Oracle::empty())),
        Begins::BehindAGap => World::behind_a_gap(setup, sites),
    }
}
