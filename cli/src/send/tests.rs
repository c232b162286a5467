use std::collections::BTreeSet;
use std::path::Path;

use firstclaim::clock::EpochMillis;

use super::answer::Answer;
use super::*;

fn sign(scheme: &str, sample: Sample, id: Option<&str>) -> Result<Delivery, Error> {
    let url = format!("{LOCAL}/webhooks/{scheme}");
    let secret = development_secret(scheme);
    let at = EpochMillis(1_794_478_900_000);
    Delivery::sign(scheme, secret, sample, &url, id.map(str::to_owned), &[], at)
}

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn each_scheme_has_samples_and_each_file_ships() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let mut files = BTreeSet::new();
    for folder in std::fs::read_dir(root).unwrap() {
        let folder = folder.unwrap();
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            assert!(file.metadata().unwrap().len() < 8 * 1024, "{file:?}");
            let scheme = folder.file_name().into_string().unwrap();
            files.insert((scheme, file.file_name().into_string().unwrap()));
        }
    }
    let shipped: BTreeSet<_> = shipped::SHIPPED
        .iter()
        .map(|sample| (sample.scheme.to_owned(), format!("{}.http", sample.name)))
        .collect();
    assert_eq!(files, shipped);
    let listed = list();
    for scheme in SCHEMES {
        assert!(
            listed.lines().any(|line| line.starts_with(scheme)),
            "{scheme}"
        );
        assert_ne!(development_secret(scheme), "", "{scheme}");
    }
}

#[test]
fn a_file_is_read_byte_for_byte_in_each_of_its_forms() {
    let (_folder, path) = file(
        "own.http",
        b"X-GitHub-Event: push\r\nHost: x\r\n\r\n{}\r\n\n\n",
    );
    let sample = Sample::find("github", &path).unwrap();
    assert_eq!(
        sample.headers,
        [("x-github-event".to_owned(), "push".to_owned())]
    );
    assert_eq!(sample.body, b"{}\r\n\n\n");

    let recorded = br#"{"headers":{"X-A":"b","Content-Length":"3"},"body_base64":"e30K"}"#;
    let (_folder, path) = file("recorded.json", recorded);
    let sample = Sample::find("github", &path).unwrap();
    assert_eq!(sample.headers, [("x-a".to_owned(), "b".to_owned())]);
    assert_eq!(sample.body, b"{}\n");

    for (body, content_type) in [
        (&b"{\"a\": 1}\n"[..], "application/json"),
        (b"a=1&b=2", "application/x-www-form-urlencoded"),
        (b"\xff", "application/x-www-form-urlencoded"),
    ] {
        let (_folder, path) = file("body", body);
        let sample = Sample::find("github", &path).unwrap();
        assert_eq!(sample.header("content-type"), Some(content_type));
        assert_eq!(sample.body, body);
    }
}

#[test]
fn a_sample_that_is_none_is_told() {
    let error = Sample::find("github", "pusch").unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("pusch") && told.contains("issue_comment"),
        "{told}"
    );
    for bytes in [
        &b"x-github-event: push\n{}"[..],
        b"no header\n\n{}",
        b"a: \xff\n\n{}",
    ] {
        let (_folder, path) = file("own.http", bytes);
        let error = Sample::find("github", &path).unwrap_err();
        assert!(matches!(error, Error::Sample { .. }), "{error:?}");
        assert_eq!(error.exit_code(), 64);
    }
    let folder = tempfile::tempdir().unwrap();
    let error = Sample::find("github", folder.path().to_str().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error:?}");
}

#[test]
fn an_id_is_new_unless_one_is_repeated_and_stands_where_the_sender_has_it() {
    for scheme in SCHEMES {
        let name = shipped::of(scheme).next().unwrap().name;
        let sample = || Sample::find(scheme, name).unwrap();
        let (one, other) = (
            sign(scheme, sample(), None).unwrap(),
            sign(scheme, sample(), None).unwrap(),
        );
        assert_ne!(one.id, other.id, "{scheme}");
        let (one, other) = (
            sign(scheme, sample(), Some("the-id")).unwrap(),
            sign(scheme, sample(), Some("the-id")).unwrap(),
        );
        assert_eq!((&one.headers, &one.body), (&other.headers, &other.body));
        let body = String::from_utf8(one.body).unwrap();
        let in_headers = one.headers.values().any(|value| value == "the-id");
        assert!(in_headers != body.contains("the-id"), "{scheme}: {body}");
        assert!(!body.contains("{{id}}"), "{scheme}: {body}");
    }
}

#[test]
fn an_id_that_can_not_be_set_is_told() {
    let (_folder, path) = file("event.json", br#"{"id":"evt_1"}"#);
    let own = Sample::find("stripe", &path).unwrap();
    assert_eq!(sign("stripe", own.clone(), None).unwrap().id, None);
    for (scheme, sample, id) in [
        ("stripe", own, "evt_2"),
        ("github", Sample::find("github", "push").unwrap(), ""),
        ("github", Sample::find("github", "push").unwrap(), "a\"b"),
        (
            "github",
            Sample::find("github", "push").unwrap(),
            "a\r\nx: y",
        ),
    ] {
        let Err(error) = sign(scheme, sample, Some(id)) else {
            panic!("{id:?}");
        };
        assert!(matches!(error, Error::Id(_)), "{error:?}");
    }
}

#[test]
fn a_secret_that_can_not_sign_is_not_shown() {
    let at = EpochMillis(1_794_478_900_000);
    for (scheme, secret) in [("standard", "whsec_?!never"), ("token", "never\nshown")] {
        let name = shipped::of(scheme).next().unwrap().name;
        let sample = Sample::find(scheme, name).unwrap();
        let Err(error) = Delivery::sign(scheme, secret, sample, LOCAL, None, &[], at) else {
            panic!("{scheme}");
        };
        assert!(matches!(error, Error::Secret(_)), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("never"), "{error:?}");
    }
}

fn answer(number: u64, status: Option<u16>, word: &str, key: Option<&str>) -> Answer {
    Answer {
        number,
        delivery: Some("d-1".to_owned()),
        status,
        answer: word.to_owned(),
        key: key.map(str::to_owned),
        said: key.is_none().then(|| "why\u{1b}[2J".to_owned()),
        ms: number * 9,
        never_sent: false,
        refused: false,
    }
}

fn answers(answers: Vec<Answer>) -> Result<Answers, Error> {
    let sample = Sample::find("github", "push").unwrap();
    Answers::of(sign("github", sample, Some("d-1")).unwrap(), answers)
}

#[test]
fn answers_are_a_table_with_a_count() {
    let answers = answers(vec![
        answer(1, Some(409), "in-flight", None),
        answer(2, Some(202), "replayed", Some("github#1")),
        answer(12, Some(202), "accepted", Some("github#1")),
        answer(13, None, "no answer", None),
    ])
    .unwrap();
    assert_eq!(
        answers.to_text(),
        "github push to http://127.0.0.1:9000/webhooks/github, delivery d-1\n\
         \n \
          #  status  answer      ms  key\n \
          1  409     in-flight    9  why\\u{1b}[2J\n \
          2  202     replayed    18  github#1\n\
         12  202     accepted   108  github#1\n\
         13  -       no answer  117  why\\u{1b}[2J\n\
         \n\
         4 answers: 1 accepted, 1 replayed, 1 in-flight, 1 no answer\n"
    );
    let json = answers.to_json();
    let lines: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[0],
        serde_json::json!({
            "number": 1, "delivery": "d-1", "status": 409, "answer": "in-flight",
            "key": null, "said": "why\u{1b}[2J", "ms": 9,
        })
    );
}

#[test]
fn what_all_answers_say_together_is_the_exit_code() {
    let code = |statuses: &[Option<u16>]| {
        let rows = statuses.iter().map(|status| answer(1, *status, "x", None));
        match answers(rows.collect()) {
            Ok(answers) => answers.exit_code(),
            Err(error) => error.exit_code(),
        }
    };
    assert_eq!(code(&[Some(202), Some(200)]), 0);
    assert_eq!(code(&[Some(409), Some(202)]), 0);
    assert_eq!(code(&[Some(409), Some(409)]), 75);
    assert_eq!(code(&[Some(202), None]), 69);
    assert_eq!(code(&[None, None]), 69);
    assert_eq!(code(&[Some(202), Some(401)]), 1);
    assert_eq!(code(&[None, Some(503)]), 1);
}
