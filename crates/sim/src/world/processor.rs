//! Threads that take turns need one processor: the turn goes to another thread of the same one in a fraction of the time that it takes to
//! wake up another processor for it.
//!
//! Tests: here.

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How many worlds each processor has.
static WORLDS: Mutex<[u32; CpuSet::MAX_CPU]> = Mutex::new([0; CpuSet::MAX_CPU]);

/// The calling thread and those it starts stay on one processor while this lives; several worlds take different ones.
#[derive(Debug)]
pub(super) struct Processor {
    number: usize,
    allowed: CpuSet,
}

impl Processor {
    /// Takes the one with the fewest worlds; none if the system refuses, which is no matter but for the time.
    pub(super) fn take() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut worlds = WORLDS.lock();
        let there_are = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        let number = there_are.min_by_key(|number| worlds[*number])?;
        let mut one = CpuSet::new();
        one.set(number);
        sched_setaffinity(None, &one).ok()?;
        worlds[number] += 1;
        Some(Self { number, allowed })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        WORLDS.lock()[self.number] -= 1;
        // Where it was refused the thread stays where it is.
        let _refused = sched_setaffinity(None, &self.allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count() -> u32 {
        sched_getaffinity(None).unwrap().count()
    }

    #[test]
    fn a_thread_and_those_it_starts_stay_on_one_processor_until_the_end() {
        let before = sched_getaffinity(None).unwrap();
        let processor = Processor::take().unwrap();
        assert_eq!(count(), 1);
        assert_eq!(std::thread::scope(|scope| scope.spawn(count).join().unwrap()), 1);
        drop(processor);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
