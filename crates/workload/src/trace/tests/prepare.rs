//! Preparation against the naive way: the same load, the same steps of each key, the same classes; and what is refused.

use std::collections::BTreeMap;

use kelvin_base::ErrorKind;

use super::naive::naive;
use super::*;
use crate::runner::NoProgress;
use crate::trace::plan::Plan;
use crate::trace::prepare::check_room;
use crate::trace::steps::{PARTITIONS, Step, StepReader, Steps};
use crate::trace::{PrepareOptions, Prepared, Rules, Semantics, prepare};

pub fn options(data: Option<u64>, ops: Option<u64>, rules: Rules) -> PrepareOptions {
    PrepareOptions { data, ops, rules, ..PrepareOptions::default() }
}

fn steps(path: &Path) -> Vec<(u64, Vec<u8>, Step)> {
    let (mut reader, mut segment) = (StepReader::open(path).unwrap(), Vec::new());
    let mut all = Vec::new();
    while let Some(number) = reader.next_segment(&mut segment).unwrap() {
        for step in Steps::of(&segment) {
            let (key, step) = step.unwrap();
            all.push((number, key.to_vec(), step));
        }
    }
    all
}

fn by_key<'a>(steps: impl Iterator<Item = (&'a Vec<u8>, &'a Step)>) -> BTreeMap<&'a [u8], Vec<Step>> {
    let mut keys: BTreeMap<&[u8], Vec<Step>> = BTreeMap::new();
    steps.for_each(|(key, step)| keys.entry(key).or_default().push(*step));
    keys
}

fn assert_as_naive(lines: &[Line], options: &PrepareOptions) -> Prepared {
    let dir = tempfile::tempdir().unwrap();
    let files = trace(dir.path(), lines);
    let prepared = prepare(&files, options, dir.path(), &mut NoProgress).unwrap();
    let naive = naive(lines, options.data, options.ops, options.rules);
    let figures = &prepared.figures;
    assert_eq!(
        (figures.plan.copies, figures.plan.data_bytes),
        (naive.copies, naive.data_bytes),
        "{options:?}"
    );
    let load = steps(&prepared.load).into_iter().map(|(_, key, step)| match step {
        Step::Insert(content) => (key, content.size),
        other => panic!("the load has {other:?}"),
    });
    assert_eq!(load.collect::<Vec<_>>(), naive.load, "{options:?}");
    let run = steps(&prepared.run);
    assert_eq!(
        by_key(run.iter().map(|(_, key, step)| (key, step))),
        by_key(naive.steps.iter().map(|(key, step)| (key, step))),
        "{options:?}"
    );
    assert_eq!((figures.run_ops, figures.load_records), (run.len() as u64, naive.load.len() as u64));
    assert_eq!(figures.classes, naive.classes, "{options:?}");
    // The steps of a key are all of one partition, and their segments are in order.
    let mut last: BTreeMap<&[u8], u64> = BTreeMap::new();
    for (number, key, _) in &run {
        let before = last.insert(key, *number).unwrap_or(*number);
        assert!(before <= *number && before % PARTITIONS as u64 == *number % PARTITIONS as u64);
    }
    prepared
}

#[test]
fn every_trace_is_prepared_as_the_naive_way_does_it() {
    let mut seen = (false, false, false);
    for seed in 0..6 {
        let lines = random_lines(seed, 900, 60);
        for (data, ops) in
            [(None, None), (None, Some(400)), (Some(3_000), Some(200)), (Some(60_000), Some(2_500))]
        {
            for semantics in [Semantics::Inserts, Semantics::Memcached] {
                for expire in [false, true] {
                    let prepared = assert_as_naive(&lines, &options(data, ops, Rules { semantics, expire }));
                    let plan = &prepared.figures.plan;
                    seen.0 |= plan.copies > 9;
                    seen.1 |= plan.copies == 1 && plan.run_from > 0;
                    seen.2 |= plan.requests < 900;
                }
            }
        }
    }
    assert_eq!(seen, (true, true, true), "repeated traces, loads of their own, and traces used in part");
}

#[test]
fn keys_are_repeated_with_prefixes_as_in_the_paper() {
    let line = |key: &str, kind| Line { timestamp: 0, key: key.into(), value_size: 96, kind, ttl: 0 };
    let lines = [line("user", Kind::Set), line("user", Kind::Get)];
    let dir = tempfile::tempdir().unwrap();
    let wanted = options(Some(250), Some(3), Rules::default());
    let prepared = prepare(&trace(dir.path(), &lines), &wanted, dir.path(), &mut NoProgress).unwrap();
    assert_eq!(
        prepared.figures.plan.copies, 3,
        "40 GB become 110 GB by three copies, 100 bytes 250 likewise"
    );
    let keys = |steps: Vec<(u64, Vec<u8>, Step)>| {
        let mut keys: Vec<String> =
            steps.into_iter().map(|(_, key, _)| String::from_utf8(key).unwrap()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(steps(&prepared.load)), ["0user", "1user", "2user"]);
    assert_eq!(keys(steps(&prepared.run)), ["0user", "1user", "2user"]);
    assert_eq!(prepared.figures.plan.data_bytes, 3 * 101);
    let many = options(Some(1_200), Some(1), Rules::default());
    let prepared = prepare(&trace(dir.path(), &lines), &many, dir.path(), &mut NoProgress).unwrap();
    assert!(keys(steps(&prepared.load)).starts_with(&["00user".to_string(), "01user".to_string()]));
}

#[test]
fn without_a_size_wanted_the_paper_s_part_of_the_data_is_run() {
    let lines = random_lines(9, 2_000, 200);
    let figures = assert_as_naive(&lines, &PrepareOptions::default()).figures;
    assert_eq!(figures.plan.ops, figures.plan.data_bytes / 220);
    assert_eq!(figures.run_ops, figures.plan.ops, "there are more requests than that");
}

#[test]
fn what_cannot_become_a_load_and_a_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let line = |kind, value_size| Line { timestamp: 0, key: b"k".to_vec(), value_size, kind, ttl: 0 };
    let refused = |lines: &[Line], options: &PrepareOptions| {
        prepare(&trace(dir.path(), lines), options, dir.path(), &mut NoProgress).unwrap_err()
    };
    let any = PrepareOptions::default();
    assert!(refused(&[], &any).what().contains("no request"));
    assert!(refused(&[line(Kind::Get, 0), line(Kind::Delete, 0)], &any).what().contains("nothing to load"));
    let huge = options(Some(1 << 40), None, Rules::default());
    let error = refused(&[line(Kind::Set, 10)], &huge);
    assert!(error.what().contains("too little data"), "{error}");
    let plan = Plan {
        requests: 1 << 40,
        run_from: 1 << 30,
        copies: 1 << 10,
        prefix_size: 4,
        keys: 1 << 30,
        data_bytes: 1 << 50,
        ops: 1 << 45,
    };
    let error = check_room(dir.path(), &plan, 1 << 45).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.advised().is_some_and(|advice| advice.contains("--work")));
    let small = PrepareOptions { memory_bytes_max: 10_000, ..PrepareOptions::default() };
    assert!(refused(&random_lines(1, 3_000, 2_000), &small).to_string().contains("distinct keys"));
}
