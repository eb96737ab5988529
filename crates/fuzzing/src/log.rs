//! Targets of the write-ahead log and the batches in it.
//!
//! Accepted by a replay: records that follow one another and whose batches decode. Tests: `tests/corpus.rs`.

use std::path::Path;

use kelvin_base::coding::get_bytes;
use kelvin_base::{ErrorKind, Result};
use kelvin_lsm::batch::{BatchOps, WriteBatch};
use kelvin_lsm::wal::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, FragmentKind, file_header, log_name, put_fragment,
};
use kelvin_lsm::wal::{ReplayRecord, replay};
use kelvin_storage::memory::MemoryStorage;

use crate::stream::{DIR, put_file, storage};

/// Numbers of fuzzed logs begin here.
pub(crate) const FIRST_LOG: u64 = 7;
/// Most logs of one input.
const LOGS_MAX: usize = 4;
/// Most bytes of one log: a few blocks, so that records cross them.
const LOG_BYTES_MAX: usize = 5 * BLOCK_BYTES;

/// One log with these bytes.
pub(crate) fn plain(data: &[u8]) -> bool {
    replay_logs(&[data.to_vec()])
}

/// Logs whose fragments have good checksums.
pub(crate) fn signed(data: &[u8]) -> bool {
    replay_logs(&sign(data))
}

/// Lays `input` out as logs: kinds of fragments, each with its payload behind its length. Kind 0 begins the next log,
/// kinds above those there are put the payload in without a fragment around it.
pub(crate) fn sign(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut logs = vec![file_header(FIRST_LOG).to_vec()];
    while let Some((&kind, rest)) = input.split_first() {
        input = rest;
        let number = FIRST_LOG + logs.len() as u64 - 1;
        if kind == 0 {
            if logs.len() == LOGS_MAX {
                break;
            }
            logs.push(file_header(number + 1).to_vec());
            continue;
        }
        let Some(payload) = get_bytes(&mut input) else { break };
        let Some(log) = logs.last_mut() else { break };
        if log.len() + payload.len() > LOG_BYTES_MAX {
            break;
        }
        append(log, number, kind, payload);
    }
    logs
}

fn append(log: &mut Vec<u8>, number: u64, kind: u8, payload: &[u8]) {
    let kind = match kind % 9 {
        1 => FragmentKind::Full,
        2 => FragmentKind::First,
        3 => FragmentKind::Middle,
        4 => FragmentKind::Last,
        5 => FragmentKind::Synced,
        6 => FragmentKind::End,
        7 => FragmentKind::Pad,
        _ => return log.extend_from_slice(payload),
    };
    let left = BLOCK_BYTES - log.len() % BLOCK_BYTES;
    let Some(room) = left.checked_sub(FRAGMENT_HEADER_BYTES) else {
        log.resize(log.len() + left, 0);
        return append(log, number, kind as u8, payload);
    };
    let payload = &payload[..payload.len().min(room)];
    let offset = log.len() as u64;
    put_fragment(log, number, offset, kind, [payload, &[]]);
}

/// Puts logs into `storage`; their numbers.
pub(crate) fn put_logs(storage: &MemoryStorage, logs: &[Vec<u8>]) -> Vec<u64> {
    let numbers: Vec<u64> = (FIRST_LOG..).take(logs.len()).collect();
    for (number, log) in numbers.iter().zip(logs) {
        put_file(storage, &log_name(*number), log);
    }
    numbers
}

fn replay_logs(logs: &[Vec<u8>]) -> bool {
    let storage = storage();
    let numbers = put_logs(&storage, logs);
    let mut next = None;
    let mut visit = |record: ReplayRecord<'_>| -> Result<()> {
        let expected = next.replace(record.first_sequence + u64::from(record.operations));
        assert!(expected.is_none_or(|expected| expected == record.first_sequence), "P1: no gap");
        for op in BatchOps::new(record.batch)? {
            op?;
        }
        Ok(())
    };
    match replay(&storage, Path::new(DIR), &numbers, None, &mut visit) {
        Ok(replayed) => {
            assert_eq!(replayed.last_sequence, next.and_then(|next| next.checked_sub(1)));
            replayed.records > 0
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::InvalidArgument), "{error}");
            false
        }
    }
}

/// A batch with these bytes.
pub(crate) fn batch(data: &[u8]) -> bool {
    let decoded = BatchOps::new(data).and_then(|ops| ops.collect::<Result<Vec<_>>>());
    let taken = WriteBatch::from_encoded(data.to_vec());
    if let Ok(batch) = &taken {
        let ops = decoded.expect("a batch that is taken decodes");
        assert_eq!(batch.bytes(), data);
        assert_eq!((batch.ops().count(), batch.count()), (ops.len(), u32::try_from(ops.len()).unwrap_or(0)));
        let mut twice = WriteBatch::new();
        if twice.append(batch).and_then(|()| twice.append(batch)).is_ok() {
            assert_eq!(twice.ops().count(), 2 * ops.len());
        }
    }
    taken.is_ok()
}
