//! Lets every single I/O of a script fail in turn (RELIABILITY T8).
//!
//! The script runs once to count the I/Os, then once for each index and kind of failure, and goes on after errors.
//! Whatever fails: no panic and no endless wait; a read never answers wrong, or "not found" instead of an error (promise
//! 4); with the device well again the open store reads everything, and takes writes unless it said it is
//! read-only; reopened it holds every acknowledged write, is undamaged, and takes writes. What is salvaged meanwhile is right.
//!
//! [`scripts`] says what is run, `session` what is expected, [`sites`] which calls of the shipped crates failed.
//! Tests: `tests/faults.rs`.

mod case;
pub mod scripts;
mod session;
pub mod sites;
mod world;

use std::sync::Arc;

use kelvin_storage::fault::{EIO, ENOSPC, Effect, FaultStorage, Op, Rule};

pub use self::case::Case;
use self::scripts::Script;
use self::session::Session;
use self::sites::Sites;
use self::world::begin;
use crate::checks::said_by;

/// Which device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The fast tier.
    Fast,
    /// The slow tier.
    Slow,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// One operation of any kind: an input/output error.
    Once,
    /// Twenty operations in a row: input/output errors.
    Burst,
    /// Five operations in a row: no space.
    NoSpace,
    /// One append: a part is written.
    ShortWrite,
    /// One append: a part reaches the disk.
    TornWrite,
    /// One sync of a file.
    Sync,
    /// One sync of a directory.
    SyncDir,
    /// One read ends early.
    ShortRead,
    /// One read of a table answers a wrong bit.
    FlippedBit,
}

impl Victim {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fast, Self::Slow];
}

impl Failure {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Once,
        Self::Burst,
        Self::NoSpace,
        Self::ShortWrite,
        Self::TornWrite,
        Self::Sync,
        Self::SyncDir,
        Self::ShortRead,
        Self::FlippedBit,
    ];

    /// The operations it may hit, and its rule for the `index`-th of them.
    fn rule(self, index: u64) -> Rule {
        let rule = match self {
            Self::Once => Rule::any(Effect::Error(EIO)).times(1),
            Self::Burst => Rule::any(Effect::Error(EIO)).times(20),
            Self::NoSpace => Rule::any(Effect::Error(ENOSPC)).times(5),
            Self::ShortWrite => Rule::new(Op::Append, Effect::ShortWrite).times(1),
            Self::TornWrite => Rule::new(Op::Append, Effect::TornWrite).times(1),
            Self::Sync => Rule::new(Op::Sync, Effect::Error(EIO)).times(1),
            Self::SyncDir => Rule::new(Op::SyncDir, Effect::Error(EIO)).times(1),
            Self::ShortRead => Rule::new(Op::Read, Effect::ShortRead).times(1),
            Self::FlippedBit => Rule::new(Op::Read, Effect::FlipBit).on("*.tbl").times(1),
        };
        rule.after(index)
    }

    /// How many operations of `device` it may have hit so far.
    fn chances(self, device: &FaultStorage) -> u64 {
        match self {
            Self::Once | Self::Burst | Self::NoSpace => device.operations(),
            Self::ShortWrite | Self::TornWrite => device.operations_of(Op::Append),
            Self::Sync => device.operations_of(Op::Sync),
            Self::SyncDir => device.operations_of(Op::SyncDir),
            Self::ShortRead | Self::FlippedBit => device.operations_of(Op::Read),
        }
    }
}

/// What was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Faults that happened.
    pub faults: u64,
    /// Runs in which some did.
    pub runs: u64,
}

impl Tally {
    /// Adds `other`.
    pub const fn add(&mut self, other: Self) {
        self.faults += other.faults;
        self.runs += other.runs;
    }
}

/// A script whose I/Os were counted.
pub struct Faults<'a> {
    script: &'a Script,
    sites: &'a Arc<Sites>,
    /// For each victim and kind of failure.
    chances: [[u64; Failure::ALL.len()]; Victim::ALL.len()],
}

impl<'a> Faults<'a> {
    /// Runs `script` on devices that are well. `sites` will be told where faults happen.
    ///
    /// # Errors
    /// If an act fails, or a promise is broken.
    pub fn new(script: &'a Script, sites: &'a Arc<Sites>) -> Result<Self, String> {
        let counted = || -> Result<_, String> {
            let (world, oracle) = begin(script.setup, sites)?;
            let mut session = Session::of(&world, oracle);
            session.act_all(&script.acts)?;
            let chances =
                Victim::ALL.map(|victim| Failure::ALL.map(|failure| failure.chances(world.device(victim))));
            let refused = session.refused.join("; ");
            session.verify()?;
            if refused.is_empty() {
                Ok(chances)
            } else {
                Err(format!("acts fail on well devices: {refused}"))
            }
        };
        let chances = counted().map_err(|what| format!("{}: {what}", script.name))?;
        Ok(Self { script, sites, chances })
    }

    /// How many I/Os of `victim` there are that `failure` can hit.
    #[must_use]
    pub fn chances(&self, victim: Victim, failure: Failure) -> u64 {
        self.chances[victim as usize][failure as usize]
    }

    /// Runs the script once for every `stride`-th I/O of `victim` that `failure` can hit, from the `first` on.
    ///
    /// # Errors
    /// The first run that broke a promise, and how.
    pub fn every(
        &self,
        victim: Victim,
        failure: Failure,
        first: u64,
        stride: u64,
    ) -> Result<Tally, (Case, String)> {
        let mut tally = Tally::default();
        let mut index = first;
        while index < self.chances(victim, failure) {
            let case = Case { script: self.script.name.clone(), victim, failure, index };
            tally.add(one(self.script, &case, self.sites).map_err(|what| (case, what))?);
            index += stride.max(1);
        }
        Ok(tally)
    }
}

/// Runs `script` with the fault of `case`.
fn one(script: &Script, case: &Case, sites: &Arc<Sites>) -> Result<Tally, String> {
    let run = || -> Result<Tally, String> {
        let (world, oracle) = begin(script.setup, sites)?;
        world.device(case.victim).add(case.failure.rule(case.index));
        let mut session = Session::of(&world, oracle);
        session.act_all(&script.acts)?;
        session.verify()?;
        let faults = world.injected();
        Ok(Tally { faults, runs: u64::from(faults > 0) })
    };
    // Of what is left of a panicking run only the sites are used, which are whole after each fault.
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    run.unwrap_or_else(|panic| Err(format!("a panic: {}", said_by(&*panic))))
}

impl Case {
    /// Runs the script without a fault, then with this one.
    ///
    /// # Errors
    /// What it broke.
    pub fn run(&self, sites: &Arc<Sites>) -> Result<Tally, String> {
        let script = scripts::named(&self.script)?;
        Faults::new(&script, sites)?;
        one(&script, self, sites)
    }
}
