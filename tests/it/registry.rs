//! Tests are registered in lists, one per module: a test that no list names is never used, and the
//! compiler says so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use integration::Lab;
use integration::lab::{Log, Suite};
use libtest_mimic::{Completion, Failed, Trial};
use tokio::runtime::Runtime;

/// A test: its name and what it does with its laboratory.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) run: fn(Arc<Lab>) -> Running,
}

/// What a test needs of the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Right answers, one call at a time.
    Shape,
    /// Atomic conditional writes: refused where the engine's self test failed.
    Race,
    /// As a shape; further the senders' own libraries.
    Peers,
}

/// A test that runs.
pub(crate) type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Lists the tests of the module that it stands in: `tests![shape: a, b; race: c]`, or
/// `tests![peers: a, b;]`.
macro_rules! tests {
    (peers: $($peers:ident),* $(,)?;) => {
        vec![
            $(crate::registry::Test {
                name: crate::registry::name(module_path!(), stringify!($peers)),
                kind: crate::registry::Kind::Peers,
                run: |lab| Box::pin(async move { $peers(&lab).await }),
            },)*
        ]
    };
    (shape: $($shape:ident),* $(,)?; race: $($race:ident),* $(,)?) => {
        vec![
            $(crate::registry::Test {
                name: crate::registry::name(module_path!(), stringify!($shape)),
                kind: crate::registry::Kind::Shape,
                run: |lab| Box::pin(async move { $shape(&lab).await }),
            },)*
            $(crate::registry::Test {
                name: crate::registry::name(module_path!(), stringify!($race)),
                kind: crate::registry::Kind::Race,
                run: |lab| Box::pin(async move { $race(&lab).await }),
            },)*
        ]
    };
}
pub(crate) use tests;

/// A test's name, without the crate's.
pub(crate) fn name(module: &str, function: &str) -> String {
    let module = module.strip_prefix("it::").unwrap_or(module);
    format!("{module}::{function}")
}

/// The tests by name only.
pub(crate) fn listed(tests: Vec<Test>) -> Vec<Trial> {
    tests
        .into_iter()
        .map(|test| Trial::test(test.name, || Ok(())))
        .collect()
}

/// The tests, each with a laboratory of its own.
pub(crate) fn trials(
    tests: Vec<Test>,
    suite: &Suite,
    runtime: &Arc<Runtime>,
    races: bool,
) -> Vec<Trial> {
    let trial = |test: Test| {
        let (suite, runtime, run) = (suite.clone(), Arc::clone(runtime), test.run);
        let refused = match test.kind {
            Kind::Race if !races => Some(
                "refused: this engine lets several writers win, so that a race proves nothing"
                    .to_owned(),
            ),
            Kind::Peers => suite.peers.missing().map(|why| format!("left out: {why}")),
            _ => None,
        };
        Trial::ignorable_test(test.name, move || {
            if let Some(why) = refused {
                return Ok(Completion::ignored_with(why));
            }
            conduct(suite, &runtime, run).map(|()| Completion::Completed)
        })
    };
    tests.into_iter().map(trial).collect()
}

/// How long a test may take: much longer than any does, so that one that waits for what does not come
/// ends with its log.
const LIMIT: Duration = Duration::from_secs(300);

fn conduct(suite: Suite, runtime: &Runtime, run: fn(Arc<Lab>) -> Running) -> Result<(), Failed> {
    let log = Log::default();
    let shared = log.clone();
    let test = runtime.spawn(async move {
        let lab = Arc::new(Lab::new(suite, shared).await?);
        let run = tokio::time::timeout(LIMIT, run(Arc::clone(&lab)));
        run.await
            .context("it waited for something that did not come")??;
        lab.close().await
    });
    let failure = match runtime.block_on(test) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => {
            let causes = error.chain().map(ToString::to_string);
            causes.collect::<Vec<_>>().join("\ncaused by: ")
        }
        Err(error) => match error.try_into_panic() {
            Ok(panic) => text_of(panic.as_ref()),
            Err(error) => error.to_string(),
        },
    };
    Err(Failed::from(format!("{failure}\n\n{}", log.text())))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a text".to_owned())
}
