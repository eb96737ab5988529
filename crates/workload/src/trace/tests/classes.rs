//! Classification at its edges, by hand; `prepare.rs` compares it with the naive way on random traces.

use super::prepare::options;
use super::*;
use crate::runner::NoProgress;
use crate::trace::classify::{Category, Classes, is_hot, is_sunk};
use crate::trace::{Rules, prepare};

#[test]
fn five_per_cent_is_neither_sunk_nor_hot() {
    assert!(!is_sunk(50, 1_000) && is_sunk(51, 1_000));
    assert!(is_hot(Some(49), 1_000) && !is_hot(Some(50), 1_000));
    assert!(!is_hot(None, 1_000), "a first read");
}

#[test]
fn categories_begin_above_half_and_above_three_quarters() {
    let category = |reads, writes| Classes { reads, writes, ..Classes::default() }.category();
    assert_eq!(category(76, 24), Category::ReadHeavy);
    assert_eq!((category(75, 25), category(51, 49)), (Category::ReadWrite, Category::ReadWrite));
    assert_eq!((category(50, 50), category(0, 9)), (Category::WriteHeavy, Category::WriteHeavy));
    let deleting = Classes { reads: 75, writes: 10, deletes: 15, ..Classes::default() };
    assert_eq!(deleting.category(), Category::ReadWrite, "deletes are operations too");
}

fn classes(lines: &[(&str, Kind)], ops: u64) -> Classes {
    let line = |(key, kind): &(&str, Kind)| Line {
        timestamp: 0,
        key: key.as_bytes().to_vec(),
        value_size: 98,
        kind: *kind,
        ttl: 0,
    };
    let dir = tempfile::tempdir().unwrap();
    let files = trace(dir.path(), &lines.iter().map(line).collect::<Vec<_>>());
    let options = options(None, Some(ops), Rules::default());
    prepare(&files, &options, dir.path(), &mut NoProgress).unwrap().figures.classes
}

#[test]
fn reads_are_classified_by_what_was_written_and_read_since() {
    // Forty records of 100 bytes: 5 % of the data are two records.
    let keys: Vec<String> = (10..50).map(|number| number.to_string()).collect();
    let load: Vec<(&str, Kind)> = keys.iter().map(|key| (key.as_str(), Kind::Set)).collect();
    let after = |run: &[(&'static str, Kind)]| {
        let run: Vec<(&str, Kind)> = load.iter().copied().chain(run.iter().copied()).collect();
        classes(&run, (run.len() - load.len()) as u64)
    };
    let get = |key| (key, Kind::Get);
    let set = |key| (key, Kind::Set);
    assert_eq!(after(&[get("47")]).sunk, 0, "two records were loaded behind it");
    assert_eq!(after(&[get("46")]).sunk, 1, "and three behind this one");
    assert_eq!(after(&[set("10"), get("47")]).sunk, 1, "what the run writes counts as well");
    assert_eq!(after(&[set("10"), get("10")]).sunk, 0);
    assert_eq!(after(&[get("20"), get("20")]).hot, 1);
    assert_eq!(after(&[get("20"), get("21"), get("20")]).hot, 1);
    assert_eq!(after(&[get("20"), get("21"), get("22"), get("20")]).hot, 0);
    assert_eq!(after(&[get("20"), set("20"), get("20")]).hot, 1, "a write does not cool a record");
    let both = after(&[get("20"), get("20"), ("20", Kind::Delete), get("20")]);
    assert_eq!((both.sunk, both.hot, both.sunk_and_hot), (2, 1, 1));
    assert_eq!((both.reads, both.empty_reads, both.deletes), (3, 1, 1));
    assert!((both.sunk_share() - 1.0).abs() < 1e-9, "of the reads that find something");
}
