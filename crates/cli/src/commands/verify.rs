//! `kelvin verify`: runs the suites of the promises.
//!
//! The suites are the crates `kelvin-sim`'s and `kelvin-workload`'s; here are sizes, places and what is printed. Tests: `crates/cli/tests/cli/verify.rs`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use kelvin::{Clock, Error, SystemClock};
use kelvin_sim::args::Args;
use kelvin_sim::kills::child;
use kelvin_sim::verify::{Broken, Done, Order, SUITES, Shown, Suite};
use kelvin_storage::{OsStorage, Storage};
use kelvin_workload::soak;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::args::verify::Verify;
use crate::commands::bench::write;
use crate::exit::{Exit, Outcome};
use crate::output::{Paint, grouped, lines, print, print_json, table};
use crate::progress;

/// Names of sizes, in the order of [`Suite::sizes`].
const SIZES: [&str; 3] = ["small", "night", "release"];

/// Runs what is asked for; code 3 at the first broken promise.
///
/// # Errors
/// `InvalidArgument` for suites and sizes that there are not; the output's.
pub fn run(args: &Verify) -> Outcome {
    if !args.killed.is_empty() {
        child::run(&Args::of(&args.killed).map_err(Error::invalid)?).map_err(Error::invalid)?;
        return Ok(Exit::Ok);
    }
    let chosen = chosen(&args.suites)?;
    if args.list {
        print(&list(&chosen))?;
        return Ok(Exit::Ok);
    }
    if let Some(case) = &args.case {
        check_case(case, &chosen)?;
    }
    if args.html.is_some() && chosen.iter().all(|suite| suite.name != soak::SUITE.name) {
        return Err(Error::invalid("none of these suites has plots to show")
            .advice("name soak, or leave out --html")
            .into());
    }
    let budgets =
        chosen.iter().map(|suite| budget(args, suite, chosen.len())).collect::<Result<Vec<_>, _>>()?;
    let keeps = begins_parts(args, &chosen, &budgets)?;
    // New ones each time: what an earlier run left, or somebody else has there, is neither taken for this one's nor removed.
    let places = [new_dir(args.fast.as_deref())?, new_dir(args.slow.as_deref())?];
    let program = std::env::current_exe()
        .map_err(|error| Error::io("find this program", Path::new("kelvin"), error))?;
    let killed: Vec<OsString> = vec![program.into(), "verify".into(), "--killed".into()];
    let dirs = places.each_ref().map(|dir| dir.path().to_path_buf());
    let mut told = Vec::new();
    for (suite, budget) in chosen.into_iter().zip(budgets) {
        let bar = progress::bar(Some(budget), suite.unit, args.output.json);
        bar.set_message(suite.name);
        let progress = |done| bar.set_position(done);
        let start = SystemClock::new();
        let begun = start.now();
        let shown = RefCell::new(None);
        let show = |one: Shown| *shown.borrow_mut() = Some(one);
        let order = Order {
            budget,
            seed: args.seed,
            dirs: dirs.clone(),
            killed: &killed,
            case: args.case.as_deref(),
            parts: args.parts.as_deref(),
            progress: &progress,
            show: &show,
        };
        let outcome = (suite.run)(&order);
        let seconds = (start.now() - begun).as_secs_f64();
        bar.finish_and_clear();
        if !args.output.json {
            print(&as_text(suite, &outcome, seconds))?;
        }
        let shown = shown.into_inner();
        if let (Some(path), Some(page)) = (&args.html, shown.as_ref().and_then(|one| one.page.as_ref())) {
            write(path, page)?;
        }
        told.push(as_json(suite, &outcome, seconds, shown));
        if outcome.is_err() {
            // What it was found in is wanted.
            let _kept = places.map(TempDir::keep);
            print_all(args, &told)?;
            return Ok(Exit::Corruption);
        }
    }
    if keeps {
        let _kept = places.map(TempDir::keep);
    }
    print_all(args, &told)?;
    Ok(Exit::Ok)
}

/// A directory of this run's own in `parent`, which is made if need be, or where temporary ones are. It goes with the value.
fn new_dir(parent: Option<&Path>) -> Result<TempDir, Error> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let made = OsStorage::new().create_dir_all(&parent);
    let made = made.and_then(|()| tempfile::Builder::new().prefix("kelvin-verify-").tempdir_in(&parent));
    made.map_err(|error| {
        Error::io("making a directory for the stores", &parent, error)
            .advice("name one that can be written with --fast and --slow")
    })
}

fn print_all(args: &Verify, told: &[Value]) -> std::io::Result<()> {
    if args.output.json { print_json(&json!({ "suites": told })) } else { Ok(()) }
}

/// All there are.
fn suites() -> impl Iterator<Item = &'static Suite> {
    SUITES.iter().chain([&soak::SUITE])
}

fn chosen(names: &[String]) -> Result<Vec<&'static Suite>, Error> {
    if names.is_empty() {
        return Ok(suites().collect());
    }
    let there_are = || suites().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        suites().find(|suite| suite.name == name).ok_or_else(|| {
            Error::invalid(format!("there is no suite {name:?}")).advice(format!("there are {}", there_are()))
        })
    };
    names.iter().map(find).collect()
}

/// Whether this is the first part of a soak in parts, whose stores stay for the next one.
fn begins_parts(args: &Verify, chosen: &[&Suite], budgets: &[u64]) -> Result<bool, Error> {
    let Some(file) = &args.parts else { return Ok(false) };
    match (chosen, budgets) {
        ([suite], [budget]) if suite.name == soak::SUITE.name => soak::check_parts(file, *budget, args.seed)?,
        _ => return Err(Error::invalid("--continue is of the suite soak alone").advice("name soak")),
    }
    Ok(!file.exists())
}

fn check_case(case: &str, chosen: &[&Suite]) -> Result<(), Error> {
    let check = match chosen {
        [suite] => suite.check_case,
        _ => None,
    };
    let Some(check) = check else {
        let takes: Vec<&str> =
            SUITES.iter().filter(|suite| suite.check_case.is_some()).map(|suite| suite.name).collect();
        let advice = format!("name the suite that printed it: {}", takes.join(" or "));
        return Err(Error::invalid("--case is of one suite").advice(advice));
    };
    check(case).map_err(|what| {
        Error::invalid(format!("--case {case:?}: {what}")).advice("give it as it was printed")
    })
}

/// What `suite` is to run.
fn budget(args: &Verify, suite: &Suite, suites: usize) -> Result<u64, Error> {
    if let Some(size) = SIZES.iter().position(|name| *name == args.budget) {
        return Ok(suite.sizes[size]);
    }
    let number = args.budget.replace(['_', ','], "").parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| {
        Error::invalid(format!("{:?} is no size", args.budget)).advice(format!(
            "give {}, or a number of {}",
            SIZES.join(", "),
            suite.unit
        ))
    })?;
    if suites > 1 {
        let advice = "name the suite whose size it is: each counts something else";
        return Err(Error::invalid(format!("{number} is a size for one suite")).advice(advice));
    }
    Ok(number)
}

fn list(suites: &[&Suite]) -> String {
    let mut rows = table(&["suite", "counts", SIZES[0], SIZES[1], SIZES[2], "shows that"], &SIZES);
    for suite in suites {
        let sizes = suite.sizes.map(grouped);
        let [small, night, release] = &sizes;
        rows.add_row([suite.name, suite.unit, small, night, release, suite.about]);
    }
    lines(&rows, Paint::for_stdout())
}

fn as_text(suite: &Suite, outcome: &Result<Done, Broken>, seconds: f64) -> String {
    let paint = Paint::for_stdout();
    match outcome {
        Ok(Done { count, met }) => format!(
            "{} {}: {}\n  {} {} in {seconds:.0} s; {met}",
            paint.green("holds "),
            suite.name,
            suite.about,
            grouped(*count),
            suite.unit
        ),
        Err(Broken { what, again }) => {
            format!("{} {}: {what}\n  again: kelvin verify {again}", paint.red("BROKEN"), suite.name)
        }
    }
}

fn as_json(suite: &Suite, outcome: &Result<Done, Broken>, seconds: f64, shown: Option<Shown>) -> Value {
    let mut told =
        json!({ "suite": suite.name, "counts": suite.unit, "seconds": seconds, "holds": outcome.is_ok() });
    match outcome {
        Ok(Done { count, met }) => {
            told["count"] = json!(count);
            told["met"] = json!(met);
        }
        Err(Broken { what, again }) => {
            told["broken"] = json!(what);
            told["again"] = json!(format!("kelvin verify {again}"));
        }
    }
    if let Some(shown) = shown {
        told["figures"] = shown.figures;
    }
    told
}
