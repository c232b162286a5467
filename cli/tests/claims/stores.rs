//! Which store is used, and what is said of one that can't be.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use firstclaim_cli::dev::engine::{Engine, Missing, Storage, prepare_table};

use crate::lab::{Lab, until};

#[test]
fn the_default_file_is_made_for_its_user_only() {
    let lab = Lab::new();
    let home = lab.path("home");
    let mut command = lab.command(&["run", "--key", "k", "--", "true"]);
    command.env_remove("FIRSTCLAIM_DATA").env("HOME", &home);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let folder = home.join(".local/state/firstclaim");
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(folder.join("claims.sqlite").is_file());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(folder.to_str().unwrap()), "{told}");
}

#[test]
fn a_folder_or_file_that_can_not_be_used_is_told() {
    let lab = Lab::new();
    std::fs::write(lab.path("taken"), "").unwrap();
    std::fs::create_dir(lab.path("broken")).unwrap();
    std::fs::write(lab.path("broken/claims.sqlite"), "no database at all").unwrap();
    for (data, named) in [("taken", "taken"), ("broken", "broken/claims.sqlite")] {
        let told = lab.run(&["get", "k", "--data", data]).with(69);
        let last = told.stderr.lines().last().unwrap();
        assert!(last.contains(named), "{told:?}");
    }
}

/// Nobody knows what is there, so that nothing is made in its place.
#[test]
fn a_file_that_can_not_be_looked_at_is_no_missing_one() {
    let lab = Lab::new();
    let folder = lab.path("loop");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("claims.sqlite", folder.join("claims.sqlite")).unwrap();
    let touched = || std::fs::metadata(&folder).unwrap().modified().unwrap();
    let before = touched();
    for command in ["get", "claim"] {
        let told = lab.run(&[command, "k", "--data", "loop"]).with(69).stderr;
        assert!(told.contains("it could not be read"), "{command}: {told}");
        assert_eq!(touched(), before, "{command}");
    }
}

/// Whose mode is whose: what is made is for its user only, and a folder that was there stays as it is.
#[test]
fn files_are_for_their_user_only_in_a_folder_for_all() {
    let lab = Lab::new();
    let mode = |path: &str| {
        let metadata = std::fs::metadata(lab.path(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    for folder in ["open", "stack"] {
        std::fs::create_dir(lab.path(folder)).unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(lab.path(folder), all).unwrap();
    }
    // Looked at while a process has it open, so that SQLite's own files are there too.
    let mut running = lab.script("k", &["--data", "open"], "echo ready > ready; read line");
    lab.wait_for("ready");
    for name in std::fs::read_dir(lab.path("open")).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert_eq!(mode(&format!("open/{name}")), 0o600, "{name}");
    }
    assert!(lab.path("open/claims.sqlite-wal").exists());
    assert_eq!(mode("open"), 0o755);
    running.say("");
    running.end().with(0);

    let ports = ["dev", "--port", "0", "--dynamodb-port", "0", "--data"];
    for folder in ["stack", "fresh"] {
        let mut dev = lab.start(&[&ports[..], &[folder]].concat());
        until("the stack", || {
            dev.stdout().contains("Ctrl-C").then_some(())
        });
        for name in ["claims.sqlite", "claims.sqlite-wal", "lock"] {
            assert_eq!(mode(&format!("{folder}/{name}")), 0o600, "{name}");
        }
        assert_eq!(mode(&format!("{folder}/queue")), 0o700);
        assert!(!dev.is_over());
        dev.signal("INT");
        dev.end().with(0);
    }
    assert_eq!((mode("stack"), mode("fresh")), (0o755, 0o700));
}

/// Nothing is made for one who only looks, at a place that may be mistyped.
#[test]
fn whoever_only_looks_makes_no_store() {
    let lab = Lab::new();
    for arguments in [
        &["get", "k"][..],
        &["list"],
        &["settle", "k", "--rerun", "--why", "x", "--yes"],
        &["activity", "k", "on", "--owner", "o"],
        &["checkpoint", "k", "n", "1", "--owner", "o"],
        &["complete", "k", "--owner", "o"],
        &["fail", "k", "--owner", "o"],
        &["release", "k", "--owner", "o"],
        &["claim", "k", "--owner", "o"],
    ] {
        let told = lab.run(&[arguments, &["--data", "mistyped"]].concat());
        let told = told.with(69).stderr;
        assert!(told.contains("there is no store at"), "{told}");
        assert!(told.contains("mistyped/claims.sqlite"), "{told}");
    }
    assert!(!lab.path("mistyped").exists());
    let watch = lab.start(&["watch", "k", "--data", "mistyped"]);
    watch.wait_for_stderr("waiting for it");
    watch.signal("INT");
    watch.end().with(0);
    assert!(!lab.path("mistyped").exists());
}

#[test]
fn a_file_that_is_no_store_is_told_and_not_touched() {
    let lab = Lab::new();
    let file = |kind: &str| lab.path(kind).join("claims.sqlite");
    for kind in ["empty", "text", "foreign", "other"] {
        std::fs::create_dir(lab.path(kind)).unwrap();
    }
    std::fs::write(file("empty"), "").unwrap();
    std::fs::write(
        file("text"),
        "no database at all, and longer than its beginning",
    )
    .unwrap();
    let foreign = rusqlite::Connection::open(file("foreign")).unwrap();
    let table = "CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine');";
    foreign.execute_batch(table).unwrap();
    drop(foreign);
    // Another table of the same engine.
    let path = file("other");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let engine = Engine::start(Storage::File(path)).await.unwrap();
        let client = engine.client().await;
        prepare_table(&client, "orders", Missing::Create)
            .await
            .unwrap();
        engine.stop().await;
    });
    for (kind, part) in [
        ("empty", "it is empty"),
        ("text", "no SQLite database"),
        ("foreign", "of another program"),
        ("other", "no table firstclaim in it"),
    ] {
        let before = std::fs::read(file(kind)).unwrap();
        for arguments in [&["get", "k"][..], &["claim", "k"]] {
            let told = lab.run(&[arguments, &["--data", kind]].concat());
            let told = told.with(69).stderr;
            assert!(told.contains(part), "{told}");
            assert!(told.contains(&format!("{kind}/claims.sqlite")), "{told}");
            assert!(!told.contains("Region"), "{told}");
        }
        assert!(std::fs::read(file(kind)).unwrap() == before, "{kind}");
    }
}

#[test]
fn missing_credentials_are_no_store_that_does_not_answer() {
    let lab = Lab::new();
    for arguments in [
        &["get", "k", "--table", "t"][..],
        &["list", "--table", "t"],
        &["claim", "k", "--table", "t"],
        &["run", "--key", "k", "--table", "t", "--", "true"],
    ] {
        let mut command = lab.command(arguments);
        command
            .env("AWS_REGION", "eu-west-1")
            .env("AWS_EC2_METADATA_DISABLED", "true");
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{told}");
        assert!(told.contains("set AWS_REGION and credentials"), "{told}");
        assert!(!told.contains("did not answer"), "{told}");
        assert!(!told.contains(r"\n"), "{told}");
    }
}

#[test]
fn a_store_that_does_not_answer_runs_nothing() {
    let lab = Lab::new();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for arguments in [
        &["get", "k"][..],
        &["list"],
        &["watch", "k"],
        &["claim", "k"],
        &["complete", "k", "--owner", "o"],
        &["settle", "k", "--rerun", "--why", "x", "--yes"],
        &[
            "run",
            "--key",
            "k",
            "--endpoint",
            &url,
            "--",
            "touch",
            "ran",
        ],
    ] {
        let at = arguments.iter().position(|argument| *argument == "--");
        let mut arguments = arguments.to_vec();
        if at.is_none() {
            arguments.extend(["--endpoint", &url]);
        }
        let told = lab.run(&arguments).with(69);
        assert!(told.stderr.contains("did not answer"), "{told:?}");
        assert!(told.stderr.contains(&url), "{told:?}");
    }
    assert!(!lab.path("ran").exists());
}

#[test]
fn a_table_is_used_by_its_name_and_a_missing_one_is_told() {
    let lab = Lab::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = runtime.block_on(Engine::start(Storage::Memory)).unwrap();
    let client = runtime.block_on(engine.client());
    runtime
        .block_on(prepare_table(&client, "claims", Missing::Create))
        .unwrap();
    let url = engine.endpoint();
    let table = ["--table", "claims", "--endpoint", &url];
    let script = "echo once; printf %s \"$FIRSTCLAIM_TABLE $FIRSTCLAIM_ENDPOINT $FIRSTCLAIM_DATA\"";
    for _ in 0..2 {
        let ended = lab.script("k", &table, script).end().with(0);
        assert_eq!(ended.text(), format!("once\nclaims {url} "));
        assert!(
            ended.stderr.contains(&format!("table claims at {url}")),
            "{ended:?}"
        );
    }
    let missing = lab
        .run(&["get", "k", "--table", "none", "--endpoint", &url])
        .with(69);
    assert!(
        missing.stderr.contains("table none does not exist"),
        "{missing:?}"
    );
}

/// The local stack's own file is the same kind of store: an operator looks into it while it runs.
#[test]
fn n10_what_the_local_stack_recorded_is_seen_and_replayed() {
    let lab = Lab::new();
    let mut dev = lab.start(&[
        "dev",
        "--port",
        "0",
        "--dynamodb-port",
        "0",
        "--data",
        "stack",
    ]);
    let address = until("its address", || {
        let text = dev.stdout();
        let (_, behind) = text.split_once("webhooks      http://")?;
        text.contains("Ctrl-C")
            .then(|| behind.split('/').next().unwrap().to_owned())
    });
    let deliver = || {
        let body = "{\"order\": 1}";
        let request = format!(
            "POST /webhooks/token HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: \
             Bearer firstclaim-development-token\r\nIdempotency-Key: order-1\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(answer.contains("202"), "{answer}");
    };
    // A command was first: the webhook's event is a duplicate, and has no effect. What the command
    // printed is no answer of a target.
    let options = ["--data", "stack"];
    lab.script("token#order-1", &options, "echo deployed")
        .end()
        .with(0);
    deliver();
    until("the duplicate", || {
        dev.stdout().contains("result omitted").then_some(())
    });
    assert!(!dev.stdout().contains("effect 1"), "{}", dev.stdout());
    let listed = lab
        .run(&["list", "--data", "stack", "--scope", "token", "-q"])
        .with(0);
    assert!(
        listed.text().contains("token#order-1  completed"),
        "{listed:?}"
    );
    assert!(!dev.is_over());
    dev.signal("INT");
    dev.end().with(0);
}
