use std::collections::BTreeMap;

use firstclaim::Owner;
use firstclaim::clock::EpochMillis;

use super::*;
use crate::dev::engine::{Engine, Missing, Storage, prepare_table};

mod queues;
mod secrets;
mod store;
mod stub;
mod targets;
mod threads;

/// The options of a run, with what the environment holds.
#[derive(Clone)]
struct Run {
    options: Options,
    environment: BTreeMap<&'static str, String>,
}

impl Run {
    /// Nothing is named but a table, at an endpoint that refuses each connection.
    fn new() -> Self {
        Self {
            options: Options {
                table: Some("claims".to_owned()),
                endpoint: Some("http://127.0.0.1:1".to_owned()),
                queue_url: None,
                dead_letter_url: None,
                senders: None,
                target_url: None,
                worker_timeout: None,
                limit: Duration::from_secs(10),
                json: false,
            },
            environment: BTreeMap::new(),
        }
    }

    fn at(endpoint: &str) -> Self {
        let mut run = Self::new();
        run.options.endpoint = Some(endpoint.to_owned());
        run
    }

    fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    async fn report(&self) -> Report {
        self.report_by(SystemSource).await
    }

    async fn report_by(&self, source: impl Source + Clone) -> Report {
        let lookup = |name: &str| self.environment.get(name).cloned();
        check(self.options.clone(), lookup, source).await.unwrap()
    }
}

impl Report {
    /// The only finding of a check.
    fn only(&self, check: &str) -> &Finding {
        let found = self.all(check);
        assert_eq!(found.len(), 1, "{check}: {self:#?}");
        found[0]
    }

    fn all(&self, check: &str) -> Vec<&Finding> {
        let of_it = |finding: &&Finding| finding.check == check;
        self.findings.iter().filter(of_it).collect()
    }
}

impl Finding {
    #[track_caller]
    fn is(&self, status: Status, parts: &[&str]) {
        assert_eq!(self.status, status, "{self:#?}");
        let said = format!("{} {}", self.found, self.advice.as_deref().unwrap_or(""));
        for part in parts {
            assert!(said.contains(part), "{part}: {self:#?}");
        }
        let must_advise = matches!(status, Status::Fault | Status::Warning);
        assert_eq!(self.advice.is_some(), must_advise, "{self:#?}");
    }
}

/// An engine with a table as it should be.
async fn engine() -> Engine {
    let engine = Engine::start(Storage::Memory).await.unwrap();
    let client = engine.client().await;
    prepare_table(&client, "claims", Missing::Create)
        .await
        .unwrap();
    engine
}

#[tokio::test]
async fn without_a_table_nothing_is_checked() {
    let mut run = Run::new();
    run.options.table = None;
    let lookup = |name: &str| run.environment.get(name).cloned();
    let error = check(run.options.clone(), lookup, SystemSource)
        .await
        .unwrap_err();
    assert_eq!(error.exit_code(), 64);
    for variable in ["FIRSTCLAIM_TABLE", "CLAIMS_TABLE"] {
        let mut named = run.clone().env(variable, "named");
        named.options.limit = Duration::from_secs(1);
        let report = named.report().await;
        let subject = report.only("table").subject.clone();
        assert_eq!(subject.as_deref(), Some("named at http://127.0.0.1:1"));
    }
}

#[tokio::test]
async fn each_fault_of_a_setting_is_told_once_and_hides_no_other_check() {
    let engine = engine().await;
    let report = Run::at(&engine.endpoint())
        .env("CLAIMS_WINDOW", "a while")
        .env("BODY_LIMIT", "7GB")
        .env("PUBLIC_URL", "hooks")
        .env("BATCH_CONCURRENCY", "0")
        .env("CLAIMS_ON_LAPSE", "hope")
        .env("TARGET_URL", "http://example.com/")
        .env("TARGET_TOKEN", "secret-token")
        .env("TARGET_TOKEN_SECRET_ARN", "arn")
        .report()
        .await;
    let faults = report.all("settings");
    let mut named: Vec<&str> = faults
        .iter()
        .filter_map(|fault| fault.subject.as_deref())
        .collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            "BATCH_CONCURRENCY",
            "BODY_LIMIT",
            "CLAIMS_ON_LAPSE",
            "CLAIMS_WINDOW",
            "PUBLIC_URL",
            "TARGET_TOKEN_SECRET_ARN",
            "TARGET_URL",
        ]
    );
    for fault in faults {
        assert_eq!(fault.status, Status::Fault);
    }
    report.only("claim").is(Status::Ok, &["replayed"]);
    report.only("target").is(Status::Skipped, &["TARGET_URL"]);
    report.only("target-token").is(Status::Ok, &[]);
    assert_eq!(report.exit_code(), 1);
    assert!(!report.to_text(false).contains("secret-token"));
}

#[tokio::test]
async fn lines_are_aligned_and_nothing_in_them_acts_on_a_terminal() {
    let hostile = Finding::fault(
        "target",
        "said \u{1b}]0;owned\u{7}\n\u{202e}x",
        "mend\u{9b}2J it",
    );
    let report = Report {
        findings: vec![
            Finding::ok("table", "ACTIVE").of("claims"),
            hostile,
            Finding::warning("clock", "slow", "set it"),
            Finding::skipped("queue", "none"),
        ],
        store_answered: true,
    };
    assert_eq!(
        report.to_text(false),
        "ok       table         claims: ACTIVE\n\
         fault    target        said \\u{1b}]0;owned\\u{7}\\n\\u{202e}x; mend\\u{9b}2J it\n\
         warning  clock         slow; set it\n\
         skipped  queue         none\n\
         \n\
         1 ok, 1 warning, 1 fault, 1 skipped\n"
    );
    let coloured = report.to_text(true);
    assert_eq!(coloured.matches("\u{1b}[0m").count(), 4, "{coloured:?}");

    let json = report.to_json();
    assert!(
        !json.chars().any(|c| c.is_control() && c != '\n'),
        "{json:?}"
    );
    let lines: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[1],
        serde_json::json!({
            "check": "target",
            "status": "fault",
            "subject": null,
            "found": "said \u{1b}]0;owned\u{7}\n\u{202e}x",
            "advice": "mend\u{9b}2J it",
        })
    );
    assert_eq!(lines.len(), 4);
}

/// The system's clock, off by so many milliseconds.
#[derive(Clone, Debug)]
struct OffBy(i64);

impl Source for OffBy {
    fn now(&self) -> EpochMillis {
        EpochMillis(SystemSource.now().0 + self.0)
    }

    fn token(&self) -> Owner {
        SystemSource.token()
    }
}
