//! The signals that are passed on to the command.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Came(Signal);

impl Came {
    pub(super) fn signal(self) -> Signal {
        self.0
    }

    /// As a shell says that a process was ended by it.
    pub(super) fn exit_code(self) -> u8 {
        let number = u8::try_from(self.0.as_raw()).unwrap_or_default();
        super::exit::SIGNAL.saturating_add(number)
    }
}

/// What is passed on. The last two stop the command and let it go on.
const PASSED: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
];

/// The signals, which from its making on have no other effect on this process.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let ignored = ignored();
        let wanted = PASSED
            .into_iter()
            // `nohup` and background jobs have some ignored, and so shall the command.
            .filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        let heard = wanted.map(|wanted| {
            let heard = signal(SignalKind::from_raw(wanted.as_raw()))?;
            Ok((wanted, heard))
        });
        Ok(Self(heard.collect::<std::io::Result<_>>()?))
    }

    /// The next signal that asks this process to end. Ctrl-Z stops it meanwhile, as ever.
    pub(super) async fn next_end(&mut self) -> Came {
        loop {
            let came = self.next().await;
            match came.signal() {
                Signal::TSTP => stop_here(),
                Signal::CONT => {}
                _ => return came,
            }
        }
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Came {
        std::future::poll_fn(|context| {
            for (signal, heard) in &mut self.0 {
                if heard.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(Came(*signal));
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Ctrl-Z: stops this process, as it would be without a handler.
pub(super) fn stop_here() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// The signals that this process was started to ignore, as bits; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}
