//! Conditions and changes as DynamoDB expressions.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::Item;
use super::attribute::*;
use super::item::{HOLD, data_values, error_value, settled_value};
use crate::protocol::{Condition, Seen, Settlement, Term, Write};
use crate::record::{Activity, Data, Owner, Policy, RELEASED, SUSPENDED, Status};

/// A condition and a change, with the placeholders that they use. Every attribute name is a
/// placeholder, so that no reserved word matters.
#[derive(Debug, Default)]
pub(super) struct Expression {
    pub(super) condition: Option<String>,
    set: Vec<String>,
    remove: Vec<String>,
    pub(super) names: HashMap<String, String>,
    pub(super) values: Option<Item>,
}

impl Expression {
    pub(super) fn of(write: &Write, condition: &Condition) -> Self {
        let mut expression = Self::default();
        expression.condition = Some(expression.render(condition)).filter(|text| !text.is_empty());
        expression.change(write);
        expression
    }

    /// A condition as an expression.
    fn render(&mut self, condition: &Condition) -> String {
        match condition {
            Condition::Is(term) => self.compare(term),
            Condition::All(parts) => self.join(parts, " AND "),
            Condition::Any(parts) => self.join(parts, " OR "),
            Condition::Not(terms) => {
                let terms: Vec<String> = terms.iter().map(|term| self.compare(term)).collect();
                format!("NOT ({})", terms.join(" AND "))
            }
        }
    }

    fn join(&mut self, parts: &[Condition], word: &str) -> String {
        // DynamoDB refuses parentheses around parentheses.
        if let [only] = parts {
            return self.render(only);
        }
        let parts: Vec<String> = parts
            .iter()
            .map(|part| match part {
                Condition::Is(term) => self.compare(term),
                deeper => format!("({})", self.render(deeper)),
            })
            .collect();
        parts.join(word)
    }

    fn compare(&mut self, term: &Term) -> String {
        match term {
            Term::NoItem => format!("attribute_not_exists({})", self.name(ID)),
            Term::NoOwner => format!("attribute_not_exists({})", self.name(OWNER)),
            Term::NoLease => format!("attribute_not_exists({})", self.name(LEASE)),
            Term::WindowEndedBefore(second) => {
                let end = self.name(EXPIRATION);
                format!("{end} < {}", self.number("now_s", second.0))
            }
            Term::StatusIs(status) => {
                let name = self.name(STATUS);
                format!("{name} = {}", self.text("status", status.as_str()))
            }
            Term::OwnerIs(owner) => {
                let name = self.name(OWNER);
                format!("{name} = {}", self.text("owner", owner.expose()))
            }
            Term::AttemptIs(attempt) => {
                let name = self.name(ATTEMPT);
                format!("{name} = {}", self.number("attempt", (*attempt).into()))
            }
            Term::LeaseIs(lease) => {
                let name = self.name(LEASE);
                format!("{name} = {}", self.number("lease", lease.0))
            }
            Term::LeaseAbove(limit) => {
                let name = self.name(LEASE);
                format!("{name} > {}", self.number("limit", limit.0))
            }
            Term::LeaseBetween(lowest, highest) => {
                let name = self.name(LEASE);
                let lowest = self.number("lowest", lowest.0);
                let highest = self.number("highest", highest.0);
                format!("{name} BETWEEN {lowest} AND {highest}")
            }
        }
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
                enters: _,
            } => {
                self.own(owner, seen);
                self.set_number(LEASE, lease.0);
                self.set_number(EXPIRATION, expiration.0);
                self.set_activity(activity.as_ref());
                if let Some(fingerprint) = fingerprint {
                    self.set_text(FINGERPRINT, &fingerprint.to_hex());
                }
                if *policy == Policy::Hold {
                    self.set_text(POLICY, HOLD);
                }
                if seen.owner.is_none() {
                    // Another tool's record has no map yet that a checkpoint could be set in.
                    let name = self.name(CHECKPOINTS);
                    let empty = self.value("empty", AttributeValue::M(Item::new()));
                    self.set
                        .push(format!("{name} = if_not_exists({name}, {empty})"));
                }
            }
            Write::Renew {
                lease, expiration, ..
            } => {
                self.set_number(LEASE, lease.0);
                self.set_number(EXPIRATION, expiration.0);
            }
            Write::Checkpoint { name, text, .. } => {
                let map = self.name(CHECKPOINTS);
                self.names.insert("#checkpoint".to_owned(), name.clone());
                let value = self.text("checkpoint", text);
                self.set.push(format!("{map}.#checkpoint = {value}"));
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
            }
            Settlement::Rerun { new_generation } => {
                self.set_text(STATUS, Status::InProgress.as_str());
                self.set_number(LEASE, RELEASED.0);
                self.set_data(None);
                if *new_generation {
                    self.set_number(GENERATION, seen.generation.saturating_add(1).into());
                }
            }
            Settlement::Forget => {
                self.set_text(STATUS, Status::InProgress.as_str());
                self.set_number(LEASE, RELEASED.0);
                self.set_data(None);
                self.set_value(CHECKPOINTS, AttributeValue::M(Item::new()));
                self.remove(FINGERPRINT);
                self.remove(ERROR);
            }
        }
    }

    fn own(&mut self, owner: &Owner, seen: &Seen) {
        self.set_text(OWNER, owner.expose());
        self.set_number(ATTEMPT, seen.attempt.saturating_add(1).into());
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

    fn set_text(&mut self, attribute: &str, text: &str) {
        self.set_value(attribute, AttributeValue::S(text.to_owned()));
    }

    fn set_number(&mut self, attribute: &str, number: i64) {
        self.set_value(attribute, AttributeValue::N(number.to_string()));
    }

    fn set_value(&mut self, attribute: &str, value: AttributeValue) {
        let name = self.name(attribute);
        let value = self.value(&format!("new_{attribute}"), value);
        self.set.push(format!("{name} = {value}"));
    }

    fn remove(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.remove.push(name);
    }

    pub(super) fn update(&self) -> String {
        let mut update = format!("SET {}", self.set.join(", "));
        if self.set.is_empty() {
            update.clear();
        }
        if !self.remove.is_empty() {
            update.push_str(" REMOVE ");
            update.push_str(&self.remove.join(", "));
        }
        update
    }

    fn name(&mut self, attribute: &str) -> String {
        let placeholder = format!("#{attribute}");
        self.names.insert(placeholder.clone(), attribute.to_owned());
        placeholder
    }

    fn text(&mut self, label: &str, text: &str) -> String {
        self.value(label, AttributeValue::S(text.to_owned()))
    }

    fn number(&mut self, label: &str, number: i64) -> String {
        self.value(label, AttributeValue::N(number.to_string()))
    }

    fn value(&mut self, label: &str, value: AttributeValue) -> String {
        let placeholder = format!(":{label}");
        self.values
            .get_or_insert_default()
            .insert(placeholder.clone(), value);
        placeholder
    }
}
