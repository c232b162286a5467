//! The end of a run: what is left to be shown once all is recorded, while signals are still heard.

use std::time::Duration;

use super::output::Captured;
use super::signals::Signals;
use super::stored::Stored;
use crate::check::chain;
use crate::claims::Error;
use crate::claims::said::Said;
use crate::stdout::{Unwritten, print, print_json};

/// How long a last word may take to be said where stderr may be stalled too.
const WORD: Duration = Duration::from_millis(200);

/// What is left to be shown, in its order, and the exit code.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) code: u8,
    /// What is to be said.
    pub(super) said: String,
    /// Whether that is said quietly too.
    pub(super) matters: bool,
    /// The command's streams, of which a part may not be shown yet.
    pub(super) streams: Option<(Captured, Captured)>,
    /// A stored result to be replayed.
    pub(super) replay: Option<Stored>,
    /// A line for people, on stdout.
    pub(super) text: Option<String>,
    /// A line for programs.
    pub(super) json: Option<String>,
}

impl Ending {
    /// Something that must be known, and nothing to be shown.
    pub(super) fn important(code: u8, said: String) -> Self {
        Self {
            code,
            said,
            matters: true,
            streams: None,
            replay: None,
            text: None,
            json: None,
        }
    }

    /// Shows it; the exit code. Whoever reads may have stopped: a signal ends the showing.
    pub(super) async fn show(mut self, said: Said, signals: &mut Signals) -> Result<u8, Error> {
        let (code, streams) = (self.code, self.streams.take());
        let showing = async {
            let streams = shown(streams).await;
            // A thread of its own: a write waits for its reader.
            let rest = tokio::task::spawn_blocking(move || self.write(said)).await;
            let rest = rest.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            streams.and(rest)
        };
        let signal = tokio::select! {
            shown = showing => return match (shown, code) {
                (Ok(()), code) => Ok(code),
                (Err(error), 0) => Err(error.into()),
                (Err(error), code) => {
                    said.important(&chain(&error));
                    Ok(code)
                }
            },
            signal = signals.next_end() => signal,
        };
        let word = tokio::task::spawn_blocking(move || {
            said.important("a signal came before all was shown; what is recorded stays so");
        });
        // Unsaid, the exit code tells.
        let _ = tokio::time::timeout(WORD, word).await;
        Ok(signal.exit_code())
    }

    fn write(self, said: Said) -> Result<(), Unwritten> {
        let replayed = self.replay.map_or(Ok(()), |stored| stored.replay());
        let text = self
            .text
            .map_or(Ok(()), |text| print(&format!("{text}\n")).map(drop));
        let json = self.json.map_or(Ok(()), |json| print_json(&json).map(drop));
        match self.matters {
            true => said.important(&self.said),
            false => said.note(&self.said),
        }
        replayed.and(text).and(json)
    }
}

async fn shown(streams: Option<(Captured, Captured)>) -> Result<(), Unwritten> {
    let Some((mut stdout, mut stderr)) = streams else {
        return Ok(());
    };
    let (stdout, stderr) = tokio::join!(stdout.shown(), stderr.shown());
    stdout.and(stderr)
}
