//! GitLab's operation keys.
//!
//! A project's hook and its group's send one event as two deliveries with the same body. What that
//! body can't tell from a later event has no rule: a push says from which commit to which, but not
//! when, and a branch that goes there, back, and there again says the same twice; an approval does
//! not move the merge request's `updated_at`; a job may be skipped twice. What has a rule is told
//! apart by whole seconds, as GitHub's events are.

use serde_json::Value;

use crate::sender::rules::Part::{At, Digest};
use crate::sender::rules::{Kind, Part, Rule, on};

/// The status that the subject of an event reached, for kinds that go by it.
pub(super) fn status<'a>(name: &str, document: &'a Value) -> Option<&'a str> {
    let pointer = match name {
        "pipeline" => "/object_attributes/status",
        "build" => "/build_status",
        "deployment" => "/status",
        _ => return None,
    };
    document.pointer(pointer)?.as_str()
}

/// The kinds that have rules.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "push",
        must: &["/ref", "/before", "/after", "/project_id"],
        without: &[],
        rules: &[],
    },
    Kind {
        name: "tag_push",
        must: &["/ref", "/before", "/after", "/project_id"],
        without: &[],
        rules: &[],
    },
    Kind {
        name: "issue",
        must: &["/object_attributes/id"],
        without: &[],
        rules: ISSUE,
    },
    Kind {
        name: "work_item",
        must: &["/object_attributes/id"],
        without: &[],
        rules: ISSUE,
    },
    Kind {
        name: "merge_request",
        must: &["/object_attributes/id"],
        without: &[],
        rules: &[
            on(&["open", "close", "reopen", "merge"], VERSION),
            // New commits.
            on(
                &["update"],
                &[
                    At("/object_attributes/id"),
                    At("/object_attributes/updated_at"),
                    At("/object_attributes/oldrev"),
                    At("/object_attributes/last_commit/id"),
                ],
            ),
            on(&["update"], CHANGES),
        ],
    },
    Kind {
        name: "note",
        must: &["/object_attributes/id", "/object_attributes/note"],
        without: &[],
        rules: &[
            on(&["create"], VERSION),
            on(
                &["update"],
                &[
                    At("/object_attributes/id"),
                    At("/object_attributes/updated_at"),
                    Digest("/object_attributes/note"),
                ],
            ),
        ],
    },
    Kind {
        name: "milestone",
        must: &["/object_attributes/id"],
        without: &[],
        rules: &[on(&["create", "close", "reopen"], VERSION)],
    },
    Kind {
        name: "release",
        must: &["/id", "/tag"],
        without: &[],
        rules: &[on(&["create", "delete"], &[At("/id"), At("/tag")])],
    },
    Kind {
        name: "pipeline",
        must: &["/object_attributes/id", "/object_attributes/status"],
        without: &[],
        rules: &[
            // A pipeline that is run again keeps its id, and comes by each status once more; its
            // jobs are others then.
            on(
                &[
                    "created",
                    "waiting_for_resource",
                    "preparing",
                    "pending",
                    "running",
                    "success",
                    "failed",
                    "canceling",
                    "canceled",
                    "skipped",
                    "manual",
                    "scheduled",
                ],
                &[
                    At("/object_attributes/id"),
                    Digest("/object_attributes"),
                    Digest("/builds"),
                ],
            ),
            on(
                &["success", "failed", "canceled"],
                &[
                    At("/object_attributes/id"),
                    At("/object_attributes/finished_at"),
                ],
            ),
        ],
    },
    Kind {
        name: "build",
        must: &["/build_id", "/build_status"],
        without: &[],
        // A job that is run again is another one.
        rules: &[on(
            &["running", "success", "failed", "canceled"],
            &[At("/build_id")],
        )],
    },
    Kind {
        name: "deployment",
        must: &["/deployment_id", "/status"],
        without: &[],
        rules: &[on(
            &["created", "running", "success", "failed", "canceled"],
            &[At("/deployment_id"), At("/status_changed_at")],
        )],
    },
];

const VERSION: &[Part] = &[
    At("/object_attributes/id"),
    At("/object_attributes/updated_at"),
];

const CHANGES: &[Part] = &[
    At("/object_attributes/id"),
    At("/object_attributes/updated_at"),
    Digest("/changes"),
];

const ISSUE: &[Rule] = &[
    on(&["open", "close", "reopen"], VERSION),
    on(&["update"], CHANGES),
];
