//! Tests of write batches and their decoder.

use proptest::prelude::*;

use super::*;

fn sample() -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(0, b"key", b"value").unwrap();
    batch.put_expiring(300, b"k2", b"", 0x0102_0304_0506_0708).unwrap();
    batch.delete(0, b"gone").unwrap();
    batch.delete_range(7, b"a", b"b").unwrap();
    batch
}

#[test]
fn the_encoding_never_changes() {
    let golden: &[u8] = &[
        4, 0, 0, 0, // count
        3, 0, 3, b'k', b'e', b'y', 5, b'v', b'a', b'l', b'u', b'e', // put
        0x13, 0xac, 2, 2, b'k', b'2', 8, 8, 7, 6, 5, 4, 3, 2, 1, // put with an expiry
        1, 0, 4, b'g', b'o', b'n', b'e', // delete
        2, 7, 1, b'a', 1, b'b', // delete a range
    ];
    assert_eq!(sample().bytes(), golden);
}

#[test]
fn operations_come_back_in_order_with_their_keyspaces() {
    let batch = sample();
    let ops: Vec<_> = batch.ops().collect();
    assert_eq!(ops.len(), 4);
    assert_eq!(ops[0], BatchOp::Point { keyspace: 0, key: b"key", kind_byte: 3, stored: b"value" });
    assert_eq!(
        ops[1],
        BatchOp::Point { keyspace: 300, key: b"k2", kind_byte: 0x13, stored: &[8, 7, 6, 5, 4, 3, 2, 1] }
    );
    assert_eq!(ops[2], BatchOp::Point { keyspace: 0, key: b"gone", kind_byte: 1, stored: b"" });
    assert_eq!(ops[3], BatchOp::RangeDelete { keyspace: 7, start: b"a", end: b"b" });
    assert_eq!(batch.keyspaces().collect::<Vec<_>>(), [0, 300, 7], "each once");
}

#[test]
fn an_empty_key_is_refused_by_every_operation() {
    let mut batch = WriteBatch::new();
    let outcomes = [
        batch.put(0, b"", b"v"),
        batch.put_expiring(0, b"", b"v", 1),
        batch.delete(0, b""),
        batch.delete_range(0, b"", b"x"),
    ];
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            error.to_string(),
            "invalid argument: the key is empty: expected 1 to 65536 bytes, found 0 bytes"
        );
    }
    assert!(batch.is_empty());
}

#[test]
fn the_longest_key_passes_and_one_byte_more_is_refused_with_both_sizes() {
    let mut batch = WriteBatch::new();
    let key = vec![b'k'; KEY_BYTES_MAX + 1];
    batch.put(0, &key[..KEY_BYTES_MAX], b"").unwrap();
    let told = batch.put(0, &key, b"").unwrap_err().to_string();
    assert_eq!(told, "invalid argument: the key is too long: expected 1 to 65536 bytes, found 65537 bytes");
    assert_eq!(batch.count(), 1);
}

#[test]
fn a_value_too_long_is_refused_with_both_sizes() {
    let told = check_value(VALUE_BYTES_MAX + 1).unwrap_err().to_string();
    assert!(told.contains("at most 536870912 bytes, found 536870913 bytes"), "{told}");
    check_value(VALUE_BYTES_MAX).unwrap();
}

#[test]
fn a_batch_that_would_pass_the_limit_is_refused_and_left_alone() {
    let batch = WriteBatch::new();
    batch.check_room(BATCH_BYTES_MAX - 64).unwrap();
    let error = batch.check_room(BATCH_BYTES_MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("at most 1073741824 bytes, found 1073741844 bytes"), "{error}");
}

#[test]
fn an_empty_range_does_nothing_and_a_reversed_one_is_refused() {
    let mut batch = WriteBatch::new();
    batch.delete_range(0, b"same", b"same").unwrap();
    assert!(batch.is_empty());
    assert_eq!(batch.delete_range(0, b"b", b"a").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(batch.is_empty());
}

#[test]
fn appending_joins_and_clearing_empties() {
    let mut batch = sample();
    let mut other = WriteBatch::new();
    other.put(9, b"later", b"wins").unwrap();
    batch.append(&other).unwrap();
    assert_eq!(batch.count(), 5);
    assert_eq!(batch.ops().last().map(|op| op.keyspace()), Some(9));
    assert_eq!(batch.keyspaces().collect::<Vec<_>>(), [0, 300, 7, 9]);
    assert_eq!(WriteBatch::from_encoded(batch.bytes().to_vec()).unwrap(), batch);
    batch.clear();
    assert_eq!(batch, WriteBatch::new());
    assert_eq!(batch.bytes(), [0; 4]);
}

#[test]
fn every_cut_and_every_unknown_kind_is_refused() {
    let bytes = sample().bytes().to_vec();
    for cut in 0..bytes.len() {
        let error = WriteBatch::from_encoded(bytes[..cut].to_vec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "cut at {cut}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(WriteBatch::from_encoded(longer).is_err(), "bytes behind the last operation");
    assert!(WriteBatch::from_encoded(vec![0, 0, 0, 0, 0]).is_err(), "bytes behind an empty batch");
    for kind in (0..=u8::MAX).filter(|kind| ![1, 2, 3, 0x13].contains(kind)) {
        let mut bytes = bytes.clone();
        bytes[4] = kind;
        assert!(WriteBatch::from_encoded(bytes).is_err(), "kind byte {kind}");
    }
}

#[test]
fn an_impossible_count_is_refused_before_it_is_believed() {
    let error = BatchOps::new(&[0xff, 0xff, 0xff, 0xff, 3, 0, 1, b'k']).unwrap_err();
    assert!(error.to_string().contains("too short for its count"), "{error}");
}

#[derive(Clone, Debug)]
enum Op {
    Put(u32, Vec<u8>, Vec<u8>),
    Expiring(u32, Vec<u8>, Vec<u8>, u64),
    Delete(u32, Vec<u8>),
    Range(u32, Vec<u8>, Vec<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || prop::collection::vec(any::<u8>(), 1..200);
    let value = || prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        (any::<u32>(), key(), value()).prop_map(|(keyspace, key, value)| Op::Put(keyspace, key, value)),
        (any::<u32>(), key(), value(), any::<u64>())
            .prop_map(|(k, key, value, ms)| Op::Expiring(k, key, value, ms)),
        (any::<u32>(), key()).prop_map(|(keyspace, key)| Op::Delete(keyspace, key)),
        (any::<u32>(), key(), key())
            .prop_filter("ranges are not empty", |(_, a, b)| a != b)
            .prop_map(|(keyspace, a, b)| Op::Range(keyspace, a.clone().min(b.clone()), a.max(b))),
    ]
}

fn from_decoded(op: &BatchOp<'_>) -> Op {
    match *op {
        BatchOp::RangeDelete { keyspace, start, end } => Op::Range(keyspace, start.to_vec(), end.to_vec()),
        BatchOp::Point { keyspace, key, kind_byte: 1, .. } => Op::Delete(keyspace, key.to_vec()),
        BatchOp::Point { keyspace, key, kind_byte: 3, stored } => {
            Op::Put(keyspace, key.to_vec(), stored.to_vec())
        }
        BatchOp::Point { keyspace, key, kind_byte, stored } => {
            let (expiry, value) = kelvin_base::key::split_expiry(kind_byte, stored).unwrap();
            Op::Expiring(keyspace, key.to_vec(), value.to_vec(), expiry.unwrap())
        }
    }
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(ops in prop::collection::vec(op(), 0..20)) {
        let mut batch = WriteBatch::new();
        for op in &ops {
            match op {
                Op::Put(keyspace, key, value) => batch.put(*keyspace, key, value).unwrap(),
                Op::Expiring(keyspace, key, value, ms) => batch.put_expiring(*keyspace, key, value, *ms).unwrap(),
                Op::Delete(keyspace, key) => batch.delete(*keyspace, key).unwrap(),
                Op::Range(keyspace, start, end) => batch.delete_range(*keyspace, start, end).unwrap(),
            }
        }
        prop_assert_eq!(batch.count() as usize, ops.len());
        let decoded: Vec<_> = BatchOps::new(batch.bytes()).unwrap().map(|op| from_decoded(&op.unwrap())).collect();
        prop_assert_eq!(format!("{decoded:?}"), format!("{ops:?}"));
    }

    #[test]
    fn random_bytes_never_panic_and_never_decode_to_more_than_they_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(ops) = BatchOps::new(&bytes) {
            let good = ops.filter_map(Result::ok).count();
            prop_assert!(good <= bytes.len() / OP_BYTES_MIN);
        }
    }
}
