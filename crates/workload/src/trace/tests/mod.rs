//! Tests of traces: what they share, and which file tests what.
//!
//! `naive` is a second, slow and obvious way from lines to what a replay does; everything else is compared with it.

mod classes;
mod lines;
mod naive;
mod prepare;
mod replay;
mod synthetic;

use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::request::{Kind, Request};
use super::{MalformedLines, TraceFiles};

/// A line that owns its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub timestamp: u64,
    pub key: Vec<u8>,
    pub value_size: u32,
    pub kind: Kind,
    pub ttl: u32,
}

impl Line {
    pub fn request(&self) -> Request<'_> {
        let Self { timestamp, ref key, value_size, kind, ttl } = *self;
        Request { timestamp, key, value_size, client: b"7", kind, ttl }
    }

    pub fn of(request: &Request<'_>) -> Self {
        let Request { timestamp, key, value_size, kind, ttl, .. } = *request;
        Self { timestamp, key: key.to_vec(), value_size, kind, ttl }
    }
}

/// A trace of `count` requests of all kinds for `keys` keys of different lengths; some values are empty.
pub fn random_lines(seed: u64, count: usize, keys: u64) -> Vec<Line> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut timestamp = 0;
    let mut line = |_| {
        timestamp += u64::from(rng.random_bool(0.3));
        let number = rng.random_range(0..keys).min(rng.random_range(0..keys));
        let kind = match rng.random_range(0..10) {
            0..=4 => Kind::Get,
            5..=6 => Kind::Set,
            _ => Kind::ALL[rng.random_range(0..Kind::ALL.len())],
        };
        let size = if rng.random_bool(0.2) { 0 } else { rng.random_range(0..300) };
        let ttl = [0, 0, 3, 40][rng.random_range(0..4)];
        let comma = if number.is_multiple_of(7) { "," } else { ":" };
        let key = format!("ns{comma}{}", "k".repeat(1 + place(number) % 9) + &number.to_string());
        Line { timestamp, key: key.into_bytes(), value_size: size, kind, ttl }
    };
    (0..count).map(&mut line).collect()
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The text of lines.
pub fn text(lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    lines.iter().for_each(|line| line.request().write_to(&mut text));
    text
}

/// Writes `bytes` to a file in `dir`.
#[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
pub fn file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The trace of `lines`, in a file in `dir`.
pub fn trace(dir: &Path, lines: &[Line]) -> TraceFiles {
    TraceFiles::new(&[file(dir, "trace.csv", &text(lines))], MalformedLines::Refuse).unwrap()
}
