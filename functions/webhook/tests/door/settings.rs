//! The settings: what is read, and that every fault is told, each by its variable, no secret with it.

use std::time::Duration;

use serde_json::{Value, json};
use webhook::Settings;
use webhook::config::{BODY_LIMIT, SendersFrom};

const GOOD: [(&str, &str); 3] = [
    ("CLAIMS_TABLE", "claims"),
    ("QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/1/queue"),
    (
        "SENDERS",
        r#"{"hooks":{"scheme":"github","secrets":["a-long-enough-secret"]}}"#,
    ),
];

fn read(changes: &[(&str, &str)]) -> Result<Settings, String> {
    let lookup = |name: &str| {
        let mut all = changes.iter().chain(&GOOD);
        let (_, value) = all.find(|(known, _)| *known == name)?;
        Some((*value).to_owned())
    };
    Settings::read(lookup).map_err(|faults| faults.to_string())
}

/// The faults of a `SENDERS`.
fn senders(senders: &Value) -> Vec<String> {
    let address = ("PUBLIC_URL", "https://hooks.example.com");
    match read(&[("SENDERS", &senders.to_string()), address]) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.lines().map(str::to_owned).collect(),
    }
}

#[test]
fn the_required_ones_are_enough() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.table, "claims");
    assert!(settings.queue_url.ends_with("/queue"));
    assert!(matches!(settings.senders, SendersFrom::Inline(_)));
    assert_eq!(settings.claims, firstclaim::Config::default());
    assert_eq!(settings.options.body_limit, BODY_LIMIT);
    assert_eq!(settings.options.public_url, None);
}

#[test]
fn a_sender_that_signs_the_address_needs_it() {
    let twilio = json!({"calls": {"scheme": "twilio", "secrets": ["a-long-enough-secret"]}});
    let twilio = ("SENDERS", &*twilio.to_string());
    let faults = read(&[twilio]).unwrap_err();
    let said = "PUBLIC_URL: is not set; sender \"calls\" signs the address that it calls";
    assert_eq!(faults, said);
    read(&[twilio, ("PUBLIC_URL", "https://hooks.example.com")]).unwrap();
    // What is wrong with it is told once.
    let faults = read(&[twilio, ("PUBLIC_URL", "hooks")]).unwrap_err();
    assert_eq!(faults.lines().count(), 1, "{faults}");
}

#[test]
fn all_of_them_are_read() {
    let settings = read(&[
        ("CLAIMS_WINDOW", "12h"),
        ("MIN_REMAINING", "1500ms"),
        ("BODY_LIMIT", "512KB"),
        ("PUBLIC_URL", "https://hooks.example.com/"),
        ("SENDERS", ""),
        (
            "SENDERS_SECRET_ARN",
            "arn:aws:secretsmanager:us-east-1:1:secret:senders",
        ),
    ])
    .unwrap();
    assert_eq!(settings.claims.window, Duration::from_secs(12 * 60 * 60));
    assert_eq!(settings.claims.min_remaining, Duration::from_millis(1500));
    assert_eq!(settings.options.body_limit, 512 * 1024);
    let public_url = settings.options.public_url.as_deref();
    assert_eq!(public_url, Some("https://hooks.example.com"));
    assert!(matches!(settings.senders, SendersFrom::Secret(arn) if arn.ends_with(":senders")));
}

#[test]
fn durations_are_whole_numbers_with_a_unit() {
    for (text, seconds) in [
        ("31d", 31 * 86400),
        ("12h", 43200),
        ("30m", 1800),
        ("2000s", 2000),
    ] {
        let window = read(&[("CLAIMS_WINDOW", text)]).unwrap().claims.window;
        assert_eq!(window, Duration::from_secs(seconds), "{text}");
    }
    for text in [
        "31",
        "d",
        "-1d",
        "1.5h",
        "1 d",
        "1w",
        "31D",
        "99999999999999999999d",
        "99999999d",
    ] {
        let faults = read(&[("CLAIMS_WINDOW", text)]).unwrap_err();
        assert!(
            faults.starts_with("CLAIMS_WINDOW: is no duration"),
            "{text}: {faults}"
        );
    }
}

#[test]
fn p11_a_window_that_a_lease_can_outlive_is_refused() {
    let lease = firstclaim::Config::default().longest_lease.as_secs();
    for text in ["90s", "15m", &format!("{lease}s")] {
        let faults = read(&[("CLAIMS_WINDOW", text)]).unwrap_err();
        assert!(faults.starts_with("CLAIMS_WINDOW: is "), "{text}: {faults}");
    }
    let longer = format!("{}s", lease + 1);
    assert!(read(&[("CLAIMS_WINDOW", &longer)]).is_ok());
}

#[test]
fn each_wrong_variable_is_named() {
    let wrong = [
        ("CLAIMS_TABLE", ""),
        ("QUEUE_URL", ""),
        ("QUEUE_URL", "my-queue"),
        ("MIN_REMAINING", "16m"),
        ("MIN_REMAINING", "some"),
        ("BODY_LIMIT", "0"),
        ("BODY_LIMIT", "6291457"),
        ("BODY_LIMIT", "7MB"),
        ("BODY_LIMIT", "MB"),
        ("BODY_LIMIT", "-1"),
        ("BODY_LIMIT", "18446744073709551615MB"),
        ("PUBLIC_URL", "hooks.example.com"),
        ("PUBLIC_URL", "https://"),
        ("PUBLIC_URL", "https:///path"),
        ("PUBLIC_URL", "https://hooks.example.com/?a=b"),
        ("PUBLIC_URL", "https://hooks.example.com/\r\nx: y"),
        ("SENDERS", ""),
        ("SENDERS_SECRET_ARN", "arn:both"),
    ];
    for (name, value) in wrong {
        let faults = read(&[(name, value)]).unwrap_err();
        assert_eq!(faults.lines().count(), 1, "{faults}");
        assert!(
            faults.starts_with(name.trim_end_matches("_SECRET_ARN")),
            "{name}: {faults}"
        );
    }
}

#[test]
fn senders_that_are_no_object_are_told_without_their_text() {
    for text in [
        "",
        "{",
        "[\"a-secret-in-the-wrong-place\"]",
        "\"a-secret-in-the-wrong-place\"",
        "{}",
        "{\"a\":",
    ] {
        let faults = read(&[("SENDERS", text)]).unwrap_err();
        assert!(faults.starts_with("SENDERS: "), "{text}: {faults}");
        assert!(!faults.contains("wrong-place"), "{faults}");
    }
}

#[test]
fn a44_secrets_are_read_strictly() {
    let with = |scheme: &str, secret: &str| {
        senders(&json!({"s": {"scheme": scheme, "secrets": [secret]}}))
    };
    let fine = "whsec_c3RhbmRhcmQtYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk=";
    let wrong = [
        ("github", "", "is empty"),
        ("github", "fifteen-bytes-x", "has 15 bytes"),
        ("github", "a-long-enough-secret\n", "white space"),
        ("token", "", "is empty"),
        ("token", "short", "has 5 bytes"),
        ("standard", "", "is empty"),
        ("standard", "whsec_", "has 6 bytes"),
        (
            "standard",
            "whsec_AAAAAAAAAAAAAAAAAAAAAA==",
            "decodes to 16 bytes",
        ),
        ("standard", "whsec_not*base64*at*all*", "no strict base64"),
        ("standard", fine.trim_end_matches('='), "no strict base64"),
        (
            "standard",
            "c3RhbmRhcmQtYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk=",
            "starts with none of",
        ),
        ("standard", "raw:short", "bytes"),
        ("standard", "raw:", "bytes"),
        (
            "standard",
            "whsk_t02RY2pCI6uhRniAUKa1NQNt4hQRTCehFzMNLqNQEC4=",
            "the sender's signing key",
        ),
        (
            "standard",
            "whpk_WgmXX7nryKTwI0X1OpsEX9XMXrcpnYBWCnDzx9h34l==",
            "32 bytes",
        ),
        ("gitlab", "", "is empty"),
        ("gitlab", "fifteen-bytes-x", "has 15 bytes"),
        ("stripe", "", "is empty"),
        ("stripe", "whsec_", "has 6 bytes"),
        ("slack", "", "is empty"),
        ("slack", "8f742231b10e8888abcd99yyyzzz85a5 ", "white space"),
        ("shopify", "", "is empty"),
        ("shopify", "short", "has 5 bytes"),
        ("twilio", "", "is empty"),
        // Twilio's documentation signs with it.
        ("twilio", "12345", "has 5 bytes"),
    ];
    for (scheme, secret, said) in wrong {
        let faults = with(scheme, secret);
        assert_eq!(faults.len(), 1, "{secret}: {faults:?}");
        assert!(
            faults[0].starts_with("SENDERS: sender \"s\": secret 1 "),
            "{faults:?}"
        );
        assert!(faults[0].contains(said), "{secret}: {faults:?}");
        assert!(
            secret.len() < 7 || !faults[0].contains(secret),
            "{faults:?}"
        );
    }
    let fine = [
        ("github", "sixteen-bytes-xx"),
        ("token", "sixteen-bytes-xx"),
        ("standard", fine),
        (
            "standard",
            "whpk_WgmXX7nryKTwI0X1OpsEX9XMXrcpnYBWCnDzx9h34lk=",
        ),
        ("standard", "raw:whsec_any-text-of-sixteen-bytes"),
        ("gitlab", "sixteen-bytes-xx"),
        ("stripe", "whsec_sixteen-bytes"),
        ("slack", "8f742231b10e8888abcd99yyyzzz85a5"),
        ("shopify", "shpss_0123456789abcdef"),
        ("twilio", "0123456789abcdef0123456789abcdef"),
    ];
    for (scheme, secret) in fine {
        assert_eq!(with(scheme, secret), [""; 0], "{secret}");
    }
}

#[test]
fn n16_a_pasted_version_is_named() {
    let faults = senders(&json!({"s": {
        "scheme": "standard",
        "secrets": ["v1,whsec_c3RhbmRhcmQtYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk="],
    }}));
    assert!(faults[0].contains("starts with `v1,`"), "{faults:?}");
}

#[test]
fn all_faults_of_all_senders_are_told() {
    let secrets = json!(["a-long-enough-secret"]);
    let faults = senders(&json!({
        "": {"scheme": "github", "secrets": secrets},
        "Upper": {"scheme": "github", "secrets": secrets},
        "queue": {"scheme": "github", "secrets": secrets},
        "none": {"scheme": "github"},
        "odd": {"scheme": "carrier-pigeon", "secrets": secrets},
        "what": {"secrets": secrets},
        "text": "a-secret-in-the-wrong-place",
        "types": {"scheme": "github", "secrets": "a-secret-in-the-wrong-place", "window": 5},
        "fields": {"scheme": "github", "secrets": secrets, "secret": "x", "operation_key": "a[", "window": "1s", "target": "shop"},
        "nulls": {"scheme": "github", "secrets": secrets, "operation_key": null, "window": null, "target": null},
        "whole": {"scheme": "github", "secrets": secrets, "operation_key": "a", "window": "3d", "target": "https://a.example"},
    }));
    let said = [
        ("\"\"", "a name has 1 to 63"),
        ("\"Upper\"", "a name has 1 to 63"),
        ("\"queue\"", "scope of other keys"),
        ("\"none\"", "has no secrets"),
        ("\"odd\"", "scheme \"carrier-pigeon\" is not known"),
        ("\"what\"", "`scheme` is missing"),
        ("\"text\"", "is no JSON object"),
        ("\"types\"", "`secrets` is no list"),
        ("\"types\"", "`window` is no text"),
        ("\"fields\"", "field \"secret\" is not known"),
        ("\"fields\"", "`operation_key` is no JMESPath: at character"),
        ("\"fields\"", "`window` is 1 s"),
        ("\"fields\"", "`target` is no URL"),
    ];
    for (sender, text) in said {
        let told = |fault: &String| fault.contains(sender) && fault.contains(text);
        assert!(faults.iter().any(told), "{sender} {text}: {faults:#?}");
    }
    assert!(!faults.concat().contains("wrong-place"));
    assert!(!faults.concat().contains("\"nulls\"") && !faults.concat().contains("\"whole\""));
}

#[test]
fn two_callers_may_not_share_a_token() {
    let shared = "a-shared-token-0123456789";
    let caller = |secrets: Value| json!({"scheme": "token", "secrets": secrets});
    let faults = senders(&json!({
        "a": caller(json!(["one-of-its-own-0123456789", shared])),
        "b": caller(json!([shared])),
    }));
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].contains("senders \"a\" and \"b\": share a token"),
        "{faults:?}"
    );
    assert!(!faults[0].contains(shared));
    // Two hooks of GitHub may.
    let hook = json!({"scheme": "github", "secrets": [shared]});
    assert_eq!(
        senders(&json!({"a": hook, "b": hook, "c": caller(json!([shared]))})),
        [""; 0]
    );
}

#[test]
fn a_sender_that_is_named_twice_is_refused() {
    let hook = r#"{"scheme":"github","secrets":["a-long-enough-secret"]}"#;
    let faults = read(&[("SENDERS", &format!("{{\"a\":{hook},\"a\":{hook}}}"))]).unwrap_err();
    assert_eq!(faults, "SENDERS: sender \"a\": stands there twice");
}

#[test]
fn debug_hides_the_secrets() {
    let text = format!("{:?}", read(&[]).unwrap());
    assert!(text.contains("hooks"));
    assert!(!text.contains("a-long-enough-secret"));
}
