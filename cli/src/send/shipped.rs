//! The samples that ship with the program: deliveries in the shape of each sender's, with invented
//! names, ids and texts.

/// A sample that ships with the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shipped {
    pub(super) scheme: &'static str,
    pub(super) name: &'static str,
    /// What it is, for people.
    pub(super) about: &'static str,
    /// Headers, an empty line, and the body.
    pub(super) bytes: &'static [u8],
}

macro_rules! shipped {
    ($scheme:literal, $name:literal, $about:literal) => {
        Shipped {
            scheme: $scheme,
            name: $name,
            about: $about,
            bytes: include_bytes!(concat!("../../samples/", $scheme, "/", $name, ".http")),
        }
    };
}

/// All of them, scheme by scheme.
pub(super) const SHIPPED: &[Shipped] = &[
    shipped!("github", "ping", "what GitHub sends when a hook is made"),
    shipped!("github", "push", "two commits to a branch"),
    shipped!(
        "github",
        "push-form",
        "the same as a form, GitHub's default content type"
    ),
    shipped!("github", "issue_comment", "a comment on an issue"),
    shipped!("github", "pull_request", "a pull request is opened"),
    shipped!("github", "workflow_run", "a workflow run has ended"),
    shipped!("gitlab", "push", "two commits to a branch"),
    shipped!("gitlab", "note", "a comment on a merge request"),
    shipped!("gitlab", "merge_request", "a merge request is opened"),
    shipped!("stripe", "charge.succeeded", "a payment"),
    shipped!("stripe", "payout.paid", "a payout, of a connected account"),
    shipped!("slack", "message", "a message that mentions the app"),
    shipped!("slack", "slash_command", "a command, as a form"),
    shipped!(
        "slack",
        "block_actions",
        "a button is pressed: JSON in a form"
    ),
    shipped!(
        "slack",
        "url_verification",
        "Slack asks whether the address is ours"
    ),
    shipped!("shopify", "orders-create", "an order"),
    shipped!("shopify", "app-uninstalled", "a shop removes the app"),
    shipped!(
        "standard",
        "user.created",
        "Standard Webhooks, as Svix sends them"
    ),
    shipped!(
        "twilio",
        "message-status",
        "a message was delivered, as a form"
    ),
    shipped!("twilio", "voice-status", "a call has ended"),
    shipped!(
        "twilio",
        "event-streams",
        "JSON, whose digest goes into the address"
    ),
    shipped!(
        "token",
        "operation",
        "a caller with a token and a key of its own"
    ),
];

/// The samples of a scheme.
pub(super) fn of(scheme: &str) -> impl Iterator<Item = &'static Shipped> {
    SHIPPED.iter().filter(move |sample| sample.scheme == scheme)
}
