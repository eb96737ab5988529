//! `kelvin verify`: what it runs, prints and refuses. What the suites find is shown by their own tests.

use crate::common::{Place, failure, kelvin, stdout};

#[test]
fn each_suite_runs_at_the_size_that_is_asked_for() {
    let place = Place::new();
    for (suite, budget, least) in [
        ("model", "5000", 5_000),
        ("metamorphic", "1", 1),
        ("faults", "40", 40),
        ("rot", "60", 60),
        ("linear", "2", 2),
        ("kills", "3", 3),
    ] {
        let mut command = kelvin();
        command.args(["verify", suite, "--budget", budget, "--json", "--fast"]).arg(place.path("fast"));
        command.arg("--slow").arg(place.path("slow"));
        let told: serde_json::Value = serde_json::from_str(&stdout(&mut command)).unwrap();
        let told = &told["suites"][0];
        assert!(told["holds"] == true && told["suite"] == suite, "{told}");
        assert!(told["count"].as_u64().unwrap() >= least, "{told}");
    }
    // Twice in the same place, beside what is somebody else's.
    let theirs = place.path("fast").join("store-1");
    kelvin().args(["put", "a", "b", "--fast"]).arg(&theirs).assert().success();
    for _ in 0..2 {
        let mut command = kelvin();
        command.args(["verify", "kills", "--budget", "2", "--fast"]).arg(place.path("fast"));
        assert!(stdout(&mut command).contains("2 kills in"));
    }
    assert_eq!(stdout(kelvin().args(["get", "a", "--fast"]).arg(&theirs)).trim(), "b");
    let text = stdout(kelvin().args(["verify", "linear", "--budget", "1"]));
    assert!(text.contains("holds") && text.contains("1 histories in"), "{text}");
    let list = stdout(kelvin().args(["verify", "--list"]));
    assert!(
        ["model", "metamorphic", "crash", "faults", "simulation", "rot", "linear", "kills", "soak"]
            .iter()
            .all(|name| list.contains(name)),
        "{list}"
    );
}

#[test]
fn a_soak_tells_samples_over_time_and_writes_a_page_of_plots() {
    let place = Place::new();
    let page = place.path("soak.html");
    let mut command = kelvin();
    command.args(["verify", "soak", "--budget", "5", "--json", "--fast"]).arg(place.path("fast"));
    command.arg("--slow").arg(place.path("slow")).arg("--html").arg(&page);
    let told: serde_json::Value = serde_json::from_str(&stdout(&mut command)).unwrap();
    let told = &told["suites"][0];
    assert!(told["holds"] == true && told["count"].as_u64() >= Some(3), "{told}");
    let samples = told["figures"]["samples"].as_array().unwrap();
    assert!(samples.len() >= 3, "{told}");
    for sample in samples {
        let used = sample["fast_used_bytes"].as_u64().unwrap();
        assert!(used <= told["figures"]["fast_capacity"].as_u64().unwrap(), "{sample}");
        assert!(sample["phase"].is_string() && sample["reads"].is_object(), "{sample}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.matches("<svg").count() == 7 && page.contains("slow disk hangs"));
}

#[test]
fn nonsense_is_refused() {
    for (args, word) in [
        (&["everything"][..], "there are model, metamorphic, crash"),
        (&["--budget", "5"], "name the suite"),
        (&["model", "--budget", "much"], "small, night, release, or a number of operations"),
        (&["model", "--budget", "0"], "is no size"),
        (&["model", "--html", "x.html"], "none of these suites has plots"),
    ] {
        let (code, told) = failure(kelvin().arg("verify").args(args));
        assert!(code == 2 && told.contains(word), "{code} {told}");
    }
}
