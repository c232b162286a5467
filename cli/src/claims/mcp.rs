//! `firstclaim mcp`: claims as tools for agents, over the Model Context Protocol on stdin and
//! stdout.
//!
//! The process holds the owner tokens, and no tool shows one: a key that was claimed here is found
//! again by its name. Nothing is renewed in the background: a lease lasts for as long as was asked
//! from the last call that named its key, so that an agent which forgot a claim, or whose client is
//! gone, keeps nobody waiting for longer.

mod advice;
mod allowed;
mod answer;
mod claim;
mod closing;
mod held;
mod look;
mod messages;
mod owner;
mod tools;

use std::time::Duration;

use clap::Args;
use firstclaim::invocation::Invocation;
use firstclaim::{Config, Key, Policy, StoreError};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub use allowed::Allowed;

use super::advice::of as advice_of;
use super::duration::parse;
use super::said::Said;
use super::{Error, FileOrTable, by_hand, key, store};
use crate::check::chain;
use answer::{Answer, Word};
use held::Held;
use messages::Messages;
use tools::Tool;

/// The longest lease that a tool call may ask for: after it, a claim whose agent has gone silent
/// is free in any case.
const LONGEST_LEASE: Duration = Duration::from_secs(60 * 60);

/// The options of `firstclaim mcp`.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("json", |json| json.hide(true)),
    after_help = "\
For the configuration of an agent: the client starts it, speaks to it on stdin and stdout, and ends \
it by closing stdin. What was claimed and not ended lapses then, and somebody else takes over. \
docs/agents.md tells more.

Exit codes: 0 the client has closed the connection, 64 usage, 69 the store can't be used."
)]
pub struct Options {
    /// Accept only keys of this scope (`thread`), or also with this beginning of the id
    /// (`thread#teams/platform/`); it ends where a part of the id does
    #[arg(long, value_name = "PREFIX", value_parser = Allowed::parse)]
    pub scope: Option<Allowed>,
    /// Offer only what changes nothing: get_claim and wait
    #[arg(long)]
    pub read_only: bool,
    /// How long a claim lasts after the last call about it, where the agent asks for no other time
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse)]
    pub lease: Duration,
    /// After a crash or an unknown outcome nobody takes over: a person settles it
    #[arg(long)]
    pub hold: bool,
    /// For how long the finished record answers duplicates
    #[arg(long, value_name = "TIME", default_value = "31d", value_parser = parse)]
    pub window: Duration,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

impl Options {
    fn config(&self) -> Config {
        Config {
            window: self.window,
            longest_lease: LONGEST_LEASE.max(self.lease),
            policy: match self.hold {
                true => Policy::Hold,
                false => Policy::Rerun,
            },
            ..Config::default()
        }
    }
}

/// Serves one client until it closes stdin.
pub(super) async fn serve(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let config = options.config();
    if options.lease < tools::shortest_lease(&config) {
        return Err(Error::Usage(format!(
            "a lease of {} leaves no time to work in; give at least {} s",
            super::duration::about(options.lease),
            tools::shortest_lease(&config).as_secs()
        )));
    }
    let (claims, _) = options.store.open_or_make(config, &environment).await?;
    let (stdin, closed) = closing::until_closed(tokio::io::stdin());
    let server = Server {
        claims,
        allowed: options.scope,
        read_only: options.read_only,
        lease: options.lease,
        origin: by_hand::origin("mcp", &environment),
        said: options.store.said(),
        held: Held::default(),
        closed,
    };
    let messages = Messages::new(stdin, tokio::io::stdout(), server.said);
    let running = match server.serve(messages).await {
        Ok(running) => running,
        // The client has gone before it said anything, which is its right.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(0),
        // What it sent is not repeated: it is not known to be fit for a terminal, or short.
        Err(_) => {
            return Err(Error::Usage(
                "the client did not begin as MCP does, with `initialize` or a request of its own"
                    .to_owned(),
            ));
        }
    };
    match running.waiting().await {
        Ok(_) => Ok(0),
        Err(source) => Err(Error::Io {
            what: "the connection with the client broke".to_owned(),
            source: source.into(),
        }),
    }
}

/// What the tools work with.
#[derive(Debug)]
struct Server {
    claims: FileOrTable,
    allowed: Option<Allowed>,
    read_only: bool,
    /// The lease of claims that ask for none.
    lease: Duration,
    origin: Invocation,
    said: Said,
    held: Held,
    /// Becomes true when the client has closed its side.
    closed: watch::Receiver<bool>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let name = Implementation::new("firstclaim", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(name.with_title("firstclaim: the work is done once"))
            .with_instructions(tools::instructions(self.read_only, self.allowed.as_ref()))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let offered = Tool::offered(self.read_only);
        let tools = offered.map(|tool| tool.definition(self.lease, self.claims.config()));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let called = Tool::offered(self.read_only).find(|tool| tool.name() == request.name);
        let Some(tool) = called else {
            let message = "this server has no tool of that name; tools/list names those it has";
            return Err(ErrorData::invalid_params(message, None));
        };
        let given = serde_json::Value::Object(request.arguments.unwrap_or_default());
        let told = match tool {
            Tool::GetClaim => self.get_claim(given).await,
            Tool::Claim => self.claim(given).await,
            Tool::UpdateActivity => self.update_activity(given).await,
            Tool::Checkpoint => self.checkpoint(given).await,
            Tool::Complete => self.complete(given).await,
            Tool::Release => self.release(given).await,
            Tool::Wait => self.wait(given, &context).await,
        };
        let answer = told.unwrap_or_else(|early| *early);
        Ok(answer.into_result().into())
    }
}

impl Server {
    /// A key as an agent gave it, if this server takes it.
    fn accepted(&self, text: &str) -> Result<Key, Box<Answer>> {
        let key = key(text).map_err(|error| {
            Box::new(Answer {
                problem: Some(error.to_string()),
                ..Answer::new(Word::Refused, advice::MALFORMED_KEY)
            })
        })?;
        match &self.allowed {
            Some(allowed) if !allowed.accepts(&key) => Err(Box::new(Answer {
                key: Some(key.to_string()),
                problem: Some(format!("only keys of {allowed} are accepted")),
                ..Answer::new(Word::Refused, advice::OUT_OF_SCOPE)
            })),
            _ => Ok(key),
        }
    }

    /// The store did not answer: said to the agent without a word of the store's, and on stderr
    /// with its reasons.
    fn unavailable(&self, key: &Key, error: &StoreError, advice: &'static str) -> Answer {
        let settings = advice_of(error);
        self.said
            .important(&settings.clone().unwrap_or_else(|| chain(error)));
        let lasts = match error {
            _ if settings.is_some() => {
                Some("the store can't be asked; a person must correct this server's settings")
            }
            StoreError::NoTable { .. } | StoreError::Denied { .. } | StoreError::Invalid { .. } => {
                Some("the store refuses this server; a person must correct its settings")
            }
            StoreError::Malformed { .. } => {
                Some("the record can't be read; a person must look at it")
            }
            _ => None,
        };
        Answer {
            problem: lasts.map(str::to_owned),
            ..Answer::about(key, Word::Unavailable, advice)
        }
    }
}

/// A tool's arguments.
fn arguments<T: DeserializeOwned>(given: serde_json::Value) -> Result<T, Box<Answer>> {
    serde_json::from_value(given).map_err(|error| {
        Box::new(Answer {
            problem: Some(error.to_string()),
            ..Answer::new(Word::Refused, advice::ARGUMENTS)
        })
    })
}
