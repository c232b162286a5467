//! GitHub's operation keys: for each event the subject, its version, and what changed.
//!
//! Two hooks, or a hook and an App, send one event as two deliveries with different bodies. A rule
//! names what is the same in both and in no other event, as far as the body tells. It is silent, and
//! lasts the whole window, to take two events for one; so that an action which does not move the
//! subject's `updated_at` (pinning, locking, a re-request) has no rule here.
//!
//! What remains: `updated_at` counts whole seconds. A label that is put on, taken off and put on
//! again within one gives the third event the key of the first, and nothing in the body tells those
//! two apart. Where that matters, an `operation_key` that names nothing (`` `null` ``) makes each
//! delivery an operation of its own, at the price that two hooks make two of one event.

use crate::sender::rules::Part::{At, Digest, Is};
use crate::sender::rules::{Kind, Rule, on};

/// The events that have rules.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "push",
        must: &["/ref", "/before", "/after", "/repository/id"],
        without: &[],
        // A branch that is created or deleted has zeros on one side, and so no rule: deleting it
        // twice is two operations.
        rules: &[on(
            &[""],
            &[
                At("/ref"),
                At("/before"),
                At("/after"),
                At("/repository/pushed_at"),
            ],
        )],
    },
    Kind {
        name: "issues",
        must: &["/issue/id"],
        without: &["/comment"],
        rules: &[
            on(
                &["opened", "closed", "reopened", "deleted"],
                &[At("/issue/id"), At("/issue/updated_at")],
            ),
            on(
                &["edited"],
                &[At("/issue/id"), At("/issue/updated_at"), Digest("/changes")],
            ),
            on(
                &["assigned", "unassigned"],
                &[At("/issue/id"), At("/issue/updated_at"), At("/assignee/id")],
            ),
            on(
                &["labeled", "unlabeled"],
                &[At("/issue/id"), At("/issue/updated_at"), At("/label/id")],
            ),
            on(
                &["milestoned", "demilestoned"],
                &[
                    At("/issue/id"),
                    At("/issue/updated_at"),
                    At("/milestone/id"),
                ],
            ),
        ],
    },
    Kind {
        name: "issue_comment",
        must: &["/issue/id", "/comment/id"],
        without: &[],
        rules: COMMENT,
    },
    Kind {
        name: "pull_request",
        must: &["/pull_request/id"],
        without: &["/review", "/comment", "/thread"],
        rules: &[
            on(
                &[
                    "opened",
                    "closed",
                    "reopened",
                    "ready_for_review",
                    "converted_to_draft",
                ],
                &[At("/pull_request/id"), At("/pull_request/updated_at")],
            ),
            on(
                &["edited"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    Digest("/changes"),
                ],
            ),
            on(
                &["synchronize"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    At("/before"),
                    At("/after"),
                ],
            ),
            on(
                &["assigned", "unassigned"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    At("/assignee/id"),
                ],
            ),
            on(
                &["labeled", "unlabeled"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    At("/label/id"),
                ],
            ),
            on(
                &["milestoned", "demilestoned"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    At("/milestone/id"),
                ],
            ),
            on(
                &["review_requested", "review_request_removed"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    Is("user"),
                    At("/requested_reviewer/id"),
                ],
            ),
            on(
                &["review_requested", "review_request_removed"],
                &[
                    At("/pull_request/id"),
                    At("/pull_request/updated_at"),
                    Is("team"),
                    At("/requested_team/id"),
                ],
            ),
        ],
    },
    Kind {
        name: "pull_request_review",
        must: &["/pull_request/id", "/review/id"],
        without: &["/comment"],
        rules: &[
            // A review is submitted once and dismissed once.
            on(
                &["submitted", "dismissed"],
                &[At("/review/id"), At("/review/submitted_at")],
            ),
            on(
                &["edited"],
                &[
                    At("/review/id"),
                    At("/review/updated_at"),
                    Digest("/changes"),
                ],
            ),
        ],
    },
    Kind {
        name: "pull_request_review_comment",
        must: &["/pull_request/id", "/comment/id"],
        without: &["/review"],
        rules: COMMENT,
    },
    Kind {
        name: "commit_comment",
        must: &["/comment/id", "/comment/commit_id"],
        without: &["/issue", "/pull_request"],
        rules: COMMENT,
    },
    Kind {
        name: "discussion",
        must: &["/discussion/id"],
        without: &["/comment"],
        rules: &[
            on(
                &["created", "closed", "reopened", "deleted"],
                &[At("/discussion/id"), At("/discussion/updated_at")],
            ),
            on(
                &["edited"],
                &[
                    At("/discussion/id"),
                    At("/discussion/updated_at"),
                    Digest("/changes"),
                ],
            ),
        ],
    },
    Kind {
        name: "discussion_comment",
        must: &["/discussion/id", "/comment/id"],
        without: &[],
        rules: COMMENT,
    },
    Kind {
        name: "release",
        must: &["/release/id"],
        without: &[],
        rules: &[
            on(
                &[
                    "created",
                    "published",
                    "unpublished",
                    "prereleased",
                    "released",
                    "deleted",
                ],
                &[At("/release/id"), At("/release/updated_at")],
            ),
            on(
                &["edited"],
                &[
                    At("/release/id"),
                    At("/release/updated_at"),
                    Digest("/changes"),
                ],
            ),
        ],
    },
    Kind {
        name: "workflow_run",
        must: &["/workflow_run/id", "/workflow_run/run_attempt"],
        without: &["/workflow_job"],
        rules: &[on(
            &["requested", "in_progress", "completed"],
            &[At("/workflow_run/id"), At("/workflow_run/run_attempt")],
        )],
    },
    Kind {
        name: "workflow_job",
        must: &["/workflow_job/id", "/workflow_job/run_attempt"],
        without: &[],
        rules: &[on(
            &["queued", "waiting", "in_progress", "completed"],
            &[At("/workflow_job/id"), At("/workflow_job/run_attempt")],
        )],
    },
    Kind {
        name: "check_run",
        must: &["/check_run/id"],
        without: &[],
        rules: &[
            on(
                &["created"],
                &[At("/check_run/id"), At("/check_run/started_at")],
            ),
            // A check run can be completed again by its App, with another end.
            on(
                &["completed"],
                &[
                    At("/check_run/id"),
                    At("/check_run/completed_at"),
                    At("/check_run/conclusion"),
                ],
            ),
        ],
    },
    Kind {
        name: "check_suite",
        must: &["/check_suite/id"],
        without: &["/check_run"],
        rules: &[on(
            &["completed"],
            &[
                At("/check_suite/id"),
                At("/check_suite/updated_at"),
                At("/check_suite/conclusion"),
            ],
        )],
    },
    Kind {
        name: "status",
        must: &["/sha", "/state", "/context"],
        without: &[],
        // Each status is an object of its own.
        rules: &[on(&[""], &[At("/id"), At("/state"), At("/updated_at")])],
    },
    Kind {
        name: "deployment",
        must: &["/deployment/id"],
        without: &["/deployment_status"],
        rules: &[on(
            &["created"],
            &[At("/deployment/id"), At("/deployment/updated_at")],
        )],
    },
    Kind {
        name: "deployment_status",
        must: &["/deployment_status/id"],
        without: &[],
        rules: &[on(
            &["created"],
            &[
                At("/deployment_status/id"),
                At("/deployment_status/updated_at"),
            ],
        )],
    },
];

/// All comments are alike.
const COMMENT: &[Rule] = &[
    on(
        &["created", "deleted"],
        &[At("/comment/id"), At("/comment/updated_at")],
    ),
    on(
        &["edited"],
        &[
            At("/comment/id"),
            At("/comment/updated_at"),
            Digest("/changes"),
        ],
    ),
];
