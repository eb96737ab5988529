//! Golden texts of plans: `testdata/pick/*.txt`, rewritten when REWRITE=1.
//!
//! A case is a title, lines that describe the tree, and `=>` lines with the answer. A table is
//! `number:smallest..largest` (`..<` for an exclusive end), its size in bytes, and letters with figures: `d` deletions, `r` range
//! tombstones, `x` expiring, `e` entries (10), `s` largest sequence number (its number), `!` if a compaction has it,
//! `*` how often one kept it whole, `@` in which turn of the tracker (now 3) it was rid of what is cold. `hot key bytes,..` says how many bytes are hot from a key on.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{HotKeys, KeyRange, SEQUENCE_MAX};

use super::simulation::config;
use super::*;
use crate::version::tests::{NoTables, meta};
use crate::version::{
    CooledAt, FIRST_SLOW, HOT_RUNS, LEVELS, LEVELS_FAST, TableOpener, is_hot_run, level_name,
};

/// Hot bytes of key ranges. A range asked for gets those of all that begin in it.
#[derive(Debug)]
struct HotRanges(Vec<(String, u64)>);

impl HotTracker for HotRanges {
    fn access(&self, _: &[u8], _: usize) {
        unreachable!("picking only asks");
    }

    fn is_hot(&self, _: &[u8]) -> bool {
        unreachable!("picking asks for ranges");
    }

    fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        self.0.iter().filter(|(key, _)| range.contains(key.as_bytes())).map(|(_, bytes)| bytes).sum()
    }

    fn hot_keys(&self, _: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        unreachable!("picking asks for sizes");
    }

    fn catch_up(&self) {
        unreachable!("picking only asks");
    }

    fn turn(&self) -> u64 {
        3
    }
}

/// The index of the level called `L{number}`.
fn level_of(number: &str) -> usize {
    let number: usize = number.parse().unwrap();
    if number < LEVELS_FAST { number } else { number + HOT_RUNS }
}

fn parse_hot(words: &str) -> (String, u64) {
    let (key, bytes) = words.split_once(' ').unwrap();
    (key.to_string(), bytes.parse().unwrap())
}

struct Case {
    config: PickConfig,
    tables: [Vec<Arc<TableFile>>; LEVELS],
    free_bytes: [u64; 2],
    wants_room: bool,
    frees_soon: bool,
    held: [bool; 2],
    tracker: Option<HotRanges>,
    oldest_snapshot: Sequence,
    ask: Ask,
}

enum Ask {
    Pick,
    Targets,
    Range(usize),
}

fn parse_table(words: &str, level: usize, two_tiers: bool) -> Arc<TableFile> {
    let opener: Arc<dyn TableOpener> = Arc::new(NoTables::default());
    let mut words = words.split_whitespace();
    let (number, range) = words.next().unwrap().split_once(':').unwrap();
    let (smallest, largest) = range.split_once("..").unwrap();
    let exclusive = largest.starts_with('<');
    let mut facts = meta(number.parse().unwrap(), smallest, largest.trim_start_matches('<'));
    facts.largest_exclusive = exclusive;
    facts.size_bytes = words.next().unwrap().parse().unwrap();
    facts.tier = if two_tiers && level >= FIRST_SLOW { Tier::Slow } else { Tier::Fast };
    let (mut claimed, mut kept, mut cooled) = (false, 0, None);
    for word in words {
        let figure = || word[1..].parse::<u64>().unwrap();
        match &word[..1] {
            "d" => facts.deletions = figure(),
            "r" => facts.range_tombstones = figure(),
            "x" => facts.expiring = figure(),
            "e" => facts.entries = figure(),
            "s" => facts.sequence_max = figure(),
            "!" => claimed = true,
            "*" => kept = u8::try_from(figure()).unwrap(),
            "@" => cooled = Some(CooledAt::new(figure(), 0)),
            _ => panic!("what is {word:?}?"),
        }
    }
    let file = TableFile::new(facts, opener);
    file.set_being_compacted(claimed);
    file.set_times_kept(kept);
    cooled.inspect(|at| file.set_cooled_at(*at));
    Arc::new(file)
}

fn parse(lines: &[&str]) -> Case {
    let mut case = Case {
        config: config(),
        tables: Default::default(),
        free_bytes: [u64::MAX; 2],
        wants_room: false,
        frees_soon: false,
        held: [false; 2],
        tracker: None,
        oldest_snapshot: SEQUENCE_MAX,
        ask: Ask::Pick,
    };
    for line in lines {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "one_tier" => case.config.two_tiers = false,
            "usable" => case.config.fast_usable_bytes = rest.parse().unwrap(),
            "ratio" => case.config.ratio = rest.parse().unwrap(),
            "memtable" => case.config.memtable_bytes = rest.parse().unwrap(),
            "cold" => case.config.cold_permille = rest.parse().unwrap(),
            "free_fast" => case.free_bytes[0] = rest.parse().unwrap(),
            "hot_level_is_full" => case.config.hot_level_is_full = true,
            "without_check" => case.config.checks_hotness = false,
            "without_retention" => case.config.retains = false,
            "wants_room" => case.wants_room = true,
            "frees_soon" => case.frees_soon = true,
            "hot" => case.tracker = Some(HotRanges(rest.split(',').map(parse_hot).collect())),
            "fast_held" => case.held[0] = true,
            "slow_held" => case.held[1] = true,
            "snapshot" => case.oldest_snapshot = rest.parse().unwrap(),
            "ask_targets" => case.ask = Ask::Targets,
            "ask_range" => case.ask = Ask::Range(level_of(rest)),
            _ => {
                let level = (0..LEVELS).find(|level| level_name(*level).replace(' ', "") == head).unwrap();
                let two_tiers = case.config.two_tiers;
                case.tables[level].extend(rest.split(',').map(|one| parse_table(one, level, two_tiers)));
            }
        }
    }
    case
}

fn show_plan(plan: &Plan) -> String {
    let mut text = format!("{}:", plan.reason.name());
    for (level, file) in &plan.evicts {
        text += &format!(" evict {}[{}]", level_name(*level).replace(' ', ""), file.meta.number);
    }
    for (level, files) in &plan.inputs {
        let numbers: Vec<String> = files.iter().map(|file| file.meta.number.to_string()).collect();
        text += &format!(" {}[{}]", level_name(*level).replace(' ', ""), numbers.join(" "));
    }
    text += &format!(" -> {} {}", level_name(plan.output_level).replace(' ', ""), plan.output_tier);
    if let Some(level) = plan.retain_level {
        let what = if plan.keeps_hot { "hot" } else { "newer" };
        text += &format!(" {what} -> {}", level_name(level));
    }
    for (yes, word) in [(plan.trivial_move, " move"), (plan.bottommost, " bottommost")] {
        if yes {
            text += word;
        }
    }
    if !plan.grandparents.is_empty() {
        let numbers: Vec<String> =
            plan.grandparents.iter().map(|file| file.meta.number.to_string()).collect();
        text += &format!(" above[{}]", numbers.join(" "));
    }
    if !plan.boundaries.is_empty() {
        let cuts: Vec<_> = plan.boundaries.iter().map(|cut: &Bytes| String::from_utf8_lossy(cut)).collect();
        text += &format!(" cut[{}]", cuts.join(" "));
    }
    text
}

fn answer(case: Case) -> String {
    let version = Arc::new(Version::new(0, case.tables, case.config.two_tiers).unwrap());
    let versions = [version];
    let input = PickInput {
        versions: &versions,
        config: &case.config,
        running: &Running::default(),
        now_ms: 1,
        oldest_snapshot: case.oldest_snapshot,
        free_bytes: case.free_bytes,
        kept_bytes: 0,
        frees_soon: case.frees_soon,
        wants_room: case.wants_room,
        needs_room: case.wants_room,
        tracker: case.tracker.as_ref().map(|tracker| tracker as &dyn HotTracker),
        held: case.held,
    };
    match case.ask {
        Ask::Pick => pick(&input).map_or("nothing".to_string(), |plan| show_plan(&plan)),
        Ask::Targets => {
            let share_bytes = shares(&versions, &case.config)[0];
            let found = targets(&versions[0], share_bytes, &case.config);
            let bytes: Vec<String> = found
                .bytes
                .iter()
                .enumerate()
                .filter(|(level, _)| !is_hot_run(*level))
                .map(|(_, bytes)| if *bytes == u64::MAX { "-".to_string() } else { bytes.to_string() })
                .collect();
            format!("base L{}: {}", found.base, bytes.join(" "))
        }
        Ask::Range(level) => match pick_range(&input, 0, level, (None, None), u64::MAX) {
            RangePick::Plan(plan) => show_plan(&plan),
            RangePick::Busy => "busy".to_string(),
            RangePick::Done => "done".to_string(),
        },
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden texts are rewritten in the source tree, not in a store"
)]
fn plans_are_as_the_golden_texts_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/pick");
    let rewrite = std::env::var_os("REWRITE").is_some();
    for name in ["levels.txt", "tables.txt", "room.txt", "heat.txt", "runs.txt"] {
        let path = dir.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut out = Vec::new();
        for case in text.trim().split("\n\n") {
            let lines: Vec<&str> = case.lines().filter(|line| !line.starts_with("=>")).collect();
            let described: Vec<&str> = lines.iter().copied().filter(|line| !line.starts_with('#')).collect();
            out.push(format!("{}\n=> {}", lines.join("\n"), answer(parse(&described))));
        }
        let out = out.join("\n\n") + "\n";
        if rewrite {
            std::fs::write(&path, &out).unwrap();
        }
        assert_eq!(
            out,
            if rewrite { out.clone() } else { text },
            "{name}: run with REWRITE=1 and read the diff"
        );
    }
}
