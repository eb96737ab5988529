//! What is done to the store when: phases, one after the other.
//!
//! Invariant: a fault's phase begins before the fault and ends once everything works again. So what an operation may
//! meet follows from the phases since it began. Tests stand below.

use std::time::Duration;

use kelvin::{Error, ErrorKind, Tier};
use kelvin_base::sync::Mutex;
use serde::{Deserialize, Serialize};

/// What is done to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The data is loaded.
    Load,
    /// Nothing.
    Calm,
    /// The slow disk answers with errors.
    SlowAway,
    /// The slow disk does not answer.
    SlowHangs,
    /// The fast disk takes nothing more.
    FastFull,
    /// The slow disk takes nothing more.
    SlowFull,
    /// A checkpoint is made, opened and compared.
    Checkpoint,
    /// The store is closed and opened.
    Reopen,
}

impl Phase {
    /// Those of a round, in their order.
    pub const ROUND: [Self; 6] =
        [Self::SlowAway, Self::SlowHangs, Self::FastFull, Self::SlowFull, Self::Checkpoint, Self::Reopen];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Calm => "calm",
            Self::SlowAway => "slow disk away",
            Self::SlowHangs => "slow disk hangs",
            Self::FastFull => "fast disk full",
            Self::SlowFull => "slow disk full",
            Self::Checkpoint => "checkpoint",
            Self::Reopen => "close and open",
        }
    }

    /// The slow disk does not serve.
    const fn is_outage(self) -> bool {
        matches!(self, Self::SlowAway | Self::SlowHangs)
    }

    const fn is_full(self) -> bool {
        matches!(self, Self::FastFull | Self::SlowFull)
    }
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It only reads.
    Read,
    /// It only writes.
    Write,
    /// It reads and writes.
    Swap,
}

/// What an error is where these phases were since the operation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// As promised.
    Yes,
    /// As promised if the fast disk has no room left.
    IfFastIsFull,
    /// A broken promise.
    No,
}

/// Whether an operation may fail with `error` in `phases`.
pub fn allowed(asked: Asked, error: &Error, phases: &[Phase]) -> Allowed {
    let outage = phases.iter().any(|phase| phase.is_outage());
    let full = phases.iter().any(|phase| phase.is_full());
    let (reads, writes) = (asked != Asked::Write, asked != Asked::Read);
    match error.kind() {
        ErrorKind::TierUnavailable if error.on() != Some(Tier::Slow) => Allowed::No,
        ErrorKind::TierUnavailable if outage && reads => Allowed::Yes,
        ErrorKind::NoSpace if full && writes => Allowed::Yes,
        ErrorKind::NoSpace | ErrorKind::TierUnavailable if outage && writes => Allowed::IfFastIsFull,
        _ => Allowed::No,
    }
}

/// A phase and its time, seconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What was done.
    pub phase: Phase,
    /// From when.
    pub from: Duration,
    /// Until when; `None` while it lasts.
    pub to: Option<Duration>,
}

/// The phases so far.
#[derive(Debug)]
pub struct Phases(Mutex<Vec<Span>>);

impl Phases {
    /// The data is loaded from now on.
    pub fn new(now: Duration) -> Self {
        Self(Mutex::new(vec![Span { phase: Phase::Load, from: now, to: None }]))
    }

    /// From now on it is `phase`.
    pub fn begin(&self, phase: Phase, now: Duration) {
        let mut spans = self.0.lock();
        if let Some(last) = spans.last_mut() {
            last.to = Some(now);
        }
        spans.push(Span { phase, from: now, to: None });
    }

    /// The phases since `then`.
    pub fn since(&self, then: Duration) -> Vec<Phase> {
        let spans = self.0.lock();
        let recent = spans.iter().rev().take_while(|span| span.to.is_none_or(|to| to >= then));
        recent.map(|span| span.phase).collect()
    }

    /// What a sample since `then` is of: the first that is not calm, if one was.
    pub fn of_sample(&self, then: Duration) -> Phase {
        let phases = self.since(then);
        phases.into_iter().rev().find(|phase| *phase != Phase::Calm).unwrap_or(Phase::Calm)
    }

    /// All of them, the last one ended now.
    pub fn all(&self, now: Duration) -> Vec<Span> {
        let mut spans = self.0.lock().clone();
        if let Some(last) = spans.last_mut() {
            last.to.get_or_insert(now);
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operation_may_meet_follows_from_the_phases_since_it_began() {
        let at = Duration::from_secs;
        let phases = Phases::new(at(0));
        phases.begin(Phase::Calm, at(10));
        phases.begin(Phase::SlowAway, at(20));
        phases.begin(Phase::Calm, at(30));
        assert_eq!(phases.since(at(40)), [Phase::Calm]);
        assert_eq!(phases.since(at(25)), [Phase::Calm, Phase::SlowAway]);
        assert_eq!((phases.of_sample(at(25)), phases.of_sample(at(31))), (Phase::SlowAway, Phase::Calm));
        assert_eq!(phases.all(at(50)).last().and_then(|span| span.to), Some(at(50)));
    }

    #[test]
    fn errors_are_allowed_where_they_are_promised_and_nowhere_else() {
        let away = Error::new(ErrorKind::TierUnavailable, "x").tier(Tier::Slow);
        let fast_away = Error::new(ErrorKind::TierUnavailable, "x").tier(Tier::Fast);
        let full = Error::new(ErrorKind::NoSpace, "x");
        let io = Error::new(ErrorKind::Io, "x");
        for (asked, error, phase, expected) in [
            (Asked::Read, &away, Phase::SlowAway, Allowed::Yes),
            (Asked::Read, &away, Phase::Calm, Allowed::No),
            (Asked::Read, &fast_away, Phase::SlowHangs, Allowed::No),
            (Asked::Read, &full, Phase::FastFull, Allowed::No),
            (Asked::Write, &full, Phase::FastFull, Allowed::Yes),
            (Asked::Write, &full, Phase::SlowHangs, Allowed::IfFastIsFull),
            (Asked::Write, &away, Phase::SlowAway, Allowed::IfFastIsFull),
            (Asked::Swap, &away, Phase::SlowAway, Allowed::Yes),
            (Asked::Write, &full, Phase::Calm, Allowed::No),
            (Asked::Read, &io, Phase::SlowAway, Allowed::No),
        ] {
            assert_eq!(allowed(asked, error, &[Phase::Calm, phase]), expected, "{asked:?} {error} {phase:?}");
        }
    }
}
