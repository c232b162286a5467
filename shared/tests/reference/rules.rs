//! The reference: what callers may see, in plain rules. Times are in milliseconds.

/// The window of every claim.
pub(crate) const WINDOW_MS: u32 = 8000;

/// How much earlier than its lease an owner stops.
pub(crate) const GRACE_MS: u32 = 500;

/// After how many silent attempts nobody takes over.
pub(crate) const SILENT_LIMIT: u32 = 2;

/// One key, as everybody should find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) stage: Stage,
    pub(crate) attempt: u32,
    /// The last second of the window.
    pub(crate) ends: i64,
    pub(crate) hold: bool,
    pub(crate) payload: Option<u8>,
    /// The last attempt that said how it ended.
    pub(crate) told: u32,
}

/// Where the operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Somebody has it, by the number of the claim.
    Owned {
        by: usize,
        lease: i64,
    },
    Released,
    Suspended,
    Completed(u8),
    Failed,
}

/// What a request for a key gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Acquired { attempt: u32 },
    InProgress { rest_ms: i64 },
    Held,
    Mismatch,
    Replayed(u8),
    ReplayedFailure,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) number: usize,
    pub(crate) payload: Option<u8>,
    pub(crate) hold: bool,
    pub(crate) lease: i64,
}

/// The window that starts now ends at this second, and behind the lease.
pub(crate) fn window_end(now: i64, lease: i64) -> i64 {
    ((now + i64::from(WINDOW_MS)) / 1000).max(lease / 1000 + 1)
}

impl Entry {
    pub(crate) fn in_window(&self, now: i64) -> bool {
        self.ends >= now / 1000
    }

    pub(crate) fn running(&self, now: i64) -> bool {
        matches!(self.stage, Stage::Owned { lease, .. } if lease > now)
    }

    pub(crate) fn owned_by(&self, number: usize) -> bool {
        matches!(self.stage, Stage::Owned { by, .. } if by == number)
    }

    pub(crate) fn bound_elsewhere(&self, payload: Option<u8>) -> bool {
        matches!((self.payload, payload), (Some(one), Some(other)) if one != other)
    }
}

/// What a request gets now, and what the key is afterwards.
pub(crate) fn ask(entry: Option<&Entry>, request: Request, now: i64) -> (Answer, Entry) {
    let Request {
        number,
        payload,
        hold,
        lease,
    } = request;
    let stage = Stage::Owned { by: number, lease };
    let ends = window_end(now, lease);
    let Some(entry) = entry.filter(|entry| entry.in_window(now) || entry.running(now)) else {
        let entry = Entry {
            stage,
            attempt: 1,
            ends,
            hold,
            payload,
            told: 0,
        };
        return (Answer::Acquired { attempt: 1 }, entry);
    };
    let same = |answer| (answer, entry.clone());
    if entry.bound_elsewhere(payload) {
        return same(Answer::Mismatch);
    }
    match entry.stage {
        Stage::Completed(value) => return same(Answer::Replayed(value)),
        Stage::Failed => return same(Answer::ReplayedFailure),
        Stage::Owned { lease, .. } if lease > now => {
            let rest_ms = lease - now;
            return same(Answer::InProgress { rest_ms });
        }
        Stage::Owned { .. } | Stage::Suspended => {
            let silent = entry.attempt - entry.told >= SILENT_LIMIT;
            if hold || entry.hold || silent {
                return same(Answer::Held);
            }
        }
        Stage::Released => {}
    }
    let attempt = entry.attempt + 1;
    let taken = Entry {
        stage,
        attempt,
        ends: entry.ends.max(ends),
        hold: hold || entry.hold,
        payload: entry.payload.or(payload),
        told: entry.told,
    };
    (Answer::Acquired { attempt }, taken)
}
