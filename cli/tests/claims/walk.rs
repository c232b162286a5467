//! The walk-through of the documentation: two agents and a script race for one thread.

use crate::lab::{Lab, Running};

const KEY: &str = "thread#teams/platform/website:42:a1b2c3";

/// What each of them does, woken by the same comment.
fn react(lab: &Lab) -> Running {
    let program = env!("CARGO_BIN_EXE_firstclaim");
    let script = format!(
        r#"
        {program} get -q "{KEY}" > /dev/null || true
        {program} run -q --wait 60s --key "{KEY}" -- sh -c '
            {program} activity -q "$FIRSTCLAIM_KEY" "applying revision a1b2c3"
            {program} get -q --json "$FIRSTCLAIM_KEY" >> seen
            ./deploy-tool apply a1b2c3
        '
        "#
    );
    let mut command = lab.command(&[]);
    let variables: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = std::process::Command::new("sh");
    command
        .args(["-c", &script])
        .env_clear()
        .envs(variables)
        .current_dir(lab.path(""));
    Running::spawn(command)
}

#[test]
fn n10_two_agents_and_a_script_race_for_one_thread() {
    let lab = Lab::new();
    std::fs::write(
        lab.path("deploy-tool"),
        "#!/bin/sh\necho x >> deployments\nsleep 0.2\necho \"deployed $2 as release $$\"\n",
    )
    .unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(lab.path("deploy-tool"), executable).unwrap();

    let racing = [react(&lab), react(&lab), react(&lab)];
    let said: Vec<String> = racing
        .into_iter()
        .map(|one| one.end().with(0).text())
        .collect();
    assert_eq!(lab.lines("deployments"), 1);
    assert!(
        said[0].starts_with("deployed a1b2c3 as release "),
        "{said:?}"
    );
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    let seen: serde_json::Value = serde_json::from_str(&lab.read("seen")).unwrap();
    assert_eq!(seen["activity"], "applying revision a1b2c3");
    assert_eq!(lab.record(KEY)["data"]["stdout"], said[0].as_str());
}
