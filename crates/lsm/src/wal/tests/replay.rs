//! Replay over several logs: contiguous, torn, superseded, dropped, damaged.

use kelvin_base::ErrorKind;

use super::*;
use crate::wal::replay::{Replayed, replay, replay_remains};

/// The sequence numbers visited, with the log each came from.
fn run(storage: &MemoryStorage, numbers: &[u64]) -> Result<(Vec<(u64, Sequence)>, Replayed)> {
    let mut visited = Vec::new();
    let replayed = replay(storage, dir(), numbers, None, &mut |record| {
        visited.push((record.log, record.first_sequence));
        Ok(())
    })?;
    Ok((visited, replayed))
}

fn of(log: u64, sequences: std::ops::RangeInclusive<u64>) -> Vec<(u64, Sequence)> {
    sequences.map(|sequence| (log, sequence)).collect()
}

/// Cuts the last record of a log, and the mark that may follow it.
fn tear(storage: &MemoryStorage, number: u64) {
    let bytes = read_file(storage, number);
    replace_file(storage, number, &bytes[..bytes.len() - 29]);
}

#[test]
fn records_come_in_order_over_all_logs_empty_ones_included() {
    let storage = storage();
    write_log(&storage, 1, 11..=13, false);
    drop(writer(&storage, 2));
    write_log(&storage, 3, 14..=15, true);
    let (visited, replayed) = run(&storage, &[1, 2, 3]).unwrap();
    assert_eq!(visited, [of(1, 11..=13), of(3, 14..=15)].concat());
    assert_eq!((replayed.records, replayed.last_sequence, replayed.torn), (5, Some(15), None));
    let nothing = run(&storage, &[]).unwrap().1;
    assert_eq!((nothing.records, nothing.last_sequence, nothing.bytes, nothing.torn), (0, None, 0, None));
}

#[test]
fn what_is_behind_damage_is_read_if_that_is_asked_for_and_what_is_missing_is_told() {
    let storage = storage();
    write_log(&storage, 1, 1..=9, true);
    let good = read_file(&storage, 1);
    let mut missing = [0; 10];
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        replace_file(&storage, 1, &bad);
        let mut found = Vec::new();
        let remains = replay_remains(&storage, dir(), &[1], Some(0), &mut |record| {
            found.push(record.first_sequence);
            Ok(())
        });
        let gaps = remains.unwrap().gaps;
        match run(&storage, &[1]) {
            Ok((visited, _)) => {
                assert!(gaps.is_empty(), "byte {at}: {gaps:?}");
                assert_eq!(visited, found.iter().map(|sequence| (1, *sequence)).collect::<Vec<_>>());
            }
            Err(_) => {
                let lost: Vec<u64> = (1..=9).filter(|sequence| !found.contains(sequence)).collect();
                assert_eq!(gaps.len(), 1, "byte {at}: {gaps:?}");
                assert!(gaps[0].bytes.contains(&(at as u64)) && lost.len() < 2, "byte {at}: {lost:?}");
                let expected = lost.first().and_then(|lost| (*lost < 9).then_some(lost + 1));
                assert_eq!(gaps[0].holds_none(), lost.is_empty(), "byte {at}");
                assert!(lost.is_empty() || gaps[0].next == expected, "byte {at}: {gaps:?}");
                missing[usize::try_from(lost.first().copied().unwrap_or(0)).unwrap()] += 1;
            }
        }
    }
    assert!(missing.iter().all(|count| *count > 0), "{missing:?}");
}

#[test]
fn a_batch_takes_as_many_sequence_numbers_as_it_has_operations() {
    let storage = storage();
    let mut log = writer(&storage, 1);
    let mut three = batch(1);
    three.append(&batch(2)).unwrap();
    three.append(&batch(3)).unwrap();
    log.append(1, three.bytes()).unwrap();
    append(&mut log, 4..=4);
    log.flush().unwrap();
    assert_eq!(run(&storage, &[1]).unwrap().1.last_sequence, Some(4));
}

#[test]
fn a_torn_tail_of_the_last_log_is_reported_and_accepted() {
    let storage = storage();
    write_log(&storage, 1, 1..=3, false);
    tear(&storage, 1);
    let (visited, replayed) = run(&storage, &[1]).unwrap();
    assert_eq!(visited, of(1, 1..=2));
    assert!(matches!(replayed.torn, Some((1, Tail::Torn { .. }))));
}

#[test]
fn a_log_that_continues_behind_a_torn_tail_is_accepted() {
    // The first crash tore log 1; the store went on in log 2.
    let storage = storage();
    write_log(&storage, 1, 1..=3, false);
    tear(&storage, 1);
    write_log(&storage, 2, 3..=5, true);
    assert_eq!(run(&storage, &[1, 2]).unwrap().0, [of(1, 1..=2), of(2, 3..=5)].concat());
}

#[test]
fn records_of_a_failed_write_are_superseded_by_the_log_that_follows() {
    // Records 3 and 4 reached log 1 although their write failed; their numbers were given to other writes.
    let storage = storage();
    write_log(&storage, 1, 1..=4, false);
    write_log(&storage, 2, 3..=6, false);
    assert_eq!(run(&storage, &[1, 2]).unwrap().0, [of(1, 1..=2), of(2, 3..=6)].concat());
}

#[test]
fn an_unsynced_log_behind_a_gap_is_dropped_and_stays_hidden_afterwards() {
    // Nothing was synced: the power loss took the end of log 1 and left log 2.
    let storage = storage();
    write_log(&storage, 1, 1..=3, false);
    tear(&storage, 1);
    write_log(&storage, 2, 4..=9, false);
    let (visited, replayed) = run(&storage, &[1, 2]).unwrap();
    assert_eq!((visited, replayed.dropped), (of(1, 1..=2), vec![2]));
    write_log(&storage, 3, 3..=12, true);
    assert_eq!(run(&storage, &[1, 2, 3]).unwrap().0, [of(1, 1..=2), of(3, 3..=12)].concat());
}

#[test]
fn a_gap_before_a_synced_log_is_corruption_that_names_the_damaged_one() {
    let storage = storage();
    write_log(&storage, 1, 1..=3, true);
    tear(&storage, 1);
    let mut log = writer(&storage, 2);
    append(&mut log, 4..=5);
    log.sync().unwrap();
    append(&mut log, 6..=6);
    log.flush().unwrap();
    let error = run(&storage, &[1, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.path(), Some(log_path(dir(), 1).as_path()));
    assert!(error.to_string().contains("expected 3, found 4"), "{error}");
}

#[test]
fn a_missing_log_is_found_by_the_gap_it_leaves() {
    let storage = storage();
    for number in 1..=3 {
        let mut log = writer(&storage, number);
        append(&mut log, number * 10..=number * 10 + 9);
        log.finish().unwrap();
    }
    assert_eq!(run(&storage, &[1, 2, 3]).unwrap().1.records, 30);
    let error = run(&storage, &[1, 3]).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(log_path(dir(), 3).as_path())));
}

#[test]
fn the_visitors_error_stops_the_replay() {
    let storage = storage();
    write_log(&storage, 1, 1..=3, false);
    let mut count = 0;
    let outcome = replay(&storage, dir(), &[1], None, &mut |_| {
        count += 1;
        Err(Error::invalid("stop"))
    });
    assert!(outcome.is_err() && count == 1);
}
