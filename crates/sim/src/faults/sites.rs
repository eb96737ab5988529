//! Which lines of the shipped crates had a call under way when a fault happened in it.
//!
//! Asked at each fault: the stack of the thread that asked for the operation, frame by frame, with inlined ones. Where a
//! frame lies is looked up once for each address, and a stack seen before is not looked at again, so a million faults take
//! seconds. What the shipped code does is unchanged by it.
//! `cargo xtask sites` compares with the calls that are in the source. Tests stand below, and `tests/faults.rs`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kelvin_storage::fault::Op;
use parking_lot::Mutex;

/// A line of a source file, by its path in the project.
pub type Line = (String, u32);

/// Lines by the operation that failed below them. Without line tables in the program it stays empty.
#[derive(Debug, Default)]
pub struct Sites(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Lines of the project's crates at each address, the innermost first.
    lines: HashMap<usize, Arc<[Line]>>,
    /// Stacks that were looked at, hashed.
    stacks: HashSet<u64>,
    hit: BTreeSet<(Line, Op)>,
    calls: BTreeSet<Line>,
}

/// The crates whose calls are to fail.
const SHIPPED: [&str; 4] = ["crates/kelvin/", "crates/lsm/", "crates/ralt/", "crates/table/"];
/// Who only hands operations on.
const TIERS: &str = "crates/lsm/src/tiers/";

/// True for a source file of the crates whose calls are to fail.
#[must_use]
pub fn is_shipped(file: &str) -> bool {
    SHIPPED.iter().any(|one| file.starts_with(one))
}

/// The path of `file` from the project's root, if it is a source of one of its crates.
fn in_project(file: &str) -> Option<&str> {
    let at = file.rfind("crates/")?;
    let path = &file[at..];
    // Crates from registries lie in no directory of this name, those of the compiler in `library`.
    path.split('/').nth(2).is_some_and(|part| part == "src").then_some(path)
}

fn lines_of(frame: &backtrace::Frame) -> Arc<[Line]> {
    let mut lines = Vec::new();
    backtrace::resolve_frame(frame, |symbol| {
        let file = symbol.filename().and_then(|file| file.to_str()).and_then(in_project);
        lines.extend(file.zip(symbol.lineno()).map(|(file, line)| (file.to_owned(), line)));
    });
    lines.into()
}

impl Sites {
    /// Notes the calls that are under way on this thread: a fault happens to `op`.
    pub fn note(&self, op: Op) {
        let mut addresses = Vec::with_capacity(128);
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as usize);
            true
        });
        let mut hasher = DefaultHasher::new();
        (op, &addresses).hash(&mut hasher);
        let mut guard = self.0.lock();
        let known = &mut *guard;
        if !known.stacks.insert(hasher.finish()) {
            return;
        }
        let mut is_below = true;
        backtrace::trace(|frame| {
            let lines = known.lines.entry(frame.ip() as usize).or_insert_with(|| lines_of(frame));
            for line in lines.iter() {
                known.hit.insert((line.clone(), op));
                if is_below && is_shipped(&line.0) && !line.0.starts_with(TIERS) {
                    is_below = false;
                    known.calls.insert(line.clone());
                }
            }
            true
        });
    }

    /// How many lines of the shipped crates asked for an operation that failed.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.0.lock().calls.len()
    }

    /// The lines so far, each with every operation that failed below it.
    #[must_use]
    pub fn hit(&self) -> BTreeSet<(Line, Op)> {
        self.0.lock().hit.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_the_project_are_told_from_others() {
        let path = "crates/lsm/src/check.rs";
        assert_eq!(in_project(&format!("/anywhere/crates/x/{path}")), Some(path));
        assert_eq!(in_project(path), Some(path));
        for other in ["/rustc/abc/library/core/src/option.rs", "/registry/src/bytes-1.2/src/lib.rs"] {
            assert_eq!(in_project(other), None);
        }
    }

    #[test]
    fn each_line_of_the_stack_is_noted_with_the_operation() {
        let sites = Sites::default();
        let line = line!() + 2;
        for op in [Op::Sync, Op::Read, Op::Sync] {
            sites.note(op);
        }
        let here = |op| (("crates/sim/src/faults/sites.rs".to_owned(), line), op);
        let hit = sites.hit();
        assert!(hit.contains(&here(Op::Sync)) && hit.contains(&here(Op::Read)), "{hit:?}");
        assert!(!hit.contains(&here(Op::Append)));
    }
}
