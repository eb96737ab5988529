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
fn a_soak_goes_on_where_the_part_before_ended() {
    let place = Place::new();
    let file = place.path("soak.json");
    let part = |budget: &str| {
        let mut command = kelvin();
        command.args(["verify", "soak", "--budget", budget, "--json", "--continue"]).arg(&file);
        command.arg("--fast").arg(place.path("fast")).arg("--slow").arg(place.path("slow"));
        command
    };
    let figures = |mut command| {
        let told: serde_json::Value = serde_json::from_str(&stdout(&mut command)).unwrap();
        assert!(told["suites"][0]["holds"] == true, "{told}");
        told["suites"][0].clone()
    };
    let first = figures(part("3"));
    let second = figures(part("3"));
    let count = |told: &serde_json::Value, name: &str| told["figures"]["done"][name].as_u64().unwrap();
    assert_eq!((&first["figures"]["parts"], &second["figures"]["parts"]), (&1.into(), &2.into()));
    assert_eq!(count(&first, "load"), count(&second, "load"), "the data was there");
    for name in ["get", "put", "checkpoint"] {
        assert!(count(&second, name) > count(&first, name), "{name}: {first} {second}");
    }
    assert!(second["count"].as_u64() >= Some(first["count"].as_u64().unwrap() + 3), "{second}");
    let (code, told) = failure(&mut part("300"));
    assert!(code == 2 && told.contains("has other data"), "{code} {told}");
    let (code, told) = failure(part("3").args(["--seed", "5"]));
    assert!(code == 2 && told.contains("give --seed 1"), "{code} {told}");
    // Something is wrong with the store: the next part finds it, and nothing goes on from there.
    #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
    let bytes = std::fs::read(&file).unwrap();
    let parts: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let [fast, slow] = [0, 1].map(|tier| place.path(parts["dirs"][tier].as_str().unwrap()).join("store"));
    let mut put = kelvin();
    put.args(["put", "c0-000000001", "other", "--fast-capacity", "2MiB", "--fast"]).arg(fast);
    put.arg("--slow").arg(slow).assert().success();
    let found = part("3").assert().code(3);
    let told = String::from_utf8_lossy(&found.get_output().stdout).into_owned();
    assert!(told.contains("in what the part before left"), "{told}");
    let (code, told) = failure(&mut part("3"));
    assert!(code == 2 && told.contains("found a broken promise"), "{code} {told}");
}

#[test]
fn nonsense_is_refused() {
    for (args, word) in [
        (&["everything"][..], "there are model, metamorphic, crash"),
        (&["--budget", "5"], "name the suite"),
        (&["model", "--budget", "much"], "small, night, release, or a number of operations"),
        (&["model", "--budget", "0"], "is no size"),
        (&["model", "--html", "x.html"], "none of these suites has plots"),
        (&["model", "--continue", "x.json"], "is of the suite soak alone"),
    ] {
        let (code, told) = failure(kelvin().arg("verify").args(args));
        assert!(code == 2 && told.contains(word), "{code} {told}");
    }
    let (code, told) = failure(kelvin().args(["verify", "soak", "--continue", "/no/such/place/x.json"]));
    assert!(code == 7 && told.contains("/no/such/place/x.json"), "{code} {told}");
}
