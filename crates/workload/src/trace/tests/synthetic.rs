//! Synthetic traces have the shares asked for, as the classification finds them in the file; and what cannot be had.

use super::prepare::options;
use super::*;
use crate::runner::NoProgress;
use crate::trace::classify::Classes;
use crate::trace::synthesize::synthesize;
use crate::trace::{Rules, Synthetic, prepare, write_synthetic};

fn order(reads: f64, sunk: f64, hot: f64, seed: u64) -> Synthetic {
    Synthetic {
        data: 1_000_000,
        ops: Some(20_000),
        value_size: 160,
        reads,
        sunk,
        hot,
        seed,
        ..Synthetic::default()
    }
}

/// What the preparation of the file finds.
fn found(order: &Synthetic, name: &str) -> Classes {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let said = write_synthetic(&path, order, false).unwrap();
    let files = TraceFiles::new(&[path], MalformedLines::Refuse).unwrap();
    let wanted = options(None, Some(order.run_ops()), Rules::default());
    let figures = prepare(&files, &wanted, dir.path(), &mut NoProgress).unwrap().figures;
    assert_eq!(figures.classes, said, "the generator counts as the classification does");
    assert_eq!((figures.load_records, figures.run_ops), (order.records(), order.run_ops()));
    figures.classes
}

#[test]
fn the_shares_asked_for_are_found_in_the_file() {
    for (seed, reads) in [0.5, 0.75, 0.95].into_iter().enumerate() {
        for sunk in [0.1, 0.5, 0.9, 1.0] {
            for hot in [0.1, 0.5, 0.9] {
                let order = order(reads, sunk, hot, seed as u64);
                let classes = found(&order, "t.csv");
                for (name, found, wanted) in [
                    ("reads", classes.read_share(), reads),
                    ("sunk", classes.sunk_share(), sunk),
                    ("hot", classes.hot_share(), hot),
                    ("both", classes.sunk_and_hot_share(), sunk * hot),
                ] {
                    assert!((found - wanted).abs() < 0.02, "{name}: {found}, wanted {wanted} of {order:?}");
                }
                assert_eq!(classes.empty_reads, 0);
            }
        }
    }
}

#[test]
fn plain_and_compressed_files_hold_the_same_and_a_seed_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, seed: u64| {
        let path = dir.path().join(format!("{seed}-{name}"));
        write_synthetic(&path, &order(0.8, 0.6, 0.7, seed), false).unwrap();
        let files = TraceFiles::new(&[path], MalformedLines::Refuse).unwrap();
        let (mut reader, mut lines) = (files.read(), Vec::new());
        while let Some(request) = reader.next_request().unwrap() {
            lines.push(Line::of(&request));
        }
        (lines, files.bytes())
    };
    let ((plain, plain_bytes), (compressed, compressed_bytes)) = (read("t.csv", 1), read("t.csv.zst", 1));
    assert_eq!(plain, compressed);
    assert!(compressed_bytes * 2 < plain_bytes, "{compressed_bytes} of {plain_bytes}");
    assert_ne!(read("t.csv", 2).0, plain);
}

#[test]
fn what_cannot_be_had_is_refused_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |order: &Synthetic, words: &str| {
        let path = dir.path().join("refused.csv");
        let error = write_synthetic(&path, order, false).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!path.exists() && !dir.path().join("refused.csv.part").exists());
    };
    refused(&order(1.5, 0.5, 0.5, 1), "--reads is a share");
    refused(&Synthetic { data: 10_000, ..order(0.9, 0.5, 0.5, 1) }, "too few");
    refused(&Synthetic { key_size: 8, ..order(0.9, 0.5, 0.5, 1) }, "keys of a synthetic trace");
    // A hundred reads cannot all be of hot records: the first read of each is not.
    refused(&Synthetic { ops: Some(100), ..order(1.0, 1.0, 1.0, 1) }, "cannot be had together");
    let path = file(dir.path(), "there.csv", b"mine");
    let error = write_synthetic(&path, &order(0.9, 0.5, 0.5, 1), false).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    write_synthetic(&path, &order(0.9, 0.5, 0.5, 1), true).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 1_000_000);
}

#[test]
fn every_line_goes_through_the_writer_and_its_error_ends_it() {
    let (mut left, mut lines) = (7, 0);
    let error = synthesize(&order(0.9, 0.5, 0.5, 1), &mut |_| {
        lines += 1;
        left -= 1;
        if left == 0 { Err(kelvin_base::Error::invalid("full")) } else { Ok(()) }
    });
    assert_eq!((error.unwrap_err().what(), lines), ("full", 7));
}
