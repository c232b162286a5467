//! A running `firstclaim dev`, for tests of the commands that go to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The program's path.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_firstclaim");

/// A local stack on free ports that keeps nothing; killed when dropped.
pub(crate) struct Local {
    child: Child,
    /// The webhook endpoint, without a path.
    pub(crate) url: String,
}

impl Local {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["dev", "--in-memory", "--port", "0", "--dynamodb-port", "0"])
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut url = String::new();
        for line in &mut lines {
            let line = line.unwrap();
            if let Some(rest) = line.trim_start().strip_prefix("operations") {
                let address = rest.trim().strip_suffix("/operations");
                address.unwrap().clone_into(&mut url);
            }
            if line.contains("Ctrl-C ends it") {
                break;
            }
        }
        // What it says further must be taken, or it would wait for its reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
