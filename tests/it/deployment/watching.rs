//! The dashboard and the alarms: they watch what is counted, and each alarm has its page.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use firstclaim::metrics::{Metric, NAMESPACE};
use integration::Lab;
use integration::template::{root, text};
use serde_json::{Value, json};

use super::{ALARM, stack};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            every_metric_is_on_the_dashboard,
            the_dashboard_is_one_regions_own,
            alarms_watch_what_is_counted,
            an_outage_on_a_quiet_stack_fires_its_alarm,
            what_the_gateway_turns_away_is_seen,
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

/// An account has one dashboard of a name, whatever the Region.
async fn the_dashboard_is_one_regions_own(_: &Lab) -> anyhow::Result<()> {
    let name = text(&stack(&[])?.properties("Dashboard")?["DashboardName"]);
    for part in ["AWS::StackName", "AWS::Region"] {
        ensure!(name.contains(part), "{name} does not name {part}");
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
    for needed in [
        "Held",
        "Superseded",
        "Mismatch",
        "TargetMisconfigured",
        "Retryable",
        "StoreUnavailable",
    ] {
        ensure!(watched.contains(needed), "nobody watches {needed}");
    }
    Ok(())
}

/// In minutes: when one event alone is tried whose target is down, by the worker's back-off.
const TARGET_DOWN: [f64; 8] = [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5];

/// When one event alone is tried while the table is away: the queue's own visibility, four times.
const TABLE_AWAY: [f64; 6] = [0.0, 6.0, 12.0, 18.0, 24.0, 32.0];

/// When one event alone is tried whose target asks for an hour each time.
const HOURLY: [f64; 4] = [0.0, 60.0, 120.0, 180.0];

/// A door that is sent little.
const DELIVERIES: [f64; 4] = [0.0, 20.0, 40.0, 60.0];

async fn an_outage_on_a_quiet_stack_fires_its_alarm(_: &Lab) -> anyhow::Result<()> {
    let alarms = stack(&[])?.resources("AWS::CloudWatch::Alarm")?;
    let alarm = |name: &str| {
        let alarm = alarms.get(name).with_context(|| name.to_owned())?;
        anyhow::Ok(&alarm["Properties"])
    };
    for (name, tried) in [
        ("RetryableAlarm", TARGET_DOWN.as_slice()),
        ("StoreUnavailableAlarm", &TABLE_AWAY),
        ("DoorStoreUnavailableAlarm", &DELIVERIES),
        // A batch that Lambda turns away is back when its visibility ends.
        ("QueueThrottledAlarm", &TABLE_AWAY),
        ("TargetMisconfiguredAlarm", &TARGET_DOWN),
        ("HeldAlarm", &DELIVERIES),
    ] {
        // Wherever in a period it begins.
        for phase in 0..10 {
            let fired = fires(alarm(name)?, tried, f64::from(phase) / 2.0)?;
            ensure!(
                fired.is_some_and(|minutes| minutes <= 40.0),
                "{name} fires after {fired:?} minutes"
            );
        }
    }
    // A target that asks for the longest wait that there is.
    for phase in 0..10 {
        let fired = fires(alarm("RetryableAlarm")?, &HOURLY, f64::from(phase) / 2.0)?;
        assert_eq!(fired, Some(120.0));
    }
    // One failure that is over at the next attempt wakes nobody.
    for name in [
        "RetryableAlarm",
        "StoreUnavailableAlarm",
        "DoorStoreUnavailableAlarm",
    ] {
        assert_eq!(fires(alarm(name)?, &[0.0], 0.0)?, None, "{name}");
    }
    // Where failures are a rule, a higher number makes the alarm.
    let usual = stack(&[("MaximumRetries", "1000")])?;
    assert_eq!(usual.properties("RetryableAlarm")?["Threshold"], "1000");
    Ok(())
}

/// After how many minutes an alarm fires over one count at each of these minutes; the first of them
/// comes `phase` minutes after the beginning of a period.
fn fires(alarm: &Value, counts: &[f64], phase: f64) -> anyhow::Result<Option<f64>> {
    let number = |name: &str| text(&alarm[name]).parse::<f64>().context(name.to_owned());
    let (period, of) = (number("Period")? / 60.0, number("EvaluationPeriods")?);
    let needed = number("DatapointsToAlarm").unwrap_or(of);
    let least = match text(&alarm["ComparisonOperator"]).as_str() {
        "GreaterThanThreshold" => number("Threshold")? + 1.0,
        _ => number("Threshold")?,
    };
    assert_eq!(alarm["Statistic"], "Sum");
    let period_of = |minute: f64| ((minute + phase) / period).floor();
    Ok(counts.iter().copied().find(|now| {
        let now = period_of(*now);
        let breaching: BTreeSet<u64> = counts
            .iter()
            .map(|minute| period_of(*minute))
            .filter(|at| *at <= now && *at > now - of)
            .filter(|at| {
                let sum = counts.iter().filter(|minute| period_of(**minute) == *at);
                sum.count() as f64 >= least
            })
            .map(|at| at as u64)
            .collect();
        breaching.len() as f64 >= needed
    }))
}

/// The function never hears of a request that the HTTP API throttles; its log does.
async fn what_the_gateway_turns_away_is_seen(_: &Lab) -> anyhow::Result<()> {
    // What the API says itself. Paths, headers and addresses are the caller's.
    let own = [
        "requestId",
        "requestTime",
        "apiId",
        "routeKey",
        "status",
        "error.responseType",
        "integrationStatus",
        "responseLatency",
    ];
    let with_api = stack(&[])?;
    let settings = &with_api.properties("ApiStage")?["AccessLogSettings"];
    assert_eq!(settings["DestinationArn"], "AccessLogs.Arn");
    let kept = number_of_days(&with_api.properties("AccessLogs")?)?;
    assert_eq!(kept, number_of_days(&with_api.properties("WebhookLogs")?)?);
    let line: Value = serde_json::from_str(&text(&settings["Format"]))?;
    let fields = line.as_object().context("no object")?;
    for (name, value) in fields {
        let variable = text(value);
        let variable = variable.strip_prefix("$context.").context(name.clone())?;
        ensure!(own.contains(&variable), "{name} is {variable}");
    }
    assert_eq!(fields["status"], "$context.status");
    assert_eq!(fields["api"], "$context.apiId");

    let filter = with_api.properties("ThrottledRequests")?;
    assert_eq!(filter["LogGroupName"], "AccessLogs");
    assert_eq!(filter["FilterPattern"], "{ $.status = \"429\" }");
    let counts = &filter["MetricTransformations"][0];
    assert_eq!(
        counts["Dimensions"],
        json!([{"Key": "ApiId", "Value": "$.api"}])
    );
    let alarm = with_api.properties("ApiThrottledAlarm")?;
    assert_eq!(alarm["Namespace"], counts["MetricNamespace"]);
    assert_eq!(alarm["MetricName"], counts["MetricName"]);
    assert_eq!(
        alarm["Dimensions"],
        json!([{"Name": "ApiId", "Value": "Api"}])
    );

    let without = stack(&[("Front", "FunctionUrl")])?;
    for (of_type, name) in [
        ("AWS::Logs::LogGroup", "AccessLogs"),
        ("AWS::Logs::MetricFilter", "ThrottledRequests"),
        ("AWS::CloudWatch::Alarm", "ApiThrottledAlarm"),
    ] {
        ensure!(with_api.resources(of_type)?.contains_key(name), "{name}");
        ensure!(!without.resources(of_type)?.contains_key(name), "{name}");
    }
    Ok(())
}

fn number_of_days(group: &Value) -> anyhow::Result<u64> {
    let days = text(&group["RetentionInDays"]);
    days.parse().context(days)
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
