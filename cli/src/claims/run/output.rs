//! The command's output: read as it comes, kept up to a bound, and shown as fast as somebody reads.

use std::io::{PipeReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::stored::LIMIT;
use crate::stdout::{Reader, Unwritten, reader};

/// How much of a stream may wait to be shown, in bytes, until the command has to wait too.
const BACKLOG: usize = 1024 * 1024;

/// What a pipe can hold at the most, in bytes: that much may be left in it when the command ends.
const PIPE: usize = 1024 * 1024;

/// How long a stream that a background process keeps open may stay silent after the command's end
/// until it is given up.
const SILENCE: Duration = Duration::from_millis(500);

/// How long such a stream is listened to at the most.
const LISTENING: Duration = Duration::from_secs(5);

/// Where a stream is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sink {
    Stdout,
    Stderr,
}

impl Sink {
    fn show(self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::Stderr => std::io::stderr().lock().write_all(bytes),
        }
    }
}

/// One stream of the command. One thread reads it and another one shows it: whoever reads what this
/// process shows may be slow, or stopped, and that must hold up neither the renewal of the lease nor
/// the end.
#[derive(Debug)]
pub(super) struct Captured {
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    progress: watch::Sender<Progress>,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    /// What was read and not shown yet.
    backlog: Vec<u8>,
    /// How much of it there may be, until the command is held up by its reader.
    bound: usize,
    /// Nothing more is read: the stream has ended, or was given up.
    over: bool,
    /// How showing ended.
    shown: Option<Result<(), Unwritten>>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    total: u64,
}

/// How far a stream has come. Each is a fact of its own: where nobody reads what is shown, showing
/// ends first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// It was read to its end.
    read: bool,
    /// Nothing of it will be shown any more.
    shown: bool,
}

impl Captured {
    pub(super) fn start(reader: PipeReader, sink: Sink) -> Self {
        let (sender, progress) = watch::channel(Progress::default());
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                kept: Kept::default(),
                backlog: Vec::new(),
                bound: BACKLOG,
                over: false,
                shown: None,
            }),
            changed: Condvar::new(),
            progress: sender,
        });
        let (read, show) = (Arc::clone(&shared), Arc::clone(&shared));
        std::thread::spawn(move || read.read(reader));
        std::thread::spawn(move || show.show(sink));
        Self { shared, progress }
    }

    /// Waits until the stream has ended, once the command has. Processes that it left behind may keep
    /// it open: what they write later is neither kept nor shown.
    pub(super) async fn ended(&mut self) {
        // What the command wrote is taken from the pipe, whatever of it is shown by now.
        self.shared.change(|state| state.bound += PIPE);
        let mut listened = Duration::ZERO;
        while listened < LISTENING {
            let before = self.shared.lock().kept.total;
            let ended = self.progress.wait_for(|progress| progress.read);
            if tokio::time::timeout(SILENCE, ended).await.is_ok() {
                return;
            }
            if self.shared.lock().kept.total == before {
                return;
            }
            listened += SILENCE;
        }
    }

    /// Nothing more is wanted of the stream.
    pub(super) fn give_up(&self) {
        self.shared.change(|state| state.over = true);
    }

    /// Waits until all that was read is shown.
    pub(super) async fn shown(&mut self) -> Result<(), Unwritten> {
        // The sender lives in `self`: the wait can't end by its going.
        let _ = self.progress.wait_for(|progress| progress.shown).await;
        self.shared.lock().shown.take().unwrap_or(Ok(()))
    }

    /// What was kept, and how much there was.
    pub(super) fn kept(&self) -> (Vec<u8>, u64) {
        let state = self.shared.lock();
        (state.kept.bytes.clone(), state.kept.total)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let state = self.changed.wait(state);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, mut reader: PipeReader) {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut state = self.lock();
            while !state.over && state.backlog.len() >= state.bound {
                state = self.wait(state);
            }
            if state.over {
                // Given up: its end was not read.
                return;
            }
            state.kept.add(&buffer[..count]);
            // Where nobody reads any more, the command goes on and its output is kept to its end.
            if state.shown.is_none() {
                state.backlog.extend_from_slice(&buffer[..count]);
            }
            self.changed.notify_all();
        }
        self.change(|state| state.over = true);
        self.progress.send_modify(|progress| progress.read = true);
    }

    fn show(&self, sink: Sink) {
        let shown = loop {
            let mut state = self.lock();
            while state.backlog.is_empty() && !state.over {
                state = self.wait(state);
            }
            let bytes = std::mem::take(&mut state.backlog);
            if bytes.is_empty() {
                break Ok(());
            }
            drop(state);
            self.changed.notify_all();
            match reader(sink.show(&bytes)) {
                Ok(Reader::There) => {}
                Ok(Reader::Gone) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.change(|state| {
            state.backlog.clear();
            state.shown = Some(shown);
        });
        self.progress.send_modify(|progress| progress.shown = true);
    }
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let cut = self.total > self.bytes.len() as u64;
        self.total += bytes.len() as u64;
        if cut {
            return;
        }
        let room = LIMIT - self.bytes.len();
        if bytes.len() <= room {
            return self.bytes.extend_from_slice(bytes);
        }
        if room > 0 {
            self.bytes.extend_from_slice(&bytes[..room]);
            // Cut at a character's border, so that a text stays one.
            if let Err(error) = std::str::from_utf8(&self.bytes)
                && error.error_len().is_none()
            {
                self.bytes.truncate(error.valid_up_to());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_cut_at_a_characters_border() {
        let mut kept = Kept::default();
        for _ in 0..LIMIT {
            kept.add("\u{e9}\u{e9}x".as_bytes());
        }
        assert!(kept.bytes.len() <= LIMIT && kept.bytes.len() > LIMIT - 4);
        assert!(std::str::from_utf8(&kept.bytes).is_ok());
        assert_eq!(kept.total, LIMIT as u64 * 5);
    }
}
