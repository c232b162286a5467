//! How long a guarded path takes beside the same calls by hand, and a duplicate from the process's
//! memory: `cargo bench -p firstclaim --bench claim`.

mod paths;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use firstclaim::store::memory::Memory;
use firstclaim::{Claims, Config, Failure, Key};
use paths::{Measured, Path};

#[expect(
    clippy::unwrap_used,
    reason = "a measurement stops at what it did not expect"
)]
fn measure(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for (name, path) in [("first", Path::First), ("duplicate", Path::Duplicate)] {
        let measured = Measured::new(path);
        // The clock is compared once, while the canned answer's date is still true.
        runtime.block_on(measured.guarded());
        let mut group = criterion.benchmark_group(name);
        group.bench_function("bare SDK calls", |bencher| {
            bencher.iter(|| runtime.block_on(measured.bare()));
        });
        group.bench_function("guarded", |bencher| {
            bencher.iter(|| runtime.block_on(measured.guarded()));
        });
        group.finish();
    }
    let claims = Claims::new(Memory::new(), Config::default()).unwrap();
    let once = || {
        claims
            .once(Key::new("charge", "order-42").unwrap())
            .lease(Duration::from_secs(30))
            .run(|_work| async { Ok::<u64, Failure<String>>(42) })
    };
    runtime.block_on(once()).unwrap();
    criterion.bench_function("duplicate from the process's memory", |bencher| {
        bencher.iter(|| runtime.block_on(once()).unwrap());
    });
}

criterion_group!(benches, measure);
criterion_main!(benches);
