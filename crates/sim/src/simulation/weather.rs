//! What befalls the disks and the process of a simulation: faults that begin and end, crashes, reopenings.
//!
//! The weather takes its turns one after the other; each is drawn from the seed and its number. Tests: those of the simulation.

use std::time::Duration;

use kelvin_base::hash::hash64_seeded;
use kelvin_storage::crash::{CrashModel, FileSystem};
use kelvin_storage::fault::{EIO, ENODEV, ENOSPC, Effect, Op, Rule};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::disks::Disks;

/// What a fault does to a disk (its index).
#[derive(Clone, Debug)]
pub enum Fault {
    /// Operations of a kind, or all, fail with an error number, so many of a million.
    Errors(usize, Option<Op>, i32, u32),
    /// It is gone.
    Away(usize, i32),
    /// It takes so many bytes more.
    Full(usize, u64),
    /// Appends write a part.
    Parts(usize, u32),
    /// Operations take so long, so many of a million.
    Slow(usize, Duration, u32),
    /// Reads of tables lie in this manner, so many of a million.
    Lies(usize, Effect, u32),
}

/// How a life of the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The store is closed.
    Close,
    /// The process dies; what it handed to the operating system stays.
    Kill,
    /// The power fails.
    Power(CrashModel),
}

/// A turn of the weather.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Time until it.
    pub pause: Duration,
    /// What begins.
    pub faults: Vec<Fault>,
    /// When that is over.
    pub lasts: Duration,
    /// The life of the process ends meanwhile.
    pub ending: Option<Ending>,
    /// The power fails again so long after the beginning of each of the next openings.
    pub again: Vec<Duration>,
}

/// Random numbers of what `name` names, number `number`.
pub fn random_of(seed: u64, name: &str, number: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(
        hash64_seeded(seed, name.as_bytes()) ^ hash64_seeded(number, name.as_bytes()),
    )
}

/// A duration between two, small ones as likely as large ones.
fn between(random: &mut impl Rng, least: Duration, most: Duration) -> Duration {
    let (least, most) = (least.as_secs_f64().ln(), most.as_secs_f64().ln());
    Duration::from_secs_f64(random.random_range(least..most).exp())
}

const MS: Duration = Duration::from_millis(1);

impl Turn {
    /// Turn `number` of the weather of `seed`.
    #[must_use]
    pub fn of(seed: u64, number: u64) -> Self {
        let mut random = random_of(seed, "weather", number);
        let random = &mut random;
        let pause = between(random, MS, MS * 3_000);
        let ending = random.random_ratio(2, 5).then(|| match random.random_range(0..6) {
            0 => Ending::Close,
            1 | 2 => Ending::Kill,
            3 => Ending::Power(CrashModel::LOST),
            number => Ending::Power(CrashModel::chosen(
                [FileSystem::Ordered, FileSystem::Writeback, FileSystem::ReorderAll][number % 3],
            )),
        });
        let is_fair = ending.is_some() && random.random_ratio(2, 3);
        let count = if is_fair { 0 } else { random.random_range(1..=2) };
        let faults = (0..count).map(|_| Fault::drawn(random)).collect();
        let lasts = between(random, MS, MS * 60_000);
        let is_crash = !matches!(ending, None | Some(Ending::Close));
        let times = if is_crash && random.random_ratio(1, 2) { random.random_range(1..=3) } else { 0 };
        let again = (0..times).map(|_| between(random, MS / 100, MS * 100)).collect();
        Self { pause, faults, lasts, ending, again }
    }
}

impl Fault {
    fn drawn(random: &mut impl Rng) -> Self {
        let disk = random.random_range(0..2);
        let rate = *[1_000_000, 200_000, 20_000].get(random.random_range(0..3)).unwrap_or(&1_000);
        match random.random_range(0..10) {
            0 => Self::Errors(disk, None, EIO, rate),
            1 => {
                let ops = [
                    Op::Read,
                    Op::Append,
                    Op::Sync,
                    Op::SyncDir,
                    Op::Create,
                    Op::Open,
                    Op::Remove,
                    Op::Rename,
                ];
                Self::Errors(disk, Some(ops[random.random_range(0..ops.len())]), EIO, rate)
            }
            2 | 3 => Self::Away(1, if random.random() { EIO } else { ENODEV }),
            4 => Self::Errors(disk, Some(Op::Append), ENOSPC, rate),
            5 => Self::Full(disk, random.random_range(0..200_000)),
            6 => Self::Parts(disk, rate),
            7 => Self::Slow(1, MS * 30_000, rate),
            8 => Self::Slow(disk, MS * 50, rate),
            _ => {
                let lies = [Effect::FlipBit, Effect::MisdirectedRead, Effect::StaleRead, Effect::ShortRead];
                Self::Lies(disk, lies[random.random_range(0..lies.len())].clone(), rate)
            }
        }
    }

    /// Reads may answer wrong bytes.
    #[must_use]
    pub const fn is_lie(&self) -> bool {
        matches!(self, Self::Lies(..))
    }

    /// Begins.
    pub fn begin(&self, disks: &Disks) {
        match self {
            Self::Errors(disk, None, errno, rate) => {
                disks.seen[*disk].add(Rule::any(Effect::Error(*errno)).chance(*rate));
            }
            Self::Errors(disk, Some(op), errno, rate) => {
                disks.seen[*disk].add(Rule::new(*op, Effect::Error(*errno)).chance(*rate));
            }
            Self::Away(disk, errno) => disks.seen[*disk].away(*errno),
            Self::Full(disk, spare_bytes) => disks.fill(*disk, *spare_bytes),
            Self::Parts(disk, rate) => {
                disks.seen[*disk].add(Rule::new(Op::Append, Effect::ShortWrite).chance(*rate));
                disks.seen[*disk].add(Rule::new(Op::Append, Effect::TornWrite).chance(*rate));
            }
            Self::Slow(disk, time, rate) => disks.slow(&disks.seen[*disk], *time, *rate),
            Self::Lies(disk, effect, rate) => {
                disks.seen[*disk].add(Rule::new(Op::Read, effect.clone()).on("*.tbl").chance(*rate));
            }
        }
    }
}
