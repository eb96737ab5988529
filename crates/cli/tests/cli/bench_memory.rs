//! The limit on memory is one on what is resident (promise 11): a benchmark in a process of its own, with more data
//! than memory, is told by the system how much it took.

use serde_json::Value;

use crate::common::{Place, kelvin, stdout};

const MIB: u64 = 1 << 20;

fn measure(system: &str, workload: &str, keys: &str, memory: u64) -> Value {
    let text = stdout(
        kelvin()
            .args(["bench", "--system", system, "--workload", workload, "--keys", keys])
            .args(["--records", "60k", "--ops", "40k", "--threads", "2"])
            .args(["--memory", &memory.to_string(), "--fast-capacity", "24MB", "--json", "-"]),
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_process_with_a_store_never_has_more_than_a_tenth_over_memory_resident() {
    for (system, workload, keys, mib) in [
        ("kelvin", "RO", "uniform", 48),
        ("fast-only", "UH", "uniform", 48),
        // Hot records move, and each compaction takes memory.
        ("kelvin", "UH", "hotspot:5", 32),
    ] {
        let memory = mib * MIB;
        let report = measure(system, workload, keys, memory);
        let (peak, parts) = (report["rss_peak_bytes"].as_u64().unwrap(), &report["memory_bytes"]);
        assert!(peak <= memory + memory / 10, "{system} {workload} {mib}: {peak}, {parts}");
        assert_eq!(report["rss_over_limit_bytes"], 0);
        let all = parts["all_max"].as_u64().unwrap();
        assert!(
            all > memory / 4 && all <= memory,
            "{system} {workload} {mib}: memory was put to use: {parts}"
        );
        let cache = parts["cache"].as_u64().unwrap();
        assert!(mib < 48 || cache > memory / 4, "{system} {workload}: the cache has filled: {parts}");
    }
}

/// Looks at the process, so many times at most, until it has what it is to have.
#[cfg(target_env = "gnu")]
const LOOKS_MAX: usize = 200_000;

/// True once the environment of process `id` tells the allocator `expected`.
#[cfg(target_env = "gnu")]
#[expect(clippy::disallowed_methods, reason = "a test looks at a process's environment")]
fn is_told(id: u32, expected: &str) -> bool {
    let (environment, expected) = (format!("/proc/{id}/environ"), format!("GLIBC_TUNABLES={expected}"));
    (0..LOOKS_MAX).any(|_| {
        std::thread::yield_now();
        let now = std::fs::read(&environment).unwrap();
        // The loader of glibc may have ended the text behind its first part.
        now.split(|byte| *byte == 0).any(|one| one.starts_with(expected.as_bytes()))
    })
}

#[cfg(target_env = "gnu")]
#[test]
fn the_allocator_keeps_nothing_for_threads_unless_the_environment_says_so() {
    let none = "glibc.malloc.tcache_count=0";
    for (given, expected) in [
        (None, none),
        (Some("glibc.malloc.perturb=0"), none),
        (Some("glibc.malloc.tcache_count=3"), "glibc.malloc.tcache_count=3"),
    ] {
        let place = Place::new();
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_kelvin"));
        program.args(["load", "--quiet", "--fast"]).arg(place.path("s")).arg("-");
        program.env_remove("GLIBC_TUNABLES").envs(given.map(|given| ("GLIBC_TUNABLES", given)));
        let mut running = program.stdin(std::process::Stdio::piped()).spawn().unwrap();
        // It waits for rows meanwhile.
        let is_set = is_told(running.id(), expected);
        drop(running.stdin.take());
        assert!(running.wait().unwrap().success());
        assert!(is_set, "{expected}");
    }
}

#[cfg(target_env = "gnu")]
#[test]
fn the_disks_of_a_simulation_lie_in_large_pages() {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_kelvin"));
    // It is ended long before it would end.
    program.args(["sim", "--records", "100M"]).env_remove("GLIBC_TUNABLES");
    let mut running = program.stderr(std::process::Stdio::null()).spawn().unwrap();
    let is_set = is_told(running.id(), "glibc.malloc.hugetlb=1");
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(is_set);
}
