//! The senders' own libraries (Python's), as judges: what they sign we must verify, and what we sign
//! they must; and a client of agents, whose server we are. They run in a virtual environment of their
//! own; where there is none, the tests that need it are left out and say so.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::{Source, SystemSource};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::deliveries::{Delivery, PUBLIC_URL};

/// How to make the virtual environment.
const MAKE: &str = "python3 -m venv target/peers && target/peers/bin/pip install -r \
                    tests/peers/requirements.txt";

/// The script that speaks to the senders' libraries.
const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/judge.py");

/// The script that is an agent's client.
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/agent.py");

/// The Python with the libraries, or why there is none.
#[derive(Clone, Debug)]
pub struct Peers(Result<Arc<Path>, String>);

impl Peers {
    /// Looks into `target/peers`, above the tests' executable. With `required`, that they are not
    /// there is an error.
    ///
    /// # Errors
    ///
    /// They are required and not there.
    pub fn find(required: bool) -> anyhow::Result<Self> {
        // target/<profile>/deps/it-<hash>
        let test = std::env::current_exe()?;
        let target = test.ancestors().nth(3);
        let python = target
            .context("the test's executable has no directory")?
            .join("peers/bin/python");
        if python.is_file() {
            return Ok(Self(Ok(Arc::from(python))));
        }
        let why = format!("the libraries of senders and agents are not installed ({MAKE})");
        if required {
            bail!("{why}, and FIRSTCLAIM_TEST_PEERS asks for them");
        }
        Ok(Self(Err(why)))
    }

    /// Why the tests that need them are left out.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    fn run(&self, library: &str, arguments: &[&str]) -> anyhow::Result<Peer> {
        let python = match &self.0 {
            Ok(python) => PathBuf::from(&**python),
            Err(why) => bail!("{why}"),
        };
        let mut child = Command::new(python)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the Python of the libraries did not start")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Peer {
            library: library.to_owned(),
            stdin,
            lines: BufReader::new(stdout).lines(),
            child,
        })
    }

    async fn start(&self, command: &str, library: &str, secret: &str) -> anyhow::Result<Peer> {
        let mut peer = self.run(library, &[JUDGE, command, library])?;
        peer.say(&json!({ "secret": secret })).await?;
        Ok(peer)
    }

    /// A client of agents that has started this server and shaken hands with it. `mode` is how:
    /// `legacy` with `initialize`, `auto` as the server can.
    ///
    /// # Errors
    ///
    /// It could not be started, or the two did not understand each other.
    pub async fn agent(&self, mode: &str, server: &[&str]) -> anyhow::Result<Agent> {
        let mut arguments = vec![AGENT, mode];
        arguments.extend(server);
        let mut peer = self.run("mcp", &arguments)?;
        let hello = peer.hear().await?;
        Ok(Agent { hello, peer })
    }

    /// A library that signs with `secret`.
    ///
    /// # Errors
    ///
    /// It could not be started.
    pub async fn signer(&self, library: &str, secret: &str) -> anyhow::Result<Signer> {
        Ok(Signer(self.start("sign", library, secret).await?))
    }

    /// A library that verifies with `secret`, as an HTTP server.
    ///
    /// # Errors
    ///
    /// It could not be started.
    pub async fn judge(&self, library: &str, secret: &str) -> anyhow::Result<Judge> {
        let mut peer = self.start("verify", library, secret).await?;
        let started = peer.hear().await?;
        Ok(Judge {
            url: format!("http://127.0.0.1:{}/hooks", started["port"]),
            library: started["library"].as_str().unwrap_or_default().to_owned(),
            _peer: peer,
        })
    }
}

/// A running script. Killed when it is dropped.
#[derive(Debug)]
struct Peer {
    library: String,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Peer {
    async fn say(&mut self, line: &Value) -> anyhow::Result<()> {
        let line = format!("{line}\n");
        let said = self.stdin.write_all(line.as_bytes()).await;
        said.with_context(|| format!("{} has ended", self.library))
    }

    async fn hear(&mut self) -> anyhow::Result<Value> {
        let line = self.lines.next_line().await?;
        let line = line.with_context(|| {
            let library = &self.library;
            format!("{library} ended without an answer; if it is not installed whole: {MAKE}")
        })?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// A library that signs.
#[derive(Debug)]
pub struct Signer(Peer);

impl Signer {
    /// The delivery with the signature that the library makes now.
    ///
    /// # Errors
    ///
    /// The library failed; its own message is on stderr.
    pub async fn sign(&mut self, delivery: Delivery) -> anyhow::Result<Delivery> {
        let header = |name: &str| delivery.headers.get(name).cloned().unwrap_or_default();
        let asked = json!({
            "url": format!("{PUBLIC_URL}{}", delivery.path),
            "id": header("webhook-id"),
            "timestamp": SystemSource.now().seconds().0,
            "content_type": header("content-type"),
            "body_base64": STANDARD.encode(&delivery.body),
        });
        self.0.say(&asked).await?;
        let headers = self.0.hear().await?;
        let headers = headers.as_object().context("no headers")?;
        Ok(headers.iter().fold(delivery, |signed, (name, value)| {
            signed.with_header(name, value.as_str().unwrap_or_default())
        }))
    }
}

/// A library that verifies, behind an HTTP server.
#[derive(Debug)]
pub struct Judge {
    /// Where to send to.
    pub url: String,
    /// The library's name and version: the key in each of its answers.
    pub library: String,
    _peer: Peer,
}

/// An agent's client, with its server.
#[derive(Debug)]
pub struct Agent {
    /// What the two agreed on: `protocol`, `tools`, `instructions`.
    pub hello: Value,
    peer: Peer,
}

impl Agent {
    /// Begins a tool call.
    ///
    /// # Errors
    ///
    /// The client has ended.
    pub async fn begin(&mut self, tool: &str, arguments: Value) -> anyhow::Result<()> {
        let call = json!({ "tool": tool, "arguments": arguments });
        self.peer.say(&call).await
    }

    /// The next thing that the client hears of its call: progress or the answer.
    ///
    /// # Errors
    ///
    /// The client has ended, or refused what it heard; its own message is on stderr.
    pub async fn hear(&mut self) -> anyhow::Result<Value> {
        self.peer.hear().await
    }

    /// Calls a tool and hears its answer.
    ///
    /// # Errors
    ///
    /// As for [`hear`](Self::hear).
    pub async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        self.begin(tool, arguments).await?;
        loop {
            let heard = self.hear().await?;
            if heard.get("progress").is_none() {
                return Ok(heard);
            }
        }
    }

    /// Kills the client in the middle of whatever it does; its server is left behind.
    ///
    /// # Errors
    ///
    /// It could not be killed.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.peer.child.kill().await?)
    }
}
