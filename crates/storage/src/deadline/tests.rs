//! Tests of the deadline on disks that hang: timeouts, probes, workers.

use super::*;
use crate::MemoryStorage;
use crate::fault::{Effect, FaultStorage, Op, Rule};
use kelvin_base::ManualClock;

const NAME: &str = "a";
const LIMIT: Duration = Duration::from_millis(20);

fn hanging() -> (Arc<FaultStorage>, Arc<ManualClock>, DeadlineStorage) {
    let fault = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), 1));
    let clock = Arc::new(ManualClock::new(0));
    let deadline =
        Deadline { limit: LIMIT, probe_interval: Duration::from_secs(1), workers_max: 4, idle_max: 2 };
    let storage = DeadlineStorage::new(fault.clone(), deadline, clock.clone());
    (fault, clock, storage)
}

/// Runs `operation` and lets the limit pass once the device holds `stalled` operations.
fn hung<T: Send>(
    (fault, clock): (&FaultStorage, &ManualClock),
    stalled: u64,
    operation: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let running = scope.spawn(operation);
        fault.wait_stalled(stalled);
        clock.advance(LIMIT);
        running.join().unwrap()
    })
}

fn kind<T: std::fmt::Debug>(outcome: io::Result<T>) -> io::ErrorKind {
    outcome.unwrap_err().kind()
}

#[test]
fn a_hung_read_times_out_then_calls_fail_at_once_until_a_probe_is_answered() {
    let (fault, clock, storage) = hanging();
    let mut file = storage.create(Path::new(NAME), Create::new(IoMode::Direct)).unwrap();
    file.append(b"abc").unwrap();
    file.sync().unwrap();
    let reader = storage.open(Path::new(NAME), IoMode::Direct).unwrap();
    fault.add(Rule::new(Op::Read, Effect::Stall));
    let mut buf = AlignedBuf::new();
    assert_eq!(kind(hung((&fault, &clock), 1, || reader.read_at(0, 3, &mut buf))), io::ErrorKind::TimedOut);
    let before = fault.operations();
    assert_eq!(kind(storage.exists(Path::new(NAME))), io::ErrorKind::TimedOut);
    assert_eq!(fault.operations(), before, "the device was not asked");
    clock.advance(Duration::from_secs(1));
    let probe = hung((&fault, &clock), 2, || reader.read_at(0, 3, &mut buf));
    assert_eq!(kind(probe), io::ErrorKind::TimedOut, "the probe hangs too");
    assert!(storage.is_tripped());
    fault.clear();
    fault.release();
    clock.advance(Duration::from_secs(1));
    let range = reader.read_at(0, 3, &mut buf).unwrap();
    assert_eq!(&buf.as_slice()[range], b"abc");
    assert!(!storage.is_tripped());
}

#[test]
fn a_writer_that_hung_is_not_used_again_and_others_are() {
    let (fault, clock, storage) = hanging();
    let mut file = storage.create(Path::new(NAME), Create::new(IoMode::Direct)).unwrap();
    fault.add(Rule::new(Op::Sync, Effect::Stall));
    file.append(b"abc").unwrap();
    assert_eq!(kind(hung((&fault, &clock), 1, || file.sync())), io::ErrorKind::TimedOut);
    fault.clear();
    fault.release();
    clock.advance(Duration::from_secs(1));
    assert_eq!(kind(file.sync()), io::ErrorKind::TimedOut);
    assert!(storage.exists(Path::new(NAME)).unwrap());
}

#[test]
fn no_more_than_the_allowed_workers_hang() {
    let (fault, clock, storage) = hanging();
    fault.add(Rule::new(Op::Exists, Effect::Stall));
    for stalled in 1..=4 {
        clock.advance(Duration::from_secs(2));
        let outcome = hung((&fault, &clock), stalled, || storage.exists(Path::new(NAME)));
        assert_eq!(kind(outcome), io::ErrorKind::TimedOut);
    }
    clock.advance(Duration::from_secs(2));
    assert_eq!(kind(storage.exists(Path::new(NAME))), io::ErrorKind::TimedOut, "and nobody waits for it");
    assert_eq!(fault.operations(), 4);
    fault.release();
}

#[test]
fn what_is_given_up_is_unanswered_until_it_ends() {
    let (fault, clock, storage) = hanging();
    fault.add(Rule::new(Op::Create, Effect::Stall));
    let create = || storage.create(Path::new(NAME), Create::new(IoMode::Buffered));
    assert_eq!(kind(hung((&fault, &clock), 1, create)), io::ErrorKind::TimedOut);
    fault.clear();
    clock.advance(Duration::from_secs(1));
    let removed = storage.remove(Path::new(NAME));
    assert!(storage.has_unanswered(), "another call was answered");
    assert_eq!(kind(removed), io::ErrorKind::NotFound);
    fault.release();
    while storage.has_unanswered() {
        std::thread::yield_now();
    }
    assert!(storage.exists(Path::new(NAME)).unwrap());
}

#[test]
fn a_lock_is_held_until_what_was_given_up_has_ended() {
    let (fault, clock, storage) = hanging();
    let lock = Path::new("LOCK");
    let held = storage.lock(lock).unwrap();
    fault.add(Rule::new(Op::Create, Effect::Stall));
    let create = || storage.create(Path::new(NAME), Create::new(IoMode::Buffered));
    assert_eq!(kind(hung((&fault, &clock), 1, create)), io::ErrorKind::TimedOut);
    fault.clear();
    drop((held, storage));
    assert_eq!(kind(fault.lock(lock)), io::ErrorKind::WouldBlock);
    fault.release();
    let next = loop {
        match fault.lock(lock) {
            Ok(next) => break next,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        std::thread::yield_now();
    };
    assert!(fault.exists(Path::new(NAME)).unwrap(), "the next holder finds what it made");
    drop(next);
}

#[test]
fn a_lock_goes_at_once_where_all_was_answered() {
    let (fault, _clock, storage) = hanging();
    let lock = Path::new("LOCK");
    drop(storage.lock(lock).unwrap());
    drop(fault.lock(lock).unwrap());
}

#[test]
fn a_call_waits_for_a_busy_worker_unless_all_are_given_up() {
    let (fault, _clock, storage) = hanging();
    fault.add(Rule::new(Op::Exists, Effect::Stall));
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..7).map(|_| scope.spawn(|| storage.exists(Path::new(NAME)).unwrap())).collect();
        fault.wait_stalled(4);
        while storage.shared.workers.state.lock().jobs.len() < 3 {
            std::thread::yield_now();
        }
        fault.clear();
        fault.release();
        assert!(
            calls.into_iter().all(|call| !call.join().unwrap()),
            "three of them waited for the first four"
        );
    });
    assert!(!storage.is_tripped());
}

#[test]
fn a_call_that_was_given_up_before_it_began_is_not_begun() {
    let (fault, clock, storage) = hanging();
    fault.add(Rule::new(Op::Exists, Effect::Stall));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..5).map(|_| scope.spawn(|| storage.exists(Path::new(NAME)))).collect();
        fault.wait_stalled(4);
        while storage.shared.workers.state.lock().jobs.is_empty() {
            std::thread::yield_now();
        }
        clock.advance(LIMIT);
        assert!(calls.into_iter().all(|call| kind(call.join().unwrap()) == io::ErrorKind::TimedOut));
    });
    fault.clear();
    fault.release();
    while storage.shared.workers.state.lock().given_up > 0 {
        std::thread::yield_now();
    }
    assert_eq!(fault.operations(), 4, "the fifth");
    clock.advance(Duration::from_secs(1));
    assert!(!storage.exists(Path::new(NAME)).unwrap(), "and calls go on");
}

#[test]
fn threads_that_a_burst_needed_end_and_a_few_stay_for_what_comes_next() {
    let (fault, _clock, storage) = hanging();
    let workers = Arc::clone(&storage.shared.workers);
    for _ in 0..3 {
        fault.add(Rule::new(Op::Exists, Effect::Stall));
        let before = fault.operations();
        std::thread::scope(|scope| {
            let calls: Vec<_> =
                (0..4).map(|_| scope.spawn(|| storage.exists(Path::new(NAME)).unwrap())).collect();
            while fault.operations() < before + 4 {
                std::thread::yield_now();
            }
            assert_eq!(workers.state.lock().total, 4);
            fault.clear();
            fault.release();
            assert!(calls.into_iter().all(|call| !call.join().unwrap()));
        });
        let all_wait = |state: &WorkersState| state.idle == state.total;
        while !all_wait(&workers.state.lock()) {
            std::thread::yield_now();
        }
        assert_eq!(workers.state.lock().total, 2);
    }
}
