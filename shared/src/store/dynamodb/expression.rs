//! Conditions and changes as DynamoDB expressions.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::Item;
use super::attribute::*;
use super::item::{HOLD, data_values, error_value, settled_value};
use crate::protocol::{Condition, Seen, Settlement, Term, Write};
use crate::record::{Activity, Data, Owner, Policy, RELEASED, SUSPENDED, Status};

/// A condition and a change, with the placeholders that they use. Every attribute name is a
/// placeholder (`#status` for `status`), so that no reserved word matters. The placeholders are
/// short, because every byte of a request is hashed for its signature.
#[derive(Debug, Default)]
pub(super) struct Expression {
    condition: String,
    set: String,
    remove: String,
    names: Vec<(&'static str, String)>,
    values: Vec<(&'static str, AttributeValue)>,
}

impl Expression {
    pub(super) fn of(write: &Write, condition: &Condition) -> Self {
        let mut expression = Self::default();
        expression.render(condition);
        expression.change(write);
        expression
    }

    /// The condition; `None` if nothing is asked.
    pub(super) fn take_condition(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.condition)).filter(|text| !text.is_empty())
    }

    /// The change.
    pub(super) fn take_update(&mut self) -> String {
        let mut update = String::with_capacity(16 + self.set.len() + self.remove.len());
        for (word, changes) in [("SET ", &self.set), (" REMOVE ", &self.remove)] {
            if !changes.is_empty() {
                update.push_str(word);
                update.push_str(changes);
            }
        }
        update
    }

    /// The attribute names behind the placeholders; `None` if there are none, which DynamoDB wants
    /// told.
    pub(super) fn take_names(&mut self) -> Option<HashMap<String, String>> {
        if self.names.is_empty() {
            return None;
        }
        let names = std::mem::take(&mut self.names).into_iter();
        let named = names.map(|(placeholder, name)| (["#", placeholder].concat(), name));
        Some(named.collect())
    }

    /// The values behind the placeholders; `None` likewise.
    pub(super) fn take_values(&mut self) -> Option<Item> {
        if self.values.is_empty() {
            return None;
        }
        let values = std::mem::take(&mut self.values).into_iter();
        let placed = values.map(|(label, value)| ([":", label].concat(), value));
        Some(placed.collect())
    }

    /// Writes a condition as an expression.
    fn render(&mut self, condition: &Condition) {
        match condition {
            Condition::Is(term) => self.compare(term),
            Condition::All(parts) => self.join(parts, " AND "),
            Condition::Any(parts) => self.join(parts, " OR "),
            Condition::Not(terms) => {
                self.condition.push_str("NOT (");
                for (at, term) in terms.iter().enumerate() {
                    if at > 0 {
                        self.condition.push_str(" AND ");
                    }
                    self.compare(term);
                }
                self.condition.push(')');
            }
        }
    }

    fn join(&mut self, parts: &[Condition], word: &str) {
        // DynamoDB refuses parentheses around parentheses.
        if let [only] = parts {
            return self.render(only);
        }
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                self.condition.push_str(word);
            }
            if let Condition::Is(term) = part {
                self.compare(term);
                continue;
            }
            self.condition.push('(');
            self.render(part);
            self.condition.push(')');
        }
    }

    fn compare(&mut self, term: &Term) {
        match term {
            Term::NoItem => self.absent(ID),
            Term::NoOwner => self.absent(OWNER),
            Term::NoLease => self.absent(LEASE),
            Term::WindowEndedBefore(second) => {
                self.compared(EXPIRATION, " < ", "now", number(second.0));
            }
            Term::StatusIs(status) => self.compared(STATUS, " = ", "is", text(status.as_str())),
            Term::OwnerIs(owner) => self.compared(OWNER, " = ", "me", text(owner.expose())),
            Term::AttemptIs(attempt) => {
                self.compared(ATTEMPT, " = ", "nth", number((*attempt).into()));
            }
            Term::UnenteredIs(attempt) => {
                self.compared(UNENTERED, " = ", "unmarked", number((*attempt).into()));
            }
            Term::LeaseIs(lease) => self.compared(LEASE, " = ", "held", number(lease.0)),
            Term::LeaseAbove(limit) => self.compared(LEASE, " > ", "above", number(limit.0)),
            Term::LeaseBetween(lowest, highest) => {
                self.compared(LEASE, " BETWEEN ", "low", number(lowest.0));
                self.condition.push_str(" AND :high");
                self.value("high", number(highest.0));
            }
        }
    }

    fn absent(&mut self, attribute: &'static str) {
        let placeholder = self.named(attribute);
        self.condition.push_str("attribute_not_exists(#");
        self.condition.push_str(placeholder);
        self.condition.push(')');
    }

    fn compared(
        &mut self,
        attribute: &'static str,
        operator: &str,
        label: &'static str,
        value: AttributeValue,
    ) {
        let placeholder = self.named(attribute);
        for part in ["#", placeholder, operator, ":", label] {
            self.condition.push_str(part);
        }
        self.value(label, value);
    }

    fn change(&mut self, write: &Write) {
        match write {
            Write::Claim { .. } | Write::Restore { .. } => {}
            Write::Takeover {
                seen,
                owner,
                lease,
                expiration,
                fingerprint,
                activity,
                policy,
                marks,
                enters: _,
            } => {
                self.own(owner, seen);
                self.set_number(LEASE, lease.0);
                self.set_number(EXPIRATION, expiration.0);
                self.set_activity(activity.as_ref());
                match fingerprint {
                    Some(fingerprint) => self.set_text(FINGERPRINT, &fingerprint.to_hex()),
                    None if seen.owner.is_none() => self.remove(FINGERPRINT),
                    None => {}
                }
                if *policy == Policy::Hold {
                    self.set_text(POLICY, HOLD);
                }
                if *marks {
                    self.set_number(UNENTERED, seen.attempt.saturating_add(1).into());
                }
                self.room_for_checkpoints(seen);
            }
            Write::Renew {
                lease, expiration, ..
            } => {
                self.set_number(LEASE, lease.0);
                self.set_number(EXPIRATION, expiration.0);
            }
            Write::Enter { .. } => self.remove(UNENTERED),
            Write::Checkpoint {
                name, text: json, ..
            } => {
                // By path, never the whole map: a late copy must not undo a later checkpoint.
                self.named(CHECKPOINTS);
                self.name("checkpoint", name);
                self.value("checkpoint", text(json));
                self.add_set(&["#checkpoints.#checkpoint = :checkpoint"]);
            }
            Write::Activity { activity, .. } => self.set_activity(activity.as_ref()),
            Write::Finish {
                status,
                data,
                expiration,
                ..
            } => {
                self.set_text(STATUS, status.as_str());
                self.set_number(EXPIRATION, expiration.0);
                self.set_data(Some(data));
                self.remove(LEASE);
                self.set_activity(None);
            }
            Write::Suspend { error, .. } => {
                self.set_number(LEASE, SUSPENDED.0);
                if let Some(error) = error {
                    self.set_value(ERROR, error_value(error));
                }
                self.set_activity(None);
            }
            Write::Release { error, .. } => {
                self.set_number(LEASE, RELEASED.0);
                if let Some(error) = error {
                    self.set_value(ERROR, error_value(error));
                }
                self.set_activity(None);
            }
            Write::Settle {
                seen,
                owner,
                settlement,
                settled,
                expiration,
            } => {
                self.own(owner, seen);
                self.set_number(EXPIRATION, expiration.0);
                self.set_value(SETTLED, settled_value(settled));
                self.set_activity(None);
                if seen.owner.is_none() || *settlement == Settlement::Forget {
                    self.remove(FINGERPRINT);
                }
                self.settle(seen, settlement);
            }
        }
    }

    fn settle(&mut self, seen: &Seen, settlement: &Settlement) {
        match settlement {
            Settlement::Result(data) => {
                self.set_text(STATUS, Status::Completed.as_str());
                self.set_data(Some(data));
                self.remove(LEASE);
                self.room_for_checkpoints(seen);
            }
            Settlement::Rerun { new_generation } => {
                self.set_text(STATUS, Status::InProgress.as_str());
                self.set_number(LEASE, RELEASED.0);
                self.set_data(None);
                if *new_generation {
                    self.set_number(GENERATION, seen.generation.saturating_add(1).into());
                }
                self.room_for_checkpoints(seen);
            }
            Settlement::Forget => {
                self.set_text(STATUS, Status::InProgress.as_str());
                self.set_number(LEASE, RELEASED.0);
                self.set_data(None);
                self.set_value(CHECKPOINTS, AttributeValue::M(Item::new()));
                self.remove(ERROR);
            }
        }
    }

    fn own(&mut self, owner: &Owner, seen: &Seen) {
        self.set_text(OWNER, owner.expose());
        self.set_number(ATTEMPT, seen.attempt.saturating_add(1).into());
    }

    /// Another tool's record has no map yet that a checkpoint could be set in, and whoever makes it
    /// ours is the last who can tell.
    fn room_for_checkpoints(&mut self, seen: &Seen) {
        if seen.owner.is_none() {
            self.named(CHECKPOINTS);
            self.value(CHECKPOINTS, AttributeValue::M(Item::new()));
            self.add_set(&["#checkpoints = if_not_exists(#checkpoints, :checkpoints)"]);
        }
    }

    fn set_activity(&mut self, activity: Option<&Activity>) {
        match activity {
            Some(activity) => {
                self.set_text(ACTIVITY, &activity.text);
                self.set_number(ACTIVITY_AT, activity.at.0);
            }
            None => {
                self.remove(ACTIVITY);
                self.remove(ACTIVITY_AT);
            }
        }
    }

    fn set_data(&mut self, data: Option<&Data>) {
        for (name, value) in data_values(data) {
            match value {
                Some(value) => self.set_value(name, value),
                None => self.remove(name),
            }
        }
    }

    fn set_text(&mut self, attribute: &'static str, content: &str) {
        self.set_value(attribute, text(content));
    }

    fn set_number(&mut self, attribute: &'static str, content: i64) {
        self.set_value(attribute, number(content));
    }

    fn set_value(&mut self, attribute: &'static str, value: AttributeValue) {
        let placeholder = self.named(attribute);
        self.add_set(&["#", placeholder, " = :", placeholder]);
        self.value(placeholder, value);
    }

    fn add_set(&mut self, parts: &[&str]) {
        if !self.set.is_empty() {
            self.set.push_str(", ");
        }
        for part in parts {
            self.set.push_str(part);
        }
    }

    fn remove(&mut self, attribute: &'static str) {
        let placeholder = self.named(attribute);
        if !self.remove.is_empty() {
            self.remove.push_str(", ");
        }
        self.remove.push('#');
        self.remove.push_str(placeholder);
    }

    /// The placeholder of an attribute, which is known from now on.
    fn named(&mut self, attribute: &'static str) -> &'static str {
        let placeholder = match attribute {
            LEASE => "lease",
            EXPIRATION => "end",
            DATA_REF => "ref",
            DATA_OMITTED => "omitted",
            ACTIVITY_AT => "at",
            short => short,
        };
        self.name(placeholder, attribute);
        placeholder
    }

    fn name(&mut self, placeholder: &'static str, name: &str) {
        if !self.names.iter().any(|(known, _)| *known == placeholder) {
            self.names.push((placeholder, name.to_owned()));
        }
    }

    /// A value that is written is called as its attribute is; one that is compared has a name that
    /// no attribute has, and is the same both times where it is compared twice.
    fn value(&mut self, label: &'static str, value: AttributeValue) {
        if !self.values.iter().any(|(known, _)| *known == label) {
            self.values.push((label, value));
        }
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
