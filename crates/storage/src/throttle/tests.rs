//! Tests of the throttled storage: rates under simulated threads, costs, counters.

use super::*;
use crate::MemoryStorage;
use kelvin_base::{ManualClock, SystemClock};

/// Runs `threads` virtual threads, each starting a request when its last one is done; requests done in a second,
/// after the burst of a device that idled.
fn requests_in_a_second(gate: &Gate, clock: &ManualClock, threads: usize, bytes: u64) -> u64 {
    let start = clock.now();
    let mut free_at = vec![start; threads];
    let mut done = 0;
    loop {
        let next = (0..threads).min_by_key(|&thread| free_at[thread]).unwrap();
        clock.advance(free_at[next].saturating_sub(clock.now()));
        free_at[next] = clock.now() + gate.delay(&gate.read, bytes);
        if clock.now() > start + Duration::from_secs(1) {
            return done;
        }
        done += 1;
    }
}

#[test]
fn the_rate_holds_within_five_percent_from_1_to_16_threads() {
    for threads in [1, 2, 3, 8, 16] {
        let cases = [
            (Limits { read_iops: Some(2000), ..Limits::default() }, 4096, 2000),
            (Limits { read_bandwidth: Some(100 << 20), ..Limits::default() }, 64 << 10, 1600),
            (Limits { read_iops: Some(100), ..Limits::default() }, 1 << 20, 25),
            (Limits { latency: Duration::from_millis(1), ..Limits::default() }, 1, 1000 * threads),
        ];
        for (limits, bytes, expected) in cases {
            let clock = Arc::new(ManualClock::new(0));
            clock.advance(Duration::from_secs(100));
            let storage = ThrottledStorage::new(Arc::new(MemoryStorage::new()), limits, clock.clone());
            // The first second uses up the burst.
            requests_in_a_second(&storage.gate, &clock, threads, bytes);
            let done = usize::try_from(requests_in_a_second(&storage.gate, &clock, threads, bytes)).unwrap();
            let slack = (expected / 20).max(threads + 1);
            assert!(
                done.abs_diff(expected) <= slack,
                "{threads} threads: {done} for {expected} ({limits:?})"
            );
        }
    }
}

#[test]
fn an_idle_device_saves_up_no_more_than_its_burst() {
    let bucket = Bucket::new(1000);
    let now = Duration::from_secs(3600);
    let free = (0..100).take_while(|_| bucket.take(now, 1).is_zero()).count();
    assert_eq!(Duration::from_millis(u64::try_from(free).unwrap()), bucket::BURST);
}

#[test]
fn costs_are_counted_by_request_and_appends_cost_when_they_go_out() {
    let clock = Arc::new(ManualClock::new(0));
    let limits = Limits { write_bandwidth: Some(1000), request_bytes: 100, ..Limits::default() };
    let storage = ThrottledStorage::new(Arc::new(MemoryStorage::new()), limits, clock.clone());
    let mut file = storage.create(Path::new("a"), Create::new(IoMode::Direct)).unwrap();
    file.append(&[1; 60]).unwrap();
    assert_eq!((storage.traffic().writes, clock.now()), (0, Duration::ZERO));
    file.append(&[1; 60]).unwrap();
    file.append(&[1; 30]).unwrap();
    file.flush().unwrap();
    file.flush().unwrap();
    file.sync().unwrap();
    assert_eq!(clock.now(), Duration::from_millis(150));
    let reader = storage.open(Path::new("a"), IoMode::Direct).unwrap();
    reader.read_at(0, 101, &mut AlignedBuf::new()).unwrap();
    let expected = Traffic { reads: 3, read_bytes: 101, writes: 4, written_bytes: 150 };
    assert_eq!(storage.traffic(), expected);
}

#[test]
fn a_flush_may_end_in_a_cache_and_a_sync_waits_for_the_device() {
    let clock = Arc::new(ManualClock::new(0));
    let limits = Limits { latency: Duration::from_millis(3), ..Limits::default() };
    let storage = ThrottledStorage::new(Arc::new(MemoryStorage::new()), limits, clock.clone());
    let mut file = storage.create(Path::new("a"), Create::new(IoMode::Direct)).unwrap();
    file.append(&[1; 60]).unwrap();
    file.flush().unwrap();
    assert_eq!(clock.now(), Duration::ZERO);
    file.sync().unwrap();
    assert_eq!(clock.now(), Duration::from_millis(3));
}

#[test]
fn no_more_goes_through_on_the_real_clock_than_its_time_allows() {
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(MemoryStorage::new());
    inner.create(Path::new("a"), Create::new(IoMode::Direct)).unwrap().append(&[0]).unwrap();
    let limits = Limits { read_iops: Some(2000), ..Limits::default() };
    let storage = ThrottledStorage::new(inner, limits, clock.clone());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    drop(storage.open(Path::new("a"), IoMode::Direct));
                }
            });
        }
    });
    assert_eq!(storage.traffic().reads, 200);
    assert!(clock.now() + bucket::BURST >= Duration::from_millis(100), "200 reads need at least 100 ms");
}
