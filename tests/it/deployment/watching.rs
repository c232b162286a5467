//! The dashboard and the alarms: they watch what is counted, and each alarm has its page.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use firstclaim::metrics::{Metric, NAMESPACE};
use integration::Lab;
use integration::template::{root, text};
use serde_json::Value;

use super::{ALARM, stack};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            every_metric_is_on_the_dashboard,
            alarms_watch_what_is_counted,
            every_alarm_has_its_page,
            alarms_call_somebody_if_there_is_somebody,
        ;
        race:
    ]
}

/// The metrics that the functions count, by name.
fn counted() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = Metric::ALL.iter().map(|metric| metric.name()).collect();
    names.insert("LatencyMs".to_owned());
    names
}

async fn every_metric_is_on_the_dashboard(_: &Lab) -> anyhow::Result<()> {
    for front in ["HttpApi", "FunctionUrl"] {
        let stack = stack(&[("Front", front)])?;
        let body = text(&stack.properties("Dashboard")?["DashboardBody"]);
        let body: Value = serde_json::from_str(&body).context("the dashboard is no JSON")?;
        let mut shown = BTreeSet::new();
        for widget in body["widgets"].as_array().context("no widgets")? {
            for metric in widget["properties"]["metrics"]
                .as_array()
                .into_iter()
                .flatten()
            {
                if metric[0] == NAMESPACE {
                    shown.insert(text(&metric[1]));
                    assert_eq!(metric[2], "service");
                    ensure!(
                        ["webhook", "queue"].contains(&text(&metric[3]).as_str()),
                        "{metric}"
                    );
                }
            }
        }
        assert_eq!(
            shown,
            counted(),
            "shown on the dashboard, and counted by the code"
        );
    }
    Ok(())
}

async fn alarms_watch_what_is_counted(_: &Lab) -> anyhow::Result<()> {
    let mut watched = BTreeSet::new();
    for (name, alarm) in stack(&[])?.resources("AWS::CloudWatch::Alarm")? {
        let properties = &alarm["Properties"];
        if properties["Namespace"] == NAMESPACE {
            let metric = text(&properties["MetricName"]);
            ensure!(counted().contains(&metric), "{name} watches {metric}");
            assert_eq!(properties["Dimensions"][0]["Name"], "service", "{name}");
            watched.insert(metric);
        }
        // A quiet night is no alarm.
        assert_eq!(properties["TreatMissingData"], "notBreaching", "{name}");
    }
    for needed in ["Held", "Superseded", "Mismatch", "TargetMisconfigured"] {
        ensure!(watched.contains(needed), "nobody watches {needed}");
    }
    Ok(())
}

async fn every_alarm_has_its_page(_: &Lab) -> anyhow::Result<()> {
    let runbook = std::fs::read_to_string(root().join("docs/runbook.md"))?;
    let pages: BTreeSet<String> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(anchor)
        .collect();
    for front in ["HttpApi", "FunctionUrl"] {
        let stack = stack(&[("Front", front)])?;
        for (name, alarm) in stack.resources("AWS::CloudWatch::Alarm")? {
            let description = text(&alarm["Properties"]["AlarmDescription"]);
            let (_, page) = description
                .rsplit_once("docs/runbook.md#")
                .context(name.clone())?;
            ensure!(
                pages.contains(page),
                "{name} points at {page:?}; there are {pages:?}"
            );
            ensure!(
                runbook.contains(&format!("`{name}`")),
                "the runbook does not speak of {name}"
            );
        }
    }
    Ok(())
}

async fn alarms_call_somebody_if_there_is_somebody(_: &Lab) -> anyhow::Result<()> {
    for (name, alarm) in stack(&[ALARM])?.resources("AWS::CloudWatch::Alarm")? {
        assert_eq!(alarm["Properties"]["AlarmActions"][0], ALARM.1, "{name}");
    }
    for (name, alarm) in stack(&[])?.resources("AWS::CloudWatch::Alarm")? {
        ensure!(alarm["Properties"]["AlarmActions"].is_null(), "{name}");
    }
    Ok(())
}

/// A heading's anchor, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}
