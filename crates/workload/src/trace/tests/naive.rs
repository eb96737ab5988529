//! From lines to what a replay does, by maps, lists and sums over the whole log: slow, and obviously what the paper says.

use std::collections::{BTreeMap, BTreeSet};

use super::Line;
use crate::trace::classify::Classes;
use crate::trace::request::Kind;
use crate::trace::steps::{Content, Step};
use crate::trace::{Rules, Semantics};

/// Everything that follows from a trace.
#[derive(Debug, Default)]
pub struct Naive {
    pub load: Vec<(Vec<u8>, u32)>,
    pub steps: Vec<(Vec<u8>, Step)>,
    pub classes: Classes,
    /// What the store holds at the end.
    pub left: BTreeMap<Vec<u8>, Content>,
    pub copies: u64,
    pub data_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    content: Content,
    ends: Option<u64>,
}

/// A store for which time passes by requests.
#[derive(Debug, Default)]
struct State {
    seen: BTreeSet<Vec<u8>>,
    values: BTreeMap<Vec<u8>, Value>,
}

impl State {
    fn bytes(&self) -> u64 {
        self.values.iter().map(|(key, value)| key.len() as u64 + u64::from(value.content.size)).sum()
    }

    /// True if the line shows that the record was there before the trace.
    fn meets_prior(&mut self, line: &Line) -> bool {
        let is_first = self.seen.insert(line.key.clone());
        let is_prior = is_first && matches!(line.kind, Kind::Get | Kind::Gets) && line.value_size > 0;
        if is_prior {
            let content = Content { version: 0, size: line.value_size };
            self.values.insert(line.key.clone(), Value { content, ends: None });
        }
        is_prior
    }

    fn expires(&mut self, line: &Line, rules: Rules) -> bool {
        let is_over = self
            .values
            .get(&line.key)
            .is_some_and(|value| rules.expire && value.ends.is_some_and(|ends| line.timestamp >= ends));
        if is_over {
            self.values.remove(&line.key);
        }
        is_over
    }

    /// The steps of the line, of which the last one is its own.
    fn steps(&mut self, number: u64, line: &Line, rules: Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.expires(line, rules) {
            steps.push(Step::Delete);
        }
        let there = self.values.get(&line.key).copied();
        let old = there.map(|value| value.content);
        let fresh = Value {
            content: Content { version: number + 1, size: line.value_size },
            ends: (line.ttl > 0).then(|| line.timestamp + u64::from(line.ttl)),
        };
        let resized = |size: u32| {
            there.map(|value| Value { content: Content { version: number + 1, size }, ends: value.ends })
        };
        let old_size = old.map_or(0, |content| content.size);
        let is_insert = rules.semantics == Semantics::Inserts || line.kind == Kind::Set;
        let (step, value) = match line.kind {
            Kind::Get | Kind::Gets => (Step::Read(old), there),
            Kind::Delete => (Step::Delete, None),
            _ if is_insert && there.is_some() => (Step::Update(fresh.content), Some(fresh)),
            _ if is_insert => (Step::Insert(fresh.content), Some(fresh)),
            Kind::Add if there.is_none() => (Step::Modify(None, fresh.content), Some(fresh)),
            Kind::Replace | Kind::Cas if there.is_some() => (Step::Modify(old, fresh.content), Some(fresh)),
            Kind::Append | Kind::Prepend if there.is_some() => {
                let value = resized(old_size + line.value_size);
                (Step::Modify(old, value.unwrap().content), value)
            }
            Kind::Incr | Kind::Decr if there.is_some() => {
                let value = resized(old_size);
                (Step::Modify(old, value.unwrap().content), value)
            }
            _ => (Step::Read(old), there),
        };
        match value {
            Some(value) => drop(self.values.insert(line.key.clone(), value)),
            None => drop(self.values.remove(&line.key)),
        }
        steps.push(step);
        steps
    }
}

/// One entry of the log of all that is read and written.
#[derive(Debug)]
struct Entry {
    key: Vec<u8>,
    wrote: Option<u64>,
    read: Option<u64>,
    is_delete: bool,
}

fn prefixed(copy: u64, copies: u64, key: &[u8]) -> Vec<u8> {
    let digits =
        if copies == 1 { String::new() } else { format!("{copy:0w$}", w = (copies - 1).to_string().len()) };
    [digits.as_bytes(), key].concat()
}

/// Whether a read of `key` behind `log` is of a sunk and of a hot record.
fn class(log: &[Entry], key: &[u8], data_bytes: u64) -> (bool, bool) {
    let (mut written, mut read, mut is_hot) = (0, 0, None);
    let mut is_sunk = None;
    for entry in log.iter().rev() {
        let is_own = entry.key == key;
        if is_own && entry.is_delete {
            break;
        }
        if is_own && entry.read.is_some() && is_hot.is_none() {
            is_hot = Some(read as f64 / (data_bytes as f64) < 0.05);
        }
        if is_own && entry.wrote.is_some() && is_sunk.is_none() {
            is_sunk = Some(written as f64 / data_bytes as f64 > 0.05);
        }
        written += entry.wrote.unwrap_or(0);
        read += entry.read.unwrap_or(0);
    }
    (is_sunk.unwrap(), is_hot.unwrap_or(false))
}

/// All of it.
pub fn naive(lines: &[Line], data: Option<u64>, ops: Option<u64>, rules: Rules) -> Naive {
    // How much of the trace is used.
    let wanted_ops = ops.or(data.map(|data| (data / 220).max(1)));
    let mut state = State::default();
    let (mut used, mut reached) = (0, None);
    for (number, line) in lines.iter().enumerate() {
        if reached.is_some_and(|reached| used == reached + wanted_ops.unwrap()) {
            break;
        }
        state.meets_prior(line);
        state.steps(number as u64, line, rules);
        used += 1;
        if reached.is_none() && data.is_some_and(|data| state.bytes() >= data) {
            reached = Some(used);
        }
    }
    let own_bytes = state.bytes();
    let copies = match data {
        Some(data) if reached.is_none() => data.div_ceil(own_bytes),
        _ => 1,
    };
    let ops = wanted_ops.unwrap_or((own_bytes / 220).max(1));
    let run_from = used - used.min(ops.div_ceil(copies));
    let digits = prefixed(0, copies, b"").len() as u64;
    let data_bytes = (own_bytes + digits * state.values.len() as u64) * copies;
    let lines = &lines[..usize::try_from(used).unwrap()];

    let mut made = Naive { copies, data_bytes, ..Naive::default() };
    let (mut state, priors, written) = load(lines, run_from, rules);
    let mut log = Vec::new();
    for (key, size) in priors.into_iter().chain(written) {
        for copy in 0..copies {
            let key = prefixed(copy, copies, &key);
            let wrote = Some(key.len() as u64 + u64::from(size));
            log.push(Entry { key: key.clone(), wrote, read: None, is_delete: false });
            made.left.insert(key.clone(), Content { version: 0, size });
            made.load.push((key, size));
        }
    }
    for (number, line) in (0..).zip(lines).skip(usize::try_from(run_from).unwrap()) {
        for step in state.steps(number, line, rules) {
            for copy in 0..copies {
                if made.steps.len() as u64 == ops {
                    return made;
                }
                let key = prefixed(copy, copies, &line.key);
                run(&mut made, &mut log, &key, step, line.kind);
            }
        }
    }
    made
}

/// The state when the run begins, records from before the trace, and records that the trace wrote, by their last write.
#[expect(clippy::type_complexity, reason = "two lists and a state, taken apart at once")]
fn load(lines: &[Line], run_from: u64, rules: Rules) -> (State, Vec<(Vec<u8>, u32)>, Vec<(Vec<u8>, u32)>) {
    let mut state = State::default();
    let (mut priors, mut written): (Vec<(Vec<u8>, u32)>, Vec<(Vec<u8>, u32)>) = (Vec::new(), Vec::new());
    for (number, line) in (0..).zip(lines) {
        if state.meets_prior(line) {
            priors.push((line.key.clone(), line.value_size));
        }
        if number >= run_from {
            continue;
        }
        for step in state.steps(number, line, rules) {
            if !matches!(step, Step::Read(_)) {
                priors.retain(|(key, _)| *key != line.key);
                written.retain(|(key, _)| *key != line.key);
            }
            if let Step::Insert(content) | Step::Update(content) | Step::Modify(_, content) = step {
                written.push((line.key.clone(), content.size));
            }
        }
    }
    // The load writes them all once.
    state.values.values_mut().for_each(|value| value.content.version = 0);
    (state, priors, written)
}

/// One step of the run for one copy.
fn run(made: &mut Naive, log: &mut Vec<Entry>, key: &[u8], step: Step, kind: Kind) {
    let bytes = |content: Content| key.len() as u64 + u64::from(content.size);
    let mut entry = Entry { key: key.to_vec(), wrote: None, read: None, is_delete: false };
    match step {
        Step::Read(found) if kind.is_read() => {
            made.classes.count_read(found.map(|_| class(log, key, made.data_bytes)));
            entry.read = found.map(bytes);
        }
        Step::Read(_) => made.classes.writes += 1,
        Step::Delete => {
            made.classes.deletes += 1;
            (entry.wrote, entry.is_delete) = (Some(key.len() as u64), true);
            made.left.remove(key);
        }
        Step::Insert(content) | Step::Update(content) | Step::Modify(_, content) => {
            made.classes.writes += 1;
            entry.wrote = Some(bytes(content));
            made.left.insert(key.to_vec(), content);
        }
    }
    log.push(entry);
    made.steps.push((key.to_vec(), step));
}
