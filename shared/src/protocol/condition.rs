//! Conditions as data: what a write asks of the item that it meets.
//!
//! The in-memory store and the model evaluate them; the DynamoDB store writes them as expressions.
//! There is no second place where a condition is spelled out.

use crate::clock::{EpochMillis, EpochSeconds};
use crate::record::{Owner, Record, Status};

/// What the item must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// One term holds.
    Is(Term),
    /// Every part holds.
    All(Vec<Condition>),
    /// At least one part holds.
    Any(Vec<Condition>),
    /// Not all of these hold together.
    Not(Vec<Term>),
}

/// One comparison with an attribute. As in DynamoDB, a comparison with a missing attribute is
/// false.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// There is no item.
    NoItem,
    /// `expiration` lies before this second.
    WindowEndedBefore(EpochSeconds),
    /// `status` is this.
    StatusIs(Status),
    /// `owner` is this.
    OwnerIs(Owner),
    /// There is no `owner`: another tool wrote the record.
    NoOwner,
    /// `attempt` is this.
    AttemptIs(u32),
    /// The attempt that has not entered its operation yet is this.
    UnenteredIs(u32),
    /// The lease is exactly this.
    LeaseIs(EpochMillis),
    /// There is no lease.
    NoLease,
    /// The lease ends later than this.
    LeaseAbove(EpochMillis),
    /// The lease ends between these two, both included.
    LeaseBetween(EpochMillis, EpochMillis),
}

impl From<Term> for Condition {
    fn from(term: Term) -> Self {
        Self::Is(term)
    }
}

impl Condition {
    /// This and one more term.
    #[must_use]
    pub fn and(self, term: Term) -> Self {
        match self {
            Self::All(mut parts) => {
                parts.push(term.into());
                Self::All(parts)
            }
            other => Self::All(vec![other, term.into()]),
        }
    }

    /// How many parts can be taken away: every term, and every group below the whole.
    #[must_use]
    pub fn parts(&self) -> usize {
        match self {
            Self::Is(_) => 1,
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::parts_of_member).sum(),
            Self::Not(terms) => terms.len(),
        }
    }

    fn parts_of_member(&self) -> usize {
        match self {
            Self::Is(_) => 1,
            group => 1 + group.parts(),
        }
    }

    /// The condition with its part number `at` (from 0) taken away, for mutation checks; and the
    /// part that went. `None` behind the last part.
    #[must_use]
    pub fn without(&self, at: usize) -> Option<(Self, Self)> {
        match self {
            Self::Is(_) => (at == 0).then(|| (Self::All(Vec::new()), self.clone())),
            Self::All(parts) => {
                without_member(parts, at).map(|(rest, gone)| (Self::All(rest), gone))
            }
            Self::Any(parts) => {
                without_member(parts, at).map(|(rest, gone)| (Self::Any(rest), gone))
            }
            Self::Not(terms) => {
                let gone = terms.get(at)?.clone();
                let mut rest = terms.clone();
                rest.remove(at);
                Some((Self::Not(rest), Self::Is(gone)))
            }
        }
    }

    /// The condition without the first part that is called `name` (see [`name`](Self::name)); as it
    /// is where no part is.
    #[must_use]
    pub fn without_named(&self, name: &str) -> Self {
        (0..self.parts())
            .filter_map(|at| self.without(at))
            .find_map(|(rest, gone)| (gone.name() == name).then_some(rest))
            .unwrap_or_else(|| self.clone())
    }

    /// What kind of part it is: the name of its term or of its group, whatever the values.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Is(term) => term.name(),
            Self::All(_) => "All",
            Self::Any(_) => "Any",
            Self::Not(_) => "Not",
        }
    }

    /// Whether the item is what is asked for.
    #[must_use]
    pub fn holds(&self, item: Option<&Record>) -> bool {
        match self {
            Self::Is(term) => term.holds(item),
            Self::All(parts) => parts.iter().all(|part| part.holds(item)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(item)),
            Self::Not(terms) => !terms.iter().all(|term| term.holds(item)),
        }
    }
}

fn without_member(parts: &[Condition], mut at: usize) -> Option<(Vec<Condition>, Condition)> {
    for (place, part) in parts.iter().enumerate() {
        let mut rest = parts.to_vec();
        if at == 0 {
            let gone = rest.remove(place);
            return Some((rest, gone));
        }
        at -= 1;
        if let Condition::Is(_) = part {
            continue;
        }
        if let Some((smaller, gone)) = part.without(at) {
            rest[place] = smaller;
            return Some((rest, gone));
        }
        at -= part.parts();
    }
    None
}

impl Term {
    fn name(&self) -> &'static str {
        match self {
            Self::NoItem => "NoItem",
            Self::WindowEndedBefore(_) => "WindowEndedBefore",
            Self::StatusIs(_) => "StatusIs",
            Self::OwnerIs(_) => "OwnerIs",
            Self::NoOwner => "NoOwner",
            Self::AttemptIs(_) => "AttemptIs",
            Self::UnenteredIs(_) => "UnenteredIs",
            Self::LeaseIs(_) => "LeaseIs",
            Self::NoLease => "NoLease",
            Self::LeaseAbove(_) => "LeaseAbove",
            Self::LeaseBetween(..) => "LeaseBetween",
        }
    }

    fn holds(&self, item: Option<&Record>) -> bool {
        let Some(record) = item else {
            return matches!(self, Self::NoItem | Self::NoOwner | Self::NoLease);
        };
        match self {
            Self::NoItem => false,
            Self::WindowEndedBefore(second) => record.expiration.is_some_and(|end| end < *second),
            Self::StatusIs(status) => record.status == *status,
            Self::OwnerIs(owner) => record.owner.as_ref() == Some(owner),
            Self::NoOwner => record.owner.is_none(),
            Self::AttemptIs(attempt) => record.attempt == *attempt,
            Self::UnenteredIs(attempt) => record.unentered == Some(*attempt),
            Self::LeaseIs(lease) => record.lease == Some(*lease),
            Self::NoLease => record.lease.is_none(),
            Self::LeaseAbove(limit) => record.lease.is_some_and(|lease| lease > *limit),
            Self::LeaseBetween(lowest, highest) => record
                .lease
                .is_some_and(|lease| lease >= *lowest && lease <= *highest),
        }
    }
}
