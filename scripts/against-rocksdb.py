#!/usr/bin/env python3
"""Kelvin against RocksDB, in pairs, each run a process of its own: a table of ratios for docs/benchmarks.md.

  cargo build --release -p kelvin-cli && cp target/release/kelvin /tmp/kelvin
  cargo build --release -p kelvin-cli --features rocksdb
  scripts/against-rocksdb.py --kelvin /tmp/kelvin --peer target/release/kelvin --dir DIR

Kelvin is measured with the program that does not link RocksDB, so that its resident memory is its own. In each pair
both systems load, with four threads and with one, then run the same workloads on what they loaded last: those that only
read first, then those that write, with one thread and with four. A ratio is Kelvin's figure over RocksDB's, the median of the pairs; operations are better
above 1, processor time below. The most memory and fast disk of all runs stand beneath the table.

Needs RocksDB's library, some 4 GB in DIR, and with the defaults about twenty minutes for each pair.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

SYSTEMS = {"fast-only": "rocksdb-fast", "fat": "rocksdb-fat"}
WORKLOADS = [  # name, workload, keys, share of --ops
    ("RO uniform", "RO", "uniform", 0.6),
    ("RO zipf 0.99", "RO", "zipf:0.99", 0.6),
    ("scan 100", "scan", "uniform", 0.1),
    ("RW uniform", "RW", "uniform", 1),
    ("WH uniform", "WH", "uniform", 1),
    ("UH uniform", "UH", "uniform", 1),
]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kelvin", required=True, help="the program without RocksDB")
    parser.add_argument("--peer", required=True, help="the program with the feature rocksdb")
    parser.add_argument("--dir", required=True, type=Path, help="where the stores and results go")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--value-sizes", nargs="+", type=int, default=[1000, 176])
    parser.add_argument("--bytes", type=float, default=1.1e9, help="keys and values together")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 4])
    names = [name for name, *_ in WORKLOADS]
    parser.add_argument("--workloads", nargs="*", choices=names, default=names, help="what runs after the loads")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--warm-up", type=int, default=20_000, help="reads before each run that are not measured")
    parser.add_argument("--memory", default="64MiB")
    return parser.parse_args()


def bench(args, system, dirs, settings, reuse):
    """Runs one benchmark; answers its JSON."""
    program = args.peer if system.startswith("rocksdb") else args.kelvin
    out = dirs / "run.json"
    command = [program, "bench", "--system", system, "--fast", dirs / "fast", "--slow", dirs / "slow", "--json", out,
               "--memory", args.memory, *settings, *(["--reuse"] if reuse else [])]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stderr}")
    return json.loads(out.read_text())


def one_pair(args, kelvin, value_size, note):
    """Loads and runs both systems side by side; tells each figure to `note`."""
    records = ["--records", int(args.bytes / (24 + value_size)), "--value-size", value_size]
    pair = [kelvin, SYSTEMS[kelvin]]
    dirs = {system: args.dir / system for system in pair}
    for threads in reversed(args.threads):
        for system in pair:
            shutil.rmtree(dirs[system], ignore_errors=True)
            dirs[system].mkdir(parents=True)
        load = [*records, "--workload", "load", "--threads", threads]
        loads = [bench(args, one, dirs[one], load, False) for one in pair]
        note("load, settled", threads, loads,
             lambda run: (run["load"]["settled_ops_per_s"], run["load"]["settled_cpu_us_per_op"]))
    for name, workload, keys, share in WORKLOADS:
        if name not in args.workloads:
            continue
        for threads in args.threads:
            run = [*records, "--workload", workload, "--keys", keys, "--threads", threads,
                   "--ops", int(args.ops * share), "--warm-up", args.warm_up]
            runs = [bench(args, one, dirs[one], run, True) for one in pair]
            note(name, threads, runs, lambda run: (run["ops_per_s"], run["cpu_us_per_op"]))
    for system in pair:
        shutil.rmtree(dirs[system], ignore_errors=True)


def main():
    args = arguments()
    args.dir.mkdir(parents=True, exist_ok=True)
    all_runs = []
    for value_size in args.value_sizes:
        for kelvin in args.systems:
            rows, peaks = {}, {0: [0, 0], 1: [0, 0]}

            def note(name, threads, runs, figures):
                (ops, cpu), (peer_ops, peer_cpu) = map(figures, runs)
                rows.setdefault((name, threads), []).append((ops, peer_ops, ops / peer_ops, cpu / peer_cpu))
                for index, run in enumerate(runs):
                    peak = run["rss_peak_bytes"], run["fast_used_bytes_max"]
                    peaks[index] = [max(pair) for pair in zip(peaks[index], peak)]
                all_runs.extend(runs)
                (args.dir / "runs.json").write_text(json.dumps(all_runs))
                print(f"{kelvin} {value_size} B  {name}, {threads} thread(s): {ops:.0f} / {peer_ops:.0f} a second = "
                      f"{ops / peer_ops:.2f}, CPU {cpu / peer_cpu:.2f}", file=sys.stderr, flush=True)

            for _ in range(args.pairs):
                one_pair(args, kelvin, value_size, note)
            print(f"\n{kelvin}, values of {value_size} bytes, {args.pairs} pair(s)\n")
            print("| workload | threads | Kelvin, ops/s | RocksDB | ratio | lowest, highest | CPU ratio |")
            print("|---|---|---|---|---|---|---|")
            for (name, threads), found in rows.items():
                ops, peer, ratios, cpu = zip(*found)
                middle = statistics.median
                print(f"| {name} | {threads} | {middle(ops):,.0f} | {middle(peer):,.0f} | {middle(ratios):.2f} | "
                      f"{min(ratios):.2f}, {max(ratios):.2f} | {middle(cpu):.2f} |")
            (rss, fast), (peer_rss, peer_fast) = peaks[0], peaks[1]
            print(f"\nMost resident: {rss / 1e6:.1f} MB, RocksDB {peer_rss / 1e6:.1f} MB. "
                  f"Most on the fast disk: {fast / 1e6:.1f} MB, RocksDB {peer_fast / 1e6:.1f} MB.", flush=True)


main()
