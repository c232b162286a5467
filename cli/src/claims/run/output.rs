//! The command's output: shown as it comes, kept up to a bound.

use std::io::{PipeReader, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::stored::LIMIT;

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

/// One stream of the command, read by a thread of its own: whoever reads what this process shows
/// may be slow, or stopped, and that must not hold up the renewal of the lease.
#[derive(Debug)]
pub(super) struct Captured {
    kept: Arc<Mutex<Kept>>,
    stage: watch::Receiver<Stage>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    total: u64,
}

/// What the thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Showing,
    Ended,
}

impl Captured {
    pub(super) fn start(mut reader: PipeReader, sink: Sink) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let (stages, stage) = watch::channel(Stage::Reading);
        let shared = Arc::clone(&kept);
        std::thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            let mut shown = true;
            loop {
                let count = match reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                let bytes = &buffer[..count];
                lock(&shared).add(bytes);
                stages.send_replace(Stage::Showing);
                // Where nobody reads any more, the command goes on and its output is kept.
                shown = shown && sink.show(bytes).is_ok();
                stages.send_replace(Stage::Reading);
            }
            stages.send_replace(Stage::Ended);
        });
        Self { kept, stage }
    }

    /// Waits until the stream has ended. Processes that the command left behind may keep it open:
    /// what they write later is not kept.
    pub(super) async fn ended(&mut self) {
        let mut listened = Duration::ZERO;
        while listened < LISTENING {
            let before = lock(&self.kept).total;
            let ended = self.stage.wait_for(|stage| *stage == Stage::Ended);
            if tokio::time::timeout(SILENCE, ended).await.is_ok() {
                return;
            }
            // A slow reader of ours is waited for: behind it lies what the command wrote.
            if *self.stage.borrow() == Stage::Showing {
                continue;
            }
            if lock(&self.kept).total == before {
                return;
            }
            listened += SILENCE;
        }
    }

    /// What was kept, and how much there was.
    pub(super) fn kept(&self) -> (Vec<u8>, u64) {
        let kept = lock(&self.kept);
        (kept.bytes.clone(), kept.total)
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

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
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
