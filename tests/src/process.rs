//! The real binaries as processes: started with a clear environment, asked through the Runtime
//! API, killed without warning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::lab::Log;
use crate::runtime_api::{Ended, RuntimeApi, Started};

/// How long a process may take until it asks for work.
const START_LIMIT: Duration = Duration::from_secs(20);

/// What an invocation's deadline leaves unless a test says otherwise.
const TIME: Duration = Duration::from_secs(20);

/// How long after its deadline an invocation is given up by the test itself.
const AFTER_DEADLINE: Duration = Duration::from_secs(10);

/// Where the functions' binaries are.
#[derive(Clone, Debug)]
pub struct Binaries(Arc<Path>);

impl Binaries {
    /// The binaries in `dir`, or those that were built beside this test's executable.
    ///
    /// # Errors
    ///
    /// The test's executable has no directory above it.
    pub fn find(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let dir = match dir {
            Some(dir) => dir,
            None => {
                // target/<profile>/deps/it-<hash>
                let test = std::env::current_exe()?;
                let profile = test.ancestors().nth(2);
                profile
                    .context("the test's executable has no directory")?
                    .to_owned()
            }
        };
        Ok(Self(Arc::from(dir)))
    }

    /// A function's binary.
    ///
    /// # Errors
    ///
    /// It is missing; the message says how to build it.
    pub fn path(&self, function: &str) -> anyhow::Result<PathBuf> {
        let binary = self.0.join(function);
        if !binary.is_file() {
            bail!(
                "{} is missing: run `cargo build -p webhook -p queue`, or name the directory with \
                 both binaries in FIRSTCLAIM_TEST_BIN_DIR",
                binary.display()
            );
        }
        Ok(binary)
    }
}

/// The command line, which was built beside this test's executable.
///
/// # Errors
///
/// It is missing; the message says how to build it.
pub fn command_line() -> anyhow::Result<PathBuf> {
    let binary = Binaries::find(None)?.0.join("firstclaim");
    if !binary.is_file() {
        bail!(
            "{} is missing: run `cargo build -p firstclaim-cli`",
            binary.display()
        );
    }
    Ok(binary)
}

/// A running function. Killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    api: RuntimeApi,
    child: Child,
    log: Log,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts `binary` with these variables and nothing else of the environment, and waits until
    /// it asks for work.
    ///
    /// # Errors
    ///
    /// It could not be started, ended, or did not ask in time.
    pub async fn start(
        name: &str,
        binary: &Path,
        variables: &BTreeMap<String, String>,
        log: Log,
    ) -> anyhow::Result<Self> {
        let mut process = Self::spawn(name, binary, variables, log).await?;
        let started = tokio::select! {
            started = process.api.started() => started,
            status = process.child.wait() => bail!("{name} ended at its start: {:?}", status?),
            () = tokio::time::sleep(START_LIMIT) => bail!("{name} did not ask for work"),
        };
        match started {
            Started::Ready => Ok(process),
            Started::Failed(error) => bail!("{name} reported that it can't start: {error}"),
            Started::No => bail!("{name} was not heard of"),
        }
    }

    /// Starts `binary`, which must refuse to run: waits for its end.
    ///
    /// # Errors
    ///
    /// It asked for work all the same, or did not end in time.
    pub async fn refused(
        name: &str,
        binary: &Path,
        variables: &BTreeMap<String, String>,
        log: Log,
    ) -> anyhow::Result<Option<i32>> {
        let mut process = Self::spawn(name, binary, variables, log).await?;
        let status = tokio::select! {
            status = process.child.wait() => status?,
            started = process.api.started() => match started {
                Started::Failed(_) => process.child.wait().await?,
                Started::Ready | Started::No => bail!("{name} asked for work all the same"),
            },
            () = tokio::time::sleep(START_LIMIT) => bail!("{name} did not end"),
        };
        process.end_of_output().await;
        Ok(status.code())
    }

    async fn spawn(
        name: &str,
        binary: &Path,
        variables: &BTreeMap<String, String>,
        log: Log,
    ) -> anyhow::Result<Self> {
        let api = RuntimeApi::start().await?;
        log.line(
            name,
            &format!("$ env -i {} {}", shown(variables), binary.display()),
        );
        let mut child = Command::new(binary)
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", api.authority())
            .env("AWS_LAMBDA_FUNCTION_NAME", name)
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", binary.display()))?;
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(tokio::spawn(keep(stdout, name.to_owned(), log.clone())));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(tokio::spawn(keep(stderr, name.to_owned(), log.clone())));
        }
        Ok(Self {
            name: name.to_owned(),
            api,
            child,
            log,
            readers,
        })
    }

    /// Hands over an event and returns the response as JSON.
    ///
    /// # Errors
    ///
    /// The invocation ended with an error, or the process did.
    pub async fn invoke(&self, event: &Value) -> anyhow::Result<Value> {
        self.invoke_within(event, TIME).await
    }

    /// The same with another time until the deadline.
    ///
    /// # Errors
    ///
    /// The invocation ended with an error, or the process did.
    pub async fn invoke_within(&self, event: &Value, time: Duration) -> anyhow::Result<Value> {
        match self
            .invoke_raw(event.to_string().into_bytes(), time)
            .await?
        {
            Ended::Response(body) => {
                serde_json::from_slice(&body).context("the response is no JSON")
            }
            Ended::Error(body) => {
                bail!("the invocation failed: {}", String::from_utf8_lossy(&body))
            }
            Ended::Killed => bail!("{} was gone before it answered", self.name),
        }
    }

    /// Hands over an event's bytes and returns how the invocation ended, whatever that is.
    ///
    /// # Errors
    ///
    /// It did not end within its time and ten seconds.
    pub async fn invoke_raw(&self, event: Vec<u8>, time: Duration) -> anyhow::Result<Ended> {
        let invoked = self.api.invoke(event, time);
        tokio::time::timeout(time + AFTER_DEADLINE, invoked)
            .await
            .with_context(|| format!("{} did not answer", self.name))
    }

    /// Kills the process (SIGKILL): nothing of it can clean up.
    ///
    /// # Errors
    ///
    /// It had ended already.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.start_kill()?;
        self.child.wait().await?;
        self.api.killed();
        Ok(())
    }

    /// Suspends the process (SIGSTOP), as a machine that pages or a container that is frozen does.
    ///
    /// # Errors
    ///
    /// It had ended already.
    pub async fn suspend(&self) -> anyhow::Result<()> {
        self.signal("STOP").await
    }

    /// Lets a suspended process go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// It had ended already.
    pub async fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT").await
    }

    async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let id = self.child.id().context("it has ended")?;
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(id.to_string())
            .status()
            .await
            .context("no `kill`")?;
        if !sent.success() {
            bail!("{} could not be sent to {}", name, self.name);
        }
        Ok(())
    }

    /// Its resident memory in bytes, where the system tells (Linux).
    #[must_use]
    pub fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    ///
    /// The system does not know the process.
    pub fn alive(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// The memory that it holds, in KiB.
    ///
    /// # Errors
    ///
    /// It has ended, or the system does not tell.
    pub fn resident_kib(&self) -> anyhow::Result<u64> {
        let id = self.child.id().context("it has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        Ok(kib.context("no VmRSS")?.trim().parse()?)
    }

    /// Everything that this process and the other ones of the test have said.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    async fn end_of_output(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader ends when the process's output does.
            let _ = reader.await;
        }
    }
}

async fn keep(output: impl AsyncRead + Unpin, name: String, log: Log) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        log.line(&name, &line);
    }
}

fn shown(variables: &BTreeMap<String, String>) -> String {
    let pairs = variables
        .iter()
        .map(|(name, value)| format!("{name}='{value}'"));
    pairs.collect::<Vec<_>>().join(" ")
}
