//! The whole evaluation at a size of thousands of records: every run, the resuming, the tables and the page.

use std::path::Path;

use super::*;
use crate::runner::ProgressUpdate;

/// Writes down what it is told.
#[derive(Default)]
struct Notes {
    begun: Vec<usize>,
    ended: usize,
    done_before: usize,
    notes: Vec<String>,
    phases: Vec<&'static str>,
}

impl Progress for Notes {
    fn update(&mut self, update: &ProgressUpdate) {
        if self.phases.last() != Some(&update.phase) {
            self.phases.push(update.phase);
        }
    }
}

impl Watcher for Notes {
    fn planned(&mut self, _runs: &[RunSpec], is_done: &[bool], _slow_reads: Option<f64>) {
        self.done_before = is_done.iter().filter(|done| **done).count();
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_string());
    }
    fn begun(&mut self, index: usize) {
        self.begun.push(index);
    }
    fn ended(&mut self, _index: usize, seconds: f64) {
        assert!(seconds > 0.0);
        self.ended += 1;
    }
}

/// Kelvin's own systems and the stand-ins for traces.
pub(super) fn choice(scale: &str) -> Choice {
    Choice {
        scale: scale.parse().unwrap(),
        contenders: [System::Kelvin, System::Fat, System::FastOnly].map(Contender::whole).into(),
        traces: TraceSource::STAND_INS.into(),
    }
}

impl Paper {
    /// Results without items and disks.
    pub(super) fn of(choice: Choice, runs: Vec<(RunSpec, Value)>) -> Self {
        Self { items: Vec::new(), choice, runs, devices: Vec::new(), is_simulated: false }
    }
}

fn order(out: &Path, items: &[Item]) -> Order {
    Order {
        items: items.to_vec(),
        scale: "1/50000".parse().unwrap(),
        out: out.to_path_buf(),
        fast: None,
        slow: None,
        // As fast as the machine: what is tested is not the waiting.
        limits: DeviceLimits { slow_read_iops: Some(1_000_000), ..DeviceLimits::default() },
        threads: 2,
        seed: 1,
        bulk_load: false,
        keep_stores: false,
        only: Vec::new(),
        variant: Variant::default(),
        systems: vec![System::Kelvin, System::Fat, System::FastOnly],
        traces: Vec::new(),
        device_seconds: 0.05,
        is_simulated: false,
    }
}

#[expect(clippy::disallowed_methods, reason = "a test looks at its results")]
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn everything_runs_is_reported_and_is_not_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let order = order(dir.path(), &Item::ALL);
    let mut watcher = Notes::default();
    let paper = run(&order, &mut watcher).unwrap();
    let plan = order.plan();
    assert_eq!((watcher.begun.len(), watcher.ended, watcher.done_before), (plan.len(), plan.len(), 0));
    assert_eq!(
        watcher.phases.iter().filter(|phase| **phase == "load").count(),
        6 + plan.iter().filter(|run| run.trace.is_some()).count(),
        "three systems, two sizes of records: six loads, and one for each replay"
    );
    assert_eq!(watcher.phases.iter().filter(|phase| **phase == "prepare").count(), 3, "three traces");
    for (run, report) in &paper.runs {
        assert_eq!(report["ops"], run.options.run_ops(), "{}", run.name);
        assert_eq!(report["load"].is_null(), run.trace.is_none(), "{} began with a loaded store", run.name);
        assert!(run.trace.is_none() || report["trace"]["copies"] == 1, "{} is as large as asked", run.name);
    }
    paper.write(dir.path()).unwrap();
    let mut expected: Vec<String> = Item::ALL.iter().map(|item| format!("{item}.csv")).collect();
    expected.extend(["devices.json", "report.html", "report.json", "runs"].map(String::from));
    expected.sort();
    assert_eq!(names(dir.path()), expected, "the stores are gone, the results are there");
    for item in Item::ALL {
        let table = item.table(&paper);
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{item}");
        assert!(table.rows.iter().all(|row| row[1..].iter().any(|cell| cell != "-")), "{}", table.text());
    }
    let json = dirs::read_json(&dir.path().join("report.json")).unwrap();
    assert_eq!(json["runs"].as_object().unwrap().len(), plan.len());
    assert_eq!(json["items"]["table3"]["rows"].as_array().unwrap().len(), 3);
    let page = page::html(&paper).unwrap();
    assert_eq!(page.matches("<h2").count(), Item::ALL.len() + 1, "one for the disks");
    assert!(
        page.matches("<svg").count() >= 28 && !page.contains("src=") && !page.contains("href="),
        "it needs nothing else"
    );

    let devices = dirs::read_json(&dir.path().join("devices.json")).unwrap();
    let mut again = Notes::default();
    let kept = run(&order, &mut again).unwrap();
    assert_eq!((again.begun.len(), again.done_before), (0, plan.len()));
    // Of the runs the JSON on disk may round the last digit.
    assert!(kept.to_json()["items"] == paper.to_json()["items"]);
    assert_eq!(dirs::read_json(&dir.path().join("devices.json")).unwrap(), devices, "not measured again");
    assert_eq!(kept.devices.len(), 2);
}

#[test]
fn what_was_asked_otherwise_or_is_damaged_is_run_again_and_the_rest_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut order = order(dir.path(), &[Item::Table3]);
    order.keep_stores = true;
    run(&order, &mut Notes::default()).unwrap();
    dirs::write_whole(&result_path(dir.path(), "rw-hotspot5-kelvin"), "{\"asked\": ").unwrap();
    let mut watcher = Notes::default();
    run(&order, &mut watcher).unwrap();
    assert_eq!((watcher.begun, watcher.done_before), (vec![0], 1));
    assert!(watcher.notes[0].contains("cannot be read"), "{:?}", watcher.notes);
    assert!(!watcher.phases.contains(&"load"), "the loaded store was kept");

    order.seed = 2;
    let mut watcher = Notes::default();
    run(&order, &mut watcher).unwrap();
    assert_eq!(watcher.begun, [0, 1]);
    assert!(watcher.notes[0].contains("other settings (seed 1, now 2)"), "{:?}", watcher.notes);
    assert!(watcher.phases.contains(&"load"), "another seed is another store");
}

#[test]
fn one_row_is_run_alone_on_the_store_that_is_kept_and_a_variant_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut order = order(dir.path(), &[Item::Reference]);
    (order.keep_stores, order.only) = (true, vec!["rw-hotspot5-kelvin".into()]);
    let mut watcher = Notes::default();
    let paper = run(&order, &mut watcher).unwrap();
    assert_eq!((paper.runs.len(), watcher.begun.len()), (1, 1));
    assert!(watcher.phases.contains(&"load"));

    order.variant.parts.retention = false;
    order.only.push("reference-ro-zipf-fat".into());
    let mut watcher = Notes::default();
    let paper = run(&order, &mut watcher).unwrap();
    let made: Vec<&str> = watcher.begun.iter().map(|index| paper.runs[*index].0.name.as_str()).collect();
    assert_eq!(made, ["reference-rw-hotspot5-kelvin-no-retention", "reference-ro-zipf-fat"]);
    assert_eq!(watcher.done_before, 1, "the row of before is shown and not run again");
    assert_eq!(watcher.phases.iter().filter(|phase| **phase == "load").count(), 1, "of fat alone");
    let report = paper.report("reference-rw-hotspot5-kelvin-no-retention").unwrap();
    assert_eq!(report["retention"], false);
    let table = Item::Reference.table(&paper);
    let row = table.rows.iter().find(|row| row[0] == "RW hotspot-5 %, kelvin no-retention").unwrap();
    assert_ne!(row[1], "-");

    order.only = vec!["nonsense".into()];
    let error = run(&order, &mut Notes::default()).unwrap_err().to_string();
    assert!(
        error.contains("no run has 'nonsense'") && error.contains("reference-uh-hotspot5-fat"),
        "{error}"
    );
    (order.items, order.only) = (vec![Item::Table3], Vec::new());
    let error = run(&order, &mut Notes::default()).unwrap_err().to_string();
    assert!(error.contains("add a row to figures"), "{error}");
}

#[test]
fn traces_that_cannot_be_read_or_told_apart_are_refused_before_anything_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster1.csv");
    dirs::write_whole(&file, "0,key,3,100,1,set,0\n0,key,3,100\n").unwrap();
    let refused = |traces: Vec<PathBuf>| {
        let order = Order { traces, ..order(&dir.path().join("out"), &[Item::Figure10]) };
        run(&order, &mut Notes::default()).unwrap_err().to_string()
    };
    let error = refused(vec![dir.path().join("cluster9.csv")]);
    assert!(error.contains("cluster9.csv"), "{error}");
    let error = refused(vec![file.clone(), dir.path().join("other").join("cluster1.zst")]);
    assert!(error.contains("two traces are called 'cluster1'"), "{error}");
    let error = refused(vec![file]);
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn a_simulated_figure_is_the_same_each_time_and_leaves_no_store_behind() {
    let made = |items: &[Item]| {
        let dir = tempfile::tempdir().unwrap();
        let mut order = Order { is_simulated: true, systems: Vec::new(), ..order(dir.path(), items) };
        order.limits = DeviceLimits::default();
        let mut watcher = Notes::default();
        let paper = run(&order, &mut watcher);
        (names(dir.path()), watcher, paper)
    };
    let (files, watcher, first) = made(&[Item::Table3, Item::Figure16]);
    assert_eq!(
        (files, watcher.phases.iter().filter(|phase| **phase == "load").count()),
        (vec!["runs".into()], 2)
    );
    let (first, second) = (first.unwrap(), made(&[Item::Table3, Item::Figure16]).2.unwrap());
    assert_eq!(first.to_json().to_string(), second.to_json().to_string());
    assert!(page::html(&first).unwrap().contains("simulated"));
    let limits = |name: &str| first.run(name).unwrap().options.limits.slow_read_iops;
    assert_eq!(limits("rw-hotspot5-kelvin"), Some(10_000));
    assert_eq!(limits("hdd-ro-hotspot1-fat"), Some(400));
    let error = made(&[Item::Figure9]).2.unwrap_err().to_string();
    assert!(error.contains("figure9 replays traces"), "{error}");
}

#[test]
fn a_peer_whose_disk_would_be_emulated_stands_only_where_it_needs_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut order = order(dir.path(), &[Item::Figure6]);
    order.systems = Vec::new();
    let systems =
        |order: &Order| -> Vec<System> { order.choice().contenders.iter().map(|one| one.system).collect() };
    assert!(systems(&order).iter().all(|system| !system.is_peer() || !system.is_tiered()));
    assert_eq!(systems(&order).contains(&System::RocksdbFast), cfg!(feature = "rocksdb"));
    (order.slow, order.limits) = (Some("slow".into()), DeviceLimits::default());
    assert_eq!(systems(&order).contains(&System::RocksdbFat), cfg!(feature = "rocksdb"));
    (order.slow, order.systems) = (None, vec![System::RocksdbFat]);
    let error = run(&order, &mut Notes::default()).unwrap_err().to_string();
    let expected = if cfg!(feature = "rocksdb") { "cannot be emulated" } else { "built without RocksDB" };
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_place_that_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    dirs::write_whole(&file, "").unwrap();
    let error = run(&order(&file.join("out"), &[Item::Table3]), &mut Notes::default()).unwrap_err();
    assert!(error.to_string().contains("create directory"), "{error}");
    let error = run(&order(dir.path(), &[]), &mut Notes::default()).unwrap_err();
    assert!(error.to_string().contains("nothing to run"), "{error}");
}

#[test]
fn tables_stand_in_the_papers_order_with_its_figures_scaled_to_the_operations() {
    let runs = item::plan(&[Item::Table3], &choice("1/1000"));
    let report = |retained: u64, hits: f64| {
        json!({"ops": 220_000, "fast_hit_rate_last10": hits, "bytes": {"promoted_flush": 4_000_000,
            "promoted_compaction": 2_000_000, "retained": retained, "compaction_read": 1_000_000_000,
            "compaction_written": 2_000_000_000_u64}})
    };
    let paper = Paper {
        items: vec![Item::Table3],
        choice: choice("1/1000"),
        runs: runs.into_iter().zip([report(40_000_000, 0.94), report(0, 0.7)]).collect(),
        devices: Vec::new(),
        is_simulated: false,
    };
    let table = Item::Table3.table(&paper);
    assert_eq!(
        table.rows[0].join(" | "),
        "HotRAP | 6.0 MB | 40.0 MB | 3.00 GB | 94.0 % | 5.9 MB | 41.3 MB | 2.53 GB | 94.5 %"
    );
    assert_eq!(
        table.rows[2].join(" | "),
        "second over first | 1.00x | 0.00x | 1.00x | 0.74x | 5.97x | 0.00x | 1.25x | 0.76x"
    );
    let missing = Item::Table3.table(&Paper { runs: Vec::new(), ..paper });
    assert_eq!(missing.rows[1][..5].join(" "), "no-retain - - - -");
}
