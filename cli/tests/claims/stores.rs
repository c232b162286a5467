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
