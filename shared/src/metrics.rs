//! Counters as CloudWatch embedded metrics: JSON lines on a function's output, from which CloudWatch
//! makes metrics. No agent, no call, no global recorder.
//!
//! Source of the format: "Specification: Embedded metric format" in the CloudWatch user guide.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::EpochMillis;
use crate::outcome::{Answer, Outcome};

/// The namespace of all metrics.
pub const NAMESPACE: &str = "firstclaim";

/// The most values that one metric may have in one line.
const VALUES_LIMIT: usize = 100;

/// What is counted. The variant's name is the metric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// An operation ran and its result was stored.
    Performed,
    /// A duplicate got the stored result.
    Replayed,
    /// A duplicate got the remembered failure.
    ReplayedFailure,
    /// A duplicate met somebody at work.
    InFlight,
    /// An operation was entered by an attempt after the first.
    Takeover,
    /// A writer found that it was not the owner any more; what it had done was dropped.
    Superseded,
    /// A record waits for a person.
    Held,
    /// A key was used for another payload.
    Mismatch,
    /// A request was refused at the door.
    Refused,
    /// An operation key could not be made by the rule; the delivery key took its place.
    KeyFallback,
    /// An attempt failed and will be tried again.
    Retryable,
    /// An operation failed for good.
    Permanent,
    /// The target's answer says that our configuration is wrong.
    TargetMisconfigured,
    /// The store did not answer.
    StoreUnavailable,
    /// A claim was lost while its operation was under way: the lease ended, or somebody else took
    /// the key over. Counted beside the metric of what came of it.
    LeaseLost,
    /// An operation ran, but its result could not be recorded.
    NotRecorded,
    /// A message asked for nothing: a test of a service that was wired up.
    Ignored,
    /// The visibility of a returned message could not be set; the queue's own holds.
    VisibilityNotSet,
}

impl Metric {
    /// All metrics: what a dashboard can show.
    pub const ALL: &'static [Self] = &[
        Self::Performed,
        Self::Replayed,
        Self::ReplayedFailure,
        Self::InFlight,
        Self::Takeover,
        Self::Superseded,
        Self::Held,
        Self::Mismatch,
        Self::Refused,
        Self::KeyFallback,
        Self::Retryable,
        Self::Permanent,
        Self::TargetMisconfigured,
        Self::StoreUnavailable,
        Self::LeaseLost,
        Self::NotRecorded,
        Self::Ignored,
        Self::VisibilityNotSet,
    ];

    /// The metric that an outcome counts as.
    #[must_use]
    pub fn of<T>(outcome: &Outcome<T>) -> Self {
        if outcome.dropped {
            return Self::Superseded;
        }
        match outcome.answer {
            Answer::Performed(_) => Self::Performed,
            Answer::Replayed(_) | Answer::ResultOmitted(_) => Self::Replayed,
            Answer::ReplayedFailure(_) => Self::ReplayedFailure,
            Answer::InProgress { .. } => Self::InFlight,
            Answer::Held { .. } => Self::Held,
            Answer::Mismatch { .. } => Self::Mismatch,
            Answer::Superseded => Self::Superseded,
            Answer::NotRecorded(_) => Self::NotRecorded,
        }
    }

    /// The name under which it is counted.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// The counters of one function. They are kept until [`flush`](Metrics::flush) writes them.
///
/// ```
/// use firstclaim::clock::EpochMillis;
/// use firstclaim::metrics::{Metric, Metrics};
///
/// let metrics = Metrics::new("webhook");
/// metrics.count(Some("github"), Metric::Performed);
/// let mut out = Vec::new();
/// metrics.flush(EpochMillis(1_794_478_900_000), &mut out)?;
/// let line: serde_json::Value = serde_json::from_slice(&out)?;
/// assert_eq!(line["Performed"], 1);
/// assert_eq!(line["sender"], "github");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Metrics {
    service: &'static str,
    counts: Mutex<BTreeMap<Option<String>, Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    counters: BTreeMap<Metric, u64>,
    latencies: Vec<u64>,
}

impl Metrics {
    /// Counters of the function `service`, the one dimension beside the sender.
    #[must_use]
    pub fn new(service: &'static str) -> Self {
        Self {
            service,
            counts: Mutex::default(),
        }
    }

    /// Counts one. `sender` is a configured sender's name: never a key, and never a name that came
    /// with a request.
    pub fn count(&self, sender: Option<&str>, metric: Metric) {
        let mut counts = self.counts();
        let of_sender = counts.entry(sender.map(str::to_owned)).or_default();
        *of_sender.counters.entry(metric).or_default() += 1;
    }

    /// Adds a value to `LatencyMs`.
    pub fn latency(&self, sender: Option<&str>, took: Duration) {
        let mut counts = self.counts();
        let of_sender = counts.entry(sender.map(str::to_owned)).or_default();
        if of_sender.latencies.len() < VALUES_LIMIT {
            let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            of_sender.latencies.push(millis);
        }
    }

    /// Writes one JSON line for each sender that was counted, and starts again from zero.
    ///
    /// # Errors
    ///
    /// The output can't be written to; the counts are gone then.
    pub fn flush(&self, now: EpochMillis, out: &mut impl io::Write) -> io::Result<()> {
        let counts = std::mem::take(&mut *self.counts());
        for (sender, of_sender) in counts {
            let line = self.line(now, sender, &of_sender);
            writeln!(out, "{line}")?;
        }
        out.flush()
    }

    fn line(&self, now: EpochMillis, sender: Option<String>, counts: &Counts) -> Value {
        let mut definitions = Vec::new();
        let mut fields = Map::new();
        for (metric, count) in &counts.counters {
            definitions.push(json!({"Name": metric.name(), "Unit": "Count"}));
            fields.insert(metric.name(), json!(count));
        }
        if !counts.latencies.is_empty() {
            definitions.push(json!({"Name": "LatencyMs", "Unit": "Milliseconds"}));
            fields.insert("LatencyMs".to_owned(), json!(counts.latencies));
        }
        fields.insert("service".to_owned(), json!(self.service));
        let dimensions = match sender {
            Some(sender) => {
                fields.insert("sender".to_owned(), json!(sender));
                json!([["service"], ["service", "sender"]])
            }
            None => json!([["service"]]),
        };
        let directive = json!({
            "Timestamp": now.0,
            "CloudWatchMetrics": [{
                "Namespace": NAMESPACE,
                "Dimensions": dimensions,
                "Metrics": definitions,
            }],
        });
        fields.insert("_aws".to_owned(), directive);
        Value::Object(fields)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Option<String>, Counts>> {
        // A panic elsewhere must not stop the counting.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_cloudwatch_reads() {
        let metrics = Metrics::new("queue");
        metrics.count(Some("github"), Metric::Performed);
        metrics.count(Some("github"), Metric::Performed);
        metrics.count(Some("github"), Metric::TargetMisconfigured);
        metrics.latency(Some("github"), Duration::from_millis(12));
        metrics.count(None, Metric::Refused);
        let mut out = Vec::new();
        metrics
            .flush(EpochMillis(1_794_478_900_000), &mut out)
            .unwrap();
        let expected = concat!(
            r#"{"Refused":1,"_aws":{"CloudWatchMetrics":[{"Dimensions":[["service"]],"#,
            r#""Metrics":[{"Name":"Refused","Unit":"Count"}],"Namespace":"firstclaim"}],"#,
            r#""Timestamp":1794478900000},"service":"queue"}"#,
            "\n",
            r#"{"LatencyMs":[12],"Performed":2,"TargetMisconfigured":1,"_aws":{"#,
            r#""CloudWatchMetrics":[{"Dimensions":[["service"],["service","sender"]],"#,
            r#""Metrics":[{"Name":"Performed","Unit":"Count"},"#,
            r#"{"Name":"TargetMisconfigured","Unit":"Count"},"#,
            r#"{"Name":"LatencyMs","Unit":"Milliseconds"}],"Namespace":"firstclaim"}],"#,
            r#""Timestamp":1794478900000},"sender":"github","service":"queue"}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut nothing = Vec::new();
        metrics.flush(EpochMillis(0), &mut nothing).unwrap();
        assert!(nothing.is_empty(), "it starts again from zero");
    }
}
