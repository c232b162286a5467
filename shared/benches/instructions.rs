//! How many instructions the crate itself adds to the bare SDK calls, counted by
//! `valgrind --tool=callgrind`: `cargo bench -p firstclaim --bench instructions`.
//!
//! The program runs itself under valgrind: each path both ways, a small and a large number of
//! times, so that start-up cancels out.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its figures and stops at what it did not expect"
)]

mod paths;

use std::process::Command;

use paths::{Measured, Path};

const FEW: u64 = 20;
const MANY: u64 = 220;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [way, path, times] => repeat(way, path, times.parse().unwrap()),
        // `cargo bench` adds `--bench`.
        _ => compare(),
    }
}

fn repeat(way: &str, path: &str, times: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let measured = Measured::new(match path {
        "first" => Path::First,
        _ => Path::Duplicate,
    });
    runtime.block_on(async {
        for _ in 0..times {
            match way {
                "guarded" => measured.guarded().await,
                _ => measured.bare().await,
            }
        }
    });
}

fn compare() {
    println!("instructions per operation, start-up cancelled out");
    println!(
        "{:<10} {:>12} {:>12} {:>8}",
        "path", "bare", "guarded", "added"
    );
    for path in ["first", "duplicate"] {
        let bare = per_operation("bare", path);
        let guarded = per_operation("guarded", path);
        let added = (guarded as f64 / bare as f64 - 1.0) * 100.0;
        println!("{path:<10} {bare:>12} {guarded:>12} {added:>7.1}%");
    }
}

fn per_operation(way: &str, path: &str) -> u64 {
    (counted(way, path, MANY) - counted(way, path, FEW)) / (MANY - FEW)
}

fn counted(way: &str, path: &str, times: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args([way, path, &times.to_string()])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = report.lines().find(|line| line.contains("Collected : "));
    let count = line.and_then(|line| line.rsplit(' ').next());
    count.unwrap_or_else(|| panic!("{report}")).parse().unwrap()
}
