//! What a listener is told: every event once and in order, with the figures that the statistics sum up; and what a listener cannot do
//! to a store.

use std::sync::Arc;

use kelvin_base::events::{Compaction, What};
use kelvin_base::{Event, Tier};
use kelvin_lsm::db::{Db, Keyspace};
use kelvin_lsm::options::{Hotness, Options};
use kelvin_storage::fault::{EIO, Effect, Op, Rule};
use parking_lot::Mutex;

use crate::rig::{Rig, assert_filled, fill, key, value};

type Told = Arc<Mutex<Vec<Event>>>;

fn listening(options: Options) -> (Options, Told) {
    let told = Told::default();
    let listener = Arc::clone(&told);
    (options.listener(Arc::new(move |event: &Event| listener.lock().push(event.clone()))), told)
}

/// What was told since this was last asked, without waits of writers.
fn since(rig: &Rig, told: &Told) -> Vec<What> {
    rig.executor.run_all();
    let events = std::mem::take(&mut *told.lock()).into_iter().map(|event| event.what);
    events.filter(|what| !matches!(what, What::Pressure { .. })).collect()
}

fn compactions(told: &[Event]) -> Vec<&Compaction> {
    let compaction = |event: &'_ Event| matches!(event.what, What::Compacted(_));
    let compacted = told.iter().filter(|event| compaction(event));
    compacted
        .map(|event| match &event.what {
            What::Compacted(compaction) => &**compaction,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Records on both tiers, read with a skew that moves on until some were promoted and the tracker has evicted; what was counted.
fn live(rig: &Rig, options: Options) -> kelvin_lsm::stats::Stats {
    let db = Db::open(options).unwrap();
    let (mut records, mut round) = (0, 0);
    loop {
        for number in records..records + 600 {
            db.put(&key('a', number), &value(&key('a', number))).unwrap();
        }
        records += 600;
        for step in 0..6000usize {
            let (first, among) = if step % 10 == 0 { (0, records) } else { (round / 10 * 1800, 1800) };
            let number = (first + step.wrapping_mul(7919).wrapping_add(round * 31) % among) % records;
            db.get(&key('a', number)).unwrap().unwrap();
            if step % 50 == 0 {
                // What found no room is tried again after a while.
                rig.clock.advance(std::time::Duration::from_millis(100));
                rig.executor.run_all();
            }
        }
        round += 1;
        db.wait_idle().unwrap();
        rig.executor.run_all();
        let stats = db.stats();
        let kept = stats.boundary;
        let is_done = kept.compactions > 3
            && [kept.retained_bytes, kept.flushed_bytes].iter().all(|&bytes| bytes > 0)
            && stats.hotness.as_ref().is_some_and(|one| one.evictions > 0);
        if is_done {
            db.close().unwrap();
            return stats;
        }
        assert!(round < 60, "{stats:?}");
    }
}

#[test]
fn events_tell_each_flush_compaction_promotion_and_eviction_with_what_is_counted() {
    let rig = Rig::new();
    let options = rig.tiered().fast_capacity(2 << 20).memory(4 << 20);
    let (options, told) = listening(options.advanced(|a| a.hotness = Some(Hotness::Ralt)));
    let stats = live(&rig, options);
    let told = told.lock();
    let sum = |of: &dyn Fn(&What) -> u64| told.iter().map(|event| of(&event.what)).sum::<u64>();
    let flushes = |what: &What| u64::from(matches!(what, What::Flushed { tables: 1.., .. }));
    assert_eq!(sum(&flushes), stats.flushes);
    let flushed = |what: &What| if let What::Flushed { bytes, .. } = what { *bytes } else { 0 };
    assert_eq!(sum(&flushed), stats.flushed_bytes);
    let all = compactions(&told);
    let (moves, merges): (Vec<&Compaction>, Vec<_>) = all.iter().copied().partition(|one| one.is_move);
    assert_eq!(moves.iter().map(|one| one.tables_out).sum::<u64>(), stats.trivial_moves);
    assert_eq!(merges.len() as u64, stats.compactions);
    for tier in Tier::ALL {
        let at = tier.index();
        let of = |of: fn(&Compaction) -> [u64; 2]| merges.iter().map(|one| of(one)[at]).sum::<u64>();
        assert_eq!(of(|one| one.read_bytes), stats.compaction_read_bytes[at], "{tier}");
        assert_eq!(of(|one| one.written_bytes), stats.compaction_written_bytes[at], "{tier}");
    }
    let kept: Vec<_> = merges.iter().filter_map(|one| one.boundary).collect();
    assert_eq!(kept.len() as u64, stats.boundary.compactions);
    assert_eq!(kept.iter().map(|one| one.retained_bytes).sum::<u64>(), stats.boundary.retained_bytes);
    assert_eq!(kept.iter().map(|one| one.guarded_bytes).sum::<u64>(), stats.boundary.guarded_bytes);
    assert_eq!(kept.iter().map(|one| one.promoted_bytes).sum::<u64>(), stats.boundary.promoted_bytes);
    assert!(kept.iter().all(|one| (one.retained_bytes > 0) == (one.retained_records > 0)));
    assert!(kept.iter().all(|one| (one.guarded_bytes > 0) == (one.guarded_records > 0)));
    let promoted = |what: &What| if let What::Promoted { bytes, .. } = what { *bytes } else { 0 };
    assert_eq!(sum(&promoted), stats.boundary.flushed_bytes);
    let not_hot = |what: &What| match what {
        What::Promoted { not_hot_bytes, .. } => *not_hot_bytes,
        What::Compacted(one) => one.not_hot_bytes,
        _ => 0,
    };
    assert_eq!(sum(&not_hot), stats.boundary.not_hot_bytes);
    let evictions: Vec<_> = told
        .iter()
        .filter_map(|event| match &event.what {
            What::TrackerEvicted { before, after } => Some((before, after)),
            _ => None,
        })
        .collect();
    let tracker = stats.hotness.unwrap();
    assert_eq!(evictions.len() as u64, tracker.evictions);
    assert_eq!(evictions.last().unwrap().1.hot_set_limit_bytes, tracker.hot_set_limit_bytes);
    let mut pressure = "none";
    for event in told.iter() {
        if let What::Pressure { before, now } = &event.what {
            assert_eq!(before, pressure, "waits follow each other");
            pressure = now;
        }
    }
    // Close tells what is left.
    assert_eq!(stats.events_lost, 0);
    assert!(told.len() as u64 >= stats.events && stats.events > 100);
}

#[test]
fn events_tell_outages_and_failures_and_their_ends() {
    let rig = Rig::new();
    let (options, told) = listening(rig.filled());
    let db = Db::open(options).unwrap();
    since(&rig, &told);
    rig.slow.away(EIO);
    (0..3).for_each(|_| drop(db.get(b"a0000").unwrap_err()));
    rig.clock.advance(std::time::Duration::from_secs(5));
    rig.slow.back();
    (0..3).for_each(|_| assert!(db.get(b"a0000").unwrap().is_some()));
    let events = since(&rig, &told);
    assert!(
        matches!(&events[..], [
            What::TierAway { tier: Tier::Slow, error },
            What::TierBack { tier: Tier::Slow, away_ms: 5000.. },
        ] if error.contains("nothing is lost")),
        "{events:?}"
    );
    rig.fast.add(Rule::new(Op::Create, Effect::Error(EIO)).on("*.tbl"));
    fill(&db, 'x', 5);
    db.flush().unwrap_err();
    rig.fast.clear();
    let failed = since(&rig, &told);
    let is_failure =
        |what: &What| matches!(what, What::WorkFailed { work: "flush", error } if !error.is_empty());
    assert!(failed.iter().any(is_failure), "{failed:?}");
    rig.let_time_pass();
    let ended = since(&rig, &told);
    let recovered = ended.iter().position(|what| matches!(what, What::WorkRecovered { work: "flush" }));
    let flushed = ended.iter().position(|what| matches!(what, What::Flushed { .. }));
    assert!(flushed.is_some() && flushed < recovered, "{ended:?}");
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.wal"));
    fill(&db, 'x', 1);
    db.sync().unwrap_err();
    let events = since(&rig, &told);
    assert!(events.iter().any(|what| matches!(what, What::ReadOnly { .. })), "{events:?}");
}

#[test]
fn a_listener_that_panics_costs_the_events_and_nothing_else() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered().listener(Arc::new(|event: &Event| panic!("a defect: {event}")))).unwrap();
    for letter in ['a', 'b', 'c'] {
        fill(&db, letter, 400);
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    rig.executor.run_all();
    let stats = db.stats();
    assert!(stats.events == 1 && stats.events_lost >= 2, "{stats:?}");
    assert_eq!((stats.background_failures, stats.background_error), (0, None));
    for letter in ['a', 'b', 'c'] {
        assert_filled(&db, letter, 400);
    }
    db.close().unwrap();
}

#[test]
fn a_listener_may_use_the_store_and_close_it() {
    let rig = Rig::new();
    let own: Arc<Mutex<Option<Keyspace>>> = Arc::default();
    let (listener, told) = (Arc::clone(&own), Told::default());
    let noted = Arc::clone(&told);
    let options = rig.tiered().listener(Arc::new(move |event: &Event| {
        noted.lock().push(event.clone());
        if !matches!(event.what, What::Flushed { .. }) {
            return;
        }
        let taken = listener.lock().take();
        if let Some(db) = taken {
            db.put(b"told", b"of a flush").unwrap();
            assert_eq!(db.get(b"a0000").unwrap().as_deref(), Some(&*value(b"a0000")));
            db.flush().unwrap();
            // The last handle: the store closes here.
        }
    }));
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 50);
    *own.lock() = Some(db.keyspace("default").unwrap());
    db.flush().unwrap();
    drop(db);
    rig.executor.run_all();
    assert!(own.lock().is_none());
    let flushes = told.lock().iter().filter(|event| matches!(event.what, What::Flushed { .. })).count();
    assert_eq!(flushes, 2, "{:?}", told.lock());
    let db = Db::open(options).unwrap();
    assert_eq!(db.get(b"told").unwrap().as_deref(), Some(&b"of a flush"[..]));
}
