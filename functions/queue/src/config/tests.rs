use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, Faults> {
    Settings::read(|name| {
        variables
            .iter()
            .find(|(variable, _)| *variable == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

/// The faults with what is required set.
fn faults(variables: &[(&str, &str)]) -> String {
    let mut all = variables.to_vec();
    all.push(("CLAIMS_TABLE", "claims"));
    all.push(("TARGET_URL", "https://target.example/apply"));
    read(&all)
        .map(|_| String::new())
        .unwrap_or_else(|faults| faults.to_string())
}

#[test]
fn the_defaults_hold_where_nothing_is_set() {
    let settings = read(&[
        ("CLAIMS_TABLE", "claims"),
        ("TARGET_URL", "https://target.example/apply"),
        ("DEAD_LETTER_URL", ""),
        ("TARGET_TOKEN", ""),
    ])
    .unwrap();
    assert_eq!(settings.table, "claims");
    let forgetful = Config {
        cache_bytes: 0,
        ..Config::default()
    };
    assert_eq!(settings.claims, forgetful);
    assert_eq!(settings.concurrency, 10);
    assert_eq!(settings.dead_letter_url, None);
    assert_eq!(settings.target.timeout, TARGET_TIMEOUT);
    assert!(matches!(settings.target.token, TokenSource::None));
    assert_eq!(settings.log_filter, "info");
}

#[test]
fn everything_can_be_set() {
    let settings = read(&[
        ("CLAIMS_TABLE", "claims"),
        ("CLAIMS_WINDOW", "12h"),
        ("CLAIMS_ON_LAPSE", "hold"),
        ("MIN_REMAINING", "90s"),
        ("DEAD_LETTER_URL", "http://127.0.0.1:4566/000000000000/dead.fifo"),
        ("TARGET_URL", "http://127.0.0.1:9000/apply"),
        ("TARGET_TIMEOUT", "5m"),
        ("TARGET_TOKEN_SECRET_ARN", "arn:aws:secretsmanager:us-east-1:000000000000:secret:t"),
        ("BATCH_CONCURRENCY", "100"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:4566"),
        (
            "SENDERS",
            r#"{"github":{"scheme":"github","secrets":["x"],"target":"https://git.example/"},"shop":{}}"#,
        ),
    ])
    .unwrap();
    assert_eq!(settings.claims.window, Duration::from_secs(12 * 60 * 60));
    assert_eq!(settings.claims.policy, Policy::Hold);
    assert_eq!(settings.claims.min_remaining, Duration::from_secs(90));
    assert_eq!(settings.target.timeout, Duration::from_secs(300));
    assert_eq!(settings.concurrency, 100);
    assert_eq!(
        settings.sqs_endpoint.as_deref(),
        Some("http://127.0.0.1:4566")
    );
    let senders: Vec<_> = settings
        .target
        .senders
        .iter()
        .map(|(name, url)| (name.as_str(), url.as_str()))
        .collect();
    assert_eq!(senders, [("github", "https://git.example/")]);
}

#[test]
fn all_faults_come_together_one_on_a_line() {
    let faults = read(&[
        ("TARGET_URL", "http://target.example"),
        ("CLAIMS_WINDOW", "15m"),
        ("CLAIMS_ON_LAPSE", "maybe"),
        ("MIN_REMAINING", "15m"),
        ("ALLOW_HTTP", "yes"),
        ("TARGET_TIMEOUT", "0s"),
        ("BATCH_CONCURRENCY", "0"),
        ("DEAD_LETTER_URL", "dead"),
        ("RUST_LOG", "queue=loud"),
        ("THREADS_URL", "http://threads.example"),
        ("SENDERS_SECRET_ARN", "arn"),
    ])
    .unwrap_err();
    let named: Vec<_> = faults.0.iter().map(|fault| fault.variable).collect();
    assert_eq!(
        named,
        [
            "CLAIMS_TABLE",
            "CLAIMS_WINDOW",
            "CLAIMS_ON_LAPSE",
            "MIN_REMAINING",
            "ALLOW_HTTP",
            "TARGET_URL",
            "SENDERS_SECRET_ARN",
            "TARGET_TIMEOUT",
            "DEAD_LETTER_URL",
            "BATCH_CONCURRENCY",
            "RUST_LOG",
            "THREADS_URL",
        ]
    );
    let lines = faults.to_string();
    assert_eq!(lines.lines().count(), named.len());
    assert!(
        lines.starts_with("CLAIMS_TABLE: is required and not set\n"),
        "{lines}"
    );
}

#[test]
fn a_target_is_https_unless_it_is_here_or_that_is_allowed() {
    let url = |url: &str| target_url(url, "TARGET_TOKEN", false);
    for fine in [
        "https://target.example/apply?x=1",
        "http://localhost:1/",
        "http://127.0.0.2/",
        "http://[::1]:8080/",
    ] {
        assert!(url(fine).is_ok(), "{fine}");
    }
    for wrong in [
        "",
        "target.example",
        "http://target.example",
        "http://127.0.0.1.example/",
        "http://localhost.example/",
        "ftp://localhost/",
        "https://user:secret@target.example/",
    ] {
        let found = url(wrong).unwrap_err();
        assert!(!found.contains("secret@"), "{found}");
    }
    assert!(target_url("http://target.example", "TARGET_TOKEN", true).is_ok());
}

#[test]
fn p96_a_switch_is_true_or_false_and_nothing_else() {
    for (value, fine) in [
        ("true", true),
        ("false", true),
        ("", true),
        ("0", false),
        ("1", false),
        ("TRUE", false),
        ("junk", false),
    ] {
        assert_eq!(faults(&[("ALLOW_HTTP", value)]).is_empty(), fine, "{value}");
    }
}

#[test]
fn durations_are_whole_numbers_with_a_unit() {
    let seconds = |text| read::duration(text).map(|read| read.as_secs());
    assert_eq!(seconds("31d"), Ok(31 * 24 * 60 * 60));
    assert_eq!(seconds("12h"), Ok(12 * 60 * 60));
    assert_eq!(seconds("30m"), Ok(1800));
    assert_eq!(seconds("90s"), Ok(90));
    assert_eq!(seconds("0s"), Ok(0));
    for wrong in [
        "",
        "s",
        "90",
        "-1s",
        "+1s",
        "1.5h",
        "1 h",
        "1w",
        "1é",
        "99999999999999999999d",
        "999999999999999999d",
    ] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn no_fault_and_no_debug_quotes_a_secret() {
    let secret = "s3cr3t-value";
    for variables in [
        [
            ("TARGET_TOKEN", "s3cr3t-value\u{e9}"),
            ("TARGET_TOKEN_SECRET_ARN", ""),
        ],
        [("TARGET_TOKEN", secret), ("TARGET_TOKEN_SECRET_ARN", "arn")],
        [
            ("SENDERS", r#"{"github":"s3cr3t-value"}"#),
            ("TARGET_TOKEN", ""),
        ],
        [
            ("SENDERS", r#"{"github":{"target":"ftp://s3cr3t-value"}}"#),
            ("TARGET_TOKEN", ""),
        ],
    ] {
        let faults = faults(&variables);
        assert!(!faults.is_empty() && !faults.contains(secret), "{faults}");
    }
    let settings = read(&[
        ("CLAIMS_TABLE", "claims"),
        ("TARGET_URL", "https://target.example"),
        ("TARGET_TOKEN", secret),
        ("SENDERS", r#"{"github":{"secrets":["s3cr3t-value"]}}"#),
    ])
    .unwrap();
    assert!(!format!("{settings:?}").contains(secret));
}

#[test]
fn outside_lambda_that_is_a_fault_too() {
    let faults = Settings::read_in_lambda(|_| None).unwrap_err();
    let named: Vec<_> = faults.0.iter().map(|fault| fault.variable).collect();
    assert_eq!(
        named,
        ["CLAIMS_TABLE", "TARGET_URL", "AWS_LAMBDA_RUNTIME_API"]
    );
}

#[test]
fn a_threads_server_is_there_with_its_url_only() {
    let threads = |variables: &[(&str, &str)]| {
        let mut all = variables.to_vec();
        all.push(("CLAIMS_TABLE", "claims"));
        all.push(("TARGET_URL", "https://target.example/apply"));
        read(&all).unwrap().threads
    };
    assert!(threads(&[("THREADS_URL", ""), ("THREADS_TOKEN_SECRET_ARN", "")]).is_none());
    let url = ("THREADS_URL", "https://threads.example/mcp");
    let settings = threads(&[url, ("THREADS_TOKEN", "s3cr3t-value")]).unwrap();
    assert_eq!(settings.url.as_str(), url.1);
    assert!(matches!(settings.token, TokenSource::Fixed(_)));
    assert!(!format!("{settings:?}").contains("s3cr3t"));
    let settings = threads(&[url, ("THREADS_TOKEN_SECRET_ARN", "arn")]).unwrap();
    assert!(matches!(settings.token, TokenSource::SecretsManager(_)));
    let here = threads(&[("THREADS_URL", "http://127.0.0.1:7070/mcp")]).unwrap();
    assert!(matches!(here.token, TokenSource::None));
    for (variables, fault) in [
        (
            &[("THREADS_TOKEN", "s3cr3t-value")][..],
            "THREADS_TOKEN: is set without THREADS_URL",
        ),
        (
            &[("THREADS_TOKEN_SECRET_ARN", "arn")],
            "THREADS_TOKEN_SECRET_ARN: is set without THREADS_URL",
        ),
        (
            &[
                url,
                ("THREADS_TOKEN", "s3cr3t-value"),
                ("THREADS_TOKEN_SECRET_ARN", "arn"),
            ],
            "THREADS_TOKEN_SECRET_ARN: is set together with THREADS_TOKEN; only one can hold",
        ),
        (
            &[url, ("THREADS_TOKEN", "s3cr3t value")],
            "THREADS_TOKEN: must be visible ASCII characters only",
        ),
        (
            &[("THREADS_URL", "http://threads.example/mcp")],
            "THREADS_URL: must be https (or set ALLOW_HTTP=true)",
        ),
        (
            &[("THREADS_URL", "https://s3cr3t-value@threads.example/mcp")],
            "THREADS_URL: contains credentials; use THREADS_TOKEN",
        ),
    ] {
        assert_eq!(faults(variables), fault);
    }
}
