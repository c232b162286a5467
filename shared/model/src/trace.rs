//! A counterexample for people: each step, and the item after it.

use std::fmt::Write as _;

use firstclaim::Record;
use firstclaim::record::Data;
use stateright::Path;

use crate::machine::Action;
use crate::state::State;

/// The steps that lead to a discovery, one a line.
pub(crate) fn of(path: Path<State, Action>) -> String {
    let mut text = String::new();
    let mut did = None;
    for (state, next) in path.into_vec() {
        let item = state.item.as_deref().map_or("no item".to_owned(), item);
        if let Some(action) = did {
            // Writing to a string can't fail.
            let _ = writeln!(text, "    t={} {}: {item}", state.now, step(action));
        }
        did = next;
    }
    text
}

fn step(action: Action) -> String {
    match action {
        Action::Arrive(write) => {
            let owner = write.owner().map_or("nobody", |owner| owner.expose());
            format!("a copy of {owner}'s {} arrives", write.name())
        }
        other => format!("{other:?}"),
    }
}

fn item(record: &Record) -> String {
    let owner = record.owner.as_ref().map_or("none", |owner| owner.expose());
    let data = match &record.data {
        Some(Data::Inline(text)) => text,
        _ => "no data",
    };
    format!(
        "{} owner={owner} attempt={} {:?} lease={:?} expiration={:?} {data}",
        record.status.as_str(),
        record.attempt,
        record.policy,
        record.lease.map(|lease| lease.0),
        record.expiration.map(|end| end.0),
    )
}
