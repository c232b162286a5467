//! What `dev` says at its start: what runs where, and something to try.

use std::fmt::Write;

use super::senders::{DEVELOPMENT, TOKEN};
use super::stack::{Stack, TABLE};
use crate::escape::{Escaped, Quoted};

/// The text, with its last line end.
pub(super) fn text(stack: &Stack) -> String {
    let mut text =
        String::from("firstclaim dev: the same event arrives twice, the work is done once\n\n");
    let mut line = |name: &str, what: String| {
        // Writing to a text can't fail.
        let _ = writeln!(text, "  {name:<14}{what}");
    };
    let webhook = &stack.webhook;
    let names: Vec<String> = stack
        .senders
        .listed
        .iter()
        .map(|(name, _)| Escaped(name).to_string())
        .collect();
    line(
        "webhooks",
        format!("{webhook}/webhooks/{{{}}}", names.join(",")),
    );
    line("operations", format!("{webhook}/operations"));
    match &stack.target {
        Some(address) => line(
            "target",
            format!("{address} (built in: GET shows its effects)"),
        ),
        None => line("target", Escaped(&stack.target_url).to_string()),
    }
    let place = match &stack.data {
        Some(path) => format!("kept in {}", Escaped(&path.to_string_lossy())),
        None => "kept in memory".to_owned(),
    };
    let engine = if stack.embedded {
        format!("embedded, {place}")
    } else {
        "yours".to_owned()
    };
    let endpoint = Escaped(&stack.dynamodb);
    line(
        "DynamoDB",
        format!("{endpoint} table {TABLE} ({engine}; of 50 concurrent claims one won)"),
    );
    line("queue", format!("{} ({place})", stack.queue_url));
    line("dead letters", stack.dead_letter_url.clone());
    if let Some(waiting) = stack.waiting() {
        line("waiting", waiting);
    }
    match &stack.senders.file {
        Some(path) => line(
            "senders",
            format!("from {}", Escaped(&path.to_string_lossy())),
        ),
        None => {
            line(
                "senders",
                "development secrets, known to everybody:".to_owned(),
            );
            for (name, secret) in DEVELOPMENT {
                line("", format!("{name:<9} {secret}"));
            }
        }
    }
    if let Some(sender) = stack.senders.token_sender() {
        let token = if stack.senders.file.is_none() {
            TOKEN
        } else {
            "$TOKEN"
        };
        let _ = write!(
            text,
            "\nTry it twice:\n\n  \
             curl -i {webhook}/webhooks/{} \\\n    \
             -H \"Authorization: Bearer {token}\" \\\n    \
             -H \"Idempotency-Key: order-1\" \\\n    \
             -H \"Content-Type: application/json\" \\\n    \
             -d '{{\"order\": 1}}'\n",
            Escaped(sender)
        );
    }
    let _ = write!(
        text,
        "\nLook whether all of it works:\n\n  \
         firstclaim check --table {TABLE} --endpoint {} \\\n    \
         --queue-url {} \\\n    \
         --dead-letter-url {} \\\n    \
         --target-url {}\n",
        Quoted(&stack.dynamodb),
        stack.queue_url,
        stack.dead_letter_url,
        Quoted(stack.target.as_ref().unwrap_or(&stack.target_url)),
    );
    text.push_str("\nTimes are UTC. Ctrl-C ends it.\n\n");
    text
}
