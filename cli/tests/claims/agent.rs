//! An agent: one `firstclaim mcp` and a client that speaks to it in plain JSON-RPC lines.

use std::io::Write;
use std::process::ChildStdin;

use serde_json::{Value, json};

use crate::lab::{Ended, Lab, Running, until};

pub(crate) struct Agent {
    running: Running,
    stdin: ChildStdin,
    last: u64,
}

impl Agent {
    /// Starts a server with these options, and shakes hands.
    pub(crate) fn start(lab: &Lab, options: &[&str]) -> Self {
        let mut agent = Self::silent(lab, options);
        agent.shake_hands("2025-11-25");
        agent
    }

    /// Starts a server, and says nothing yet.
    pub(crate) fn silent(lab: &Lab, options: &[&str]) -> Self {
        let mut arguments = vec!["mcp", "-q"];
        arguments.extend(options);
        let mut running = lab.start(&arguments);
        let stdin = running.stdin();
        Self {
            running,
            stdin,
            last: 0,
        }
    }

    /// Begins as a client of a revision; the server's answer.
    pub(crate) fn shake_hands(&mut self, revision: &str) -> Value {
        let id = self.ask(
            "initialize",
            json!({
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        let answer = self.answer(id)["result"].clone();
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        answer
    }

    /// Writes a line.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Writes bytes as they are.
    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        self.stdin.write_all(bytes).unwrap();
    }

    /// Sends a request; its id.
    pub(crate) fn ask(&mut self, method: &str, parameters: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
        self.say(&request.to_string());
        id
    }

    /// Calls a tool and doesn't wait; the request's id.
    pub(crate) fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        let token = self.last + 1;
        self.ask(
            "tools/call",
            json!({
                "name": tool,
                "arguments": arguments,
                "_meta": { "progressToken": token },
            }),
        )
    }

    /// The request of this id is not wanted any more.
    pub(crate) fn cancel(&mut self, id: u64) {
        let cancelled = json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": id },
        });
        self.say(&cancelled.to_string());
    }

    /// Everything that the server has said. Each line must be a message of the protocol.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let said = self.running.stdout();
        // The last line may still be on its way.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        let messages = whole.lines().map(|line| {
            let message: Value = serde_json::from_str(line).unwrap();
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            message
        });
        messages.collect()
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&self, id: u64) -> Value {
        until("an answer", || {
            self.messages()
                .into_iter()
                .find(|message| message["id"] == id && message.get("method").is_none())
        })
    }

    /// Waits for a word of progress on a request.
    pub(crate) fn progress(&self, id: u64) -> Value {
        until("progress", || {
            self.messages().into_iter().find(|message| {
                message["method"] == "notifications/progress"
                    && message["params"]["progressToken"] == id
            })
        })
    }

    /// Waits for a tool's result: what it says, which stands in it twice.
    pub(crate) fn told(&self, id: u64) -> Value {
        let answer = self.answer(id);
        let result = &answer["result"];
        let structured = result["structuredContent"].clone();
        let text = result["content"][0]["text"].as_str();
        assert!(text.is_some(), "{answer}");
        let text: Value = serde_json::from_str(text.unwrap()).unwrap();
        assert_eq!(text, structured);
        let outcome = structured["outcome"].as_str().unwrap();
        let error = [
            "mismatch",
            "not_yours",
            "superseded",
            "refused",
            "unavailable",
        ]
        .contains(&outcome);
        assert_eq!(result["isError"], error, "{answer}");
        structured
    }

    /// Calls a tool; what it says.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.begin(tool, arguments);
        self.told(id)
    }

    /// Calls a tool; its answer must have this outcome.
    pub(crate) fn get(&mut self, tool: &str, arguments: Value, outcome: &str) -> Value {
        let told = self.call(tool, arguments);
        assert_eq!(told["outcome"], outcome, "{told:#}");
        told
    }

    /// The names of the tools that it offers.
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let id = self.ask("tools/list", json!({}));
        let answer = self.answer(id);
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    /// The client goes without a word, and the server with it.
    pub(crate) fn end(self) -> Ended {
        let Self { running, stdin, .. } = self;
        drop(stdin);
        running.end()
    }

    /// Client and server are killed in the middle of whatever they do.
    pub(crate) fn kill(self) {
        self.running.kill();
    }
}
