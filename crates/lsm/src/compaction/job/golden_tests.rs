//! Golden texts: levels, snapshots and a compaction, then the tables that come of it. `REWRITE=1` writes them anew.
//!
//! Entries: `a#5=x` a value, `a#5=x@900` one that expires at 900 ms (the time is 1000), `a#5~x` a copy, `a#5-` a deletion,
//! `a..f#6` a range tombstone. `L0:` lines are tables, newest first; deeper levels hold tables between bars.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{EXPIRES, Kind, split_expiry, split_internal, trailer_kind_byte, trailer_sequence};
use kelvin_base::{RangeTombstone, Tier};

use super::testing::{Entry, TestFiles, entries_of};
use super::{JobContext, run};
use crate::compaction::pick::{Plan, Reason};
use crate::iter::testing::internal;
use crate::version::TableFile;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/compact");

enum Item {
    Point(Entry),
    Range(RangeTombstone),
}

fn parse_item(word: &str) -> Item {
    let (key, rest) = word.split_once('#').unwrap();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (sequence, tail) = rest.split_at(digits);
    let sequence = sequence.parse().unwrap();
    if let Some((start, end)) = key.split_once("..") {
        let (start, end) = (start.to_owned().into(), end.to_owned().into());
        return Item::Range(RangeTombstone { start, end, sequence });
    }
    let key = key.as_bytes();
    let mark = tail.chars().next().unwrap();
    let (text, expiry) = tail[1..].split_once('@').map_or((&tail[1..], None), |(text, at)| (text, Some(at)));
    let kind = match mark {
        '=' => Kind::Value,
        '~' => Kind::Copy,
        _ => Kind::Deletion,
    };
    let mut stored = expiry.map_or_else(Vec::new, |at| at.parse::<u64>().unwrap().to_le_bytes().to_vec());
    stored.extend_from_slice(text.as_bytes());
    let flag = if expiry.is_some() { EXPIRES } else { 0 };
    Item::Point((internal(key, sequence, kind as u8 | flag), stored))
}

fn parse_table(files: &Arc<TestFiles>, tier: Tier, text: &str) -> Arc<TableFile> {
    let (mut points, mut ranges) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        match parse_item(word) {
            Item::Point(entry) => points.push(entry),
            Item::Range(stone) => ranges.push(stone),
        }
    }
    files.table(tier, points, &ranges)
}

fn show_entry((key, stored): &Entry) -> String {
    let (user_key, trailer) = split_internal(key).unwrap();
    let kind_byte = trailer_kind_byte(trailer);
    let (expiry, value) = split_expiry(kind_byte, stored).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mark = match Kind::from_byte(kind_byte).unwrap() {
        Kind::Value => "=",
        Kind::Copy => "~",
        _ => "-",
    };
    let expiry = expiry.map_or_else(String::new, |at| format!("@{at}"));
    format!("{}#{}{mark}{}{expiry}", text(user_key), trailer_sequence(trailer), text(value))
}

fn show_table(file: &Arc<TableFile>) -> String {
    let meta = &file.meta;
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let close = if meta.largest_exclusive { ')' } else { ']' };
    let mut out = format!("{} [{}, {}{close}", meta.tier, text(&meta.smallest), text(&meta.largest));
    for entry in entries_of(file) {
        write!(out, " {}", show_entry(&entry)).unwrap();
    }
    if let Some(stones) = file.table().unwrap().tombstones() {
        for stone in stones.tombstones() {
            write!(out, " {}..{}#{}", text(&stone.start), text(&stone.end), stone.sequence).unwrap();
        }
    }
    out
}

struct Case {
    files: Arc<TestFiles>,
    ctx: JobContext,
    inputs: Vec<(usize, Vec<Arc<TableFile>>)>,
    grandparents: Vec<Arc<TableFile>>,
}

impl Case {
    fn new() -> Self {
        let files = TestFiles::new();
        let ctx = files.context(Vec::new());
        Self { files, ctx, inputs: Vec::new(), grandparents: Vec::new() }
    }

    fn line(&mut self, line: &str) -> Option<String> {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        let tables = |text: &str| {
            text.split('|').map(|text| parse_table(&self.files, Tier::Fast, text)).collect::<Vec<_>>()
        };
        match head {
            "snapshots:" => self.ctx.snapshots = rest.split(' ').map(|word| word.parse().unwrap()).collect(),
            "deeper:" => self.ctx.deeper.push(tables(rest)),
            "grandparents:" => self.grandparents = tables(rest),
            "compact" => return Some(self.compact(rest)),
            level => {
                let level = level.trim_start_matches('L').trim_end_matches(':').parse().unwrap();
                let tables = tables(rest);
                match self.inputs.iter_mut().find(|(known, _)| *known == level) {
                    Some((_, known)) => known.extend(tables),
                    None => self.inputs.push((level, tables)),
                }
            }
        }
        None
    }

    fn compact(&self, words: &str) -> String {
        let word = |name: &str| words.split(' ').find_map(|word| word.strip_prefix(name));
        let target_bytes = word("target=").map_or(1 << 20, |bytes| bytes.parse().unwrap());
        let tier = if word("slow").is_some() { Tier::Slow } else { Tier::Fast };
        let plan = Plan {
            inputs: self.inputs.clone(),
            target_file_bytes: target_bytes,
            overlap_bytes_max: 10 * target_bytes,
            bottommost: word("bottom").is_some(),
            grandparents: self.grandparents.clone(),
            boundaries: word("split=")
                .map_or_else(Vec::new, |keys| keys.split(',').map(|key| key.to_owned().into()).collect()),
            ..Plan::new(0, Reason::Size, 5, tier)
        };
        let output = run(&plan, &self.ctx).unwrap();
        let mut out = String::new();
        for table in &output.tables {
            writeln!(out, "{}", show_table(&self.files.file(table))).unwrap();
        }
        let stats = output.stats;
        writeln!(out, "in {} out {} {:?}", stats.entries_in, stats.entries_out, stats.dropped).unwrap();
        out
    }
}

fn rewritten(text: &str) -> String {
    let mut out = String::new();
    let mut case = Case::new();
    let mut answering = false;
    for line in text.lines() {
        if line.is_empty() {
            (case, answering) = (Case::new(), false);
            out.push('\n');
        } else if !answering {
            writeln!(out, "{line}").unwrap();
            if line == "----" {
                answering = true;
            } else if !line.starts_with("//")
                && let Some(answer) = case.line(line)
            {
                writeln!(out, "----\n{answer}").unwrap();
                out.truncate(out.trim_end().len());
                out.push('\n');
                answering = true;
            }
        }
    }
    out
}

#[test]
#[expect(clippy::disallowed_methods, reason = "golden texts are files of the repository")]
fn compactions_match_their_golden_texts() {
    let mut paths: Vec<_> = std::fs::read_dir(DIR).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let now = rewritten(&text);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, now).unwrap();
        } else {
            assert_eq!(now, text, "{}: REWRITE=1 writes it anew", path.display());
        }
    }
}
