//! The DynamoDB store: the protocol's conditions as expressions, and the record as an item. The
//! only file that knows the SDK's types.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};

use super::{Cause, Read, Store, StoreError, Written};
use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::protocol::{Condition, Seen, Settlement, Term, Write};
use crate::record::{
    Activity, AttemptError, Data, Omitted, Origin, Owner, Policy, RELEASED, Record, SUSPENDED,
    Settled, Status,
};

type Item = HashMap<String, AttributeValue>;

/// The attributes of a record. Names that Powertools for AWS Lambda writes too keep its spelling.
mod attribute {
    pub(super) const ID: &str = "id";
    pub(super) const STATUS: &str = "status";
    pub(super) const EXPIRATION: &str = "expiration";
    pub(super) const LEASE: &str = "in_progress_expiration";
    pub(super) const OWNER: &str = "owner";
    pub(super) const ATTEMPT: &str = "attempt";
    pub(super) const POLICY: &str = "policy";
    pub(super) const GENERATION: &str = "generation";
    pub(super) const FINGERPRINT: &str = "validation";
    pub(super) const DATA: &str = "data";
    pub(super) const DATA_REF: &str = "data_ref";
    pub(super) const DATA_OMITTED: &str = "data_omitted";
    pub(super) const CHECKPOINTS: &str = "checkpoints";
    pub(super) const ACTIVITY: &str = "activity";
    pub(super) const ACTIVITY_AT: &str = "activity_at";
    pub(super) const ERROR: &str = "error";
    pub(super) const ORIGIN: &str = "origin";
    pub(super) const SETTLED: &str = "settled";
}
use attribute::*;

/// Records in one DynamoDB table with the partition key `id` (a string) and no sort key.
#[derive(Clone, Debug)]
pub struct DynamoDb {
    client: Client,
    table: Arc<str>,
    /// For mutation checks: the name of a write, and the part of its condition that is left out.
    mutant: Option<(&'static str, usize)>,
}

impl DynamoDb {
    /// Records in `table`, through `client`.
    ///
    /// The client's own retries are welcome: every write may safely be sent again, because it names
    /// the owner that it expects or makes. See [`crate::aws`] for a client whose time-outs and
    /// retries fit.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self {
            client,
            table: Arc::from(table.into()),
            mutant: None,
        }
    }

    /// The same store with part number `part` of the condition of the write named `write` left out,
    /// to see whether the tests notice.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn without_part(mut self, write: &'static str, part: usize) -> Self {
        self.mutant = Some((write, part));
        self
    }

    /// What the write asks of the item.
    fn condition(&self, write: &Write) -> Condition {
        let condition = write.condition();
        match self.mutant {
            Some((name, part)) if name == write.name() => condition
                .without(part)
                .map_or(condition, |(smaller, _)| smaller),
            _ => condition,
        }
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    async fn put(&self, record: &Record, expression: Expression) -> Result<Written, StoreError> {
        let answer = self
            .client
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(to_item(record)))
            .set_condition_expression(expression.condition)
            .set_expression_attribute_names(Some(expression.names))
            .set_expression_attribute_values(expression.values)
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(Written::Applied(None)),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refusal)) => {
                    refused(&record.id, refusal.item())
                }
                _ => Err(self.failed("PutItem", error)),
            },
        }
    }

    async fn update(
        &self,
        id: &str,
        expression: Expression,
        returned: ReturnValue,
    ) -> Result<Written, StoreError> {
        let answer = self
            .client
            .update_item()
            .table_name(&*self.table)
            .key(ID, AttributeValue::S(id.to_owned()))
            .update_expression(expression.update())
            .set_condition_expression(expression.condition)
            .set_expression_attribute_names(Some(expression.names))
            .set_expression_attribute_values(expression.values)
            .return_values(returned)
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(output) => match output.attributes() {
                Some(item) => Ok(Written::Applied(Some(Box::new(from_item(id, item)?)))),
                None => Ok(Written::Applied(None)),
            },
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refusal)) => {
                    refused(id, refusal.item())
                }
                _ => Err(self.failed("UpdateItem", error)),
            },
        }
    }

    /// What an SDK error means here.
    fn failed<E, R>(&self, operation: &'static str, error: SdkError<E, R>) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        let table = self.table.to_string();
        let code = error.code().unwrap_or_default().to_owned();
        let message = error.message().unwrap_or_default().to_owned();
        let never_sent = matches!(error, SdkError::ConstructionFailure(_));
        let source: Cause = Box::new(error);
        match code.as_str() {
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "TransactionConflictException" => StoreError::Throttled {
                operation,
                table,
                source,
            },
            "ResourceNotFoundException" => StoreError::NoTable { table, source },
            "AccessDeniedException"
            | "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "ExpiredTokenException"
            | "MissingAuthenticationTokenException" => StoreError::Denied {
                operation,
                table,
                source,
            },
            "ItemCollectionSizeLimitExceededException" => StoreError::TooLarge { source },
            "ValidationException" if message.contains("size has exceeded") => {
                StoreError::TooLarge { source }
            }
            "ValidationException" => StoreError::Invalid {
                operation,
                table,
                message,
                source,
            },
            _ if never_sent => StoreError::Invalid {
                operation,
                table,
                message: "the request could not be built".to_owned(),
                source,
            },
            _ => StoreError::Unavailable {
                operation,
                table,
                source,
            },
        }
    }
}

impl Store for DynamoDb {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        let expression = Expression::of(write, &self.condition(write));
        match write {
            Write::Claim { record, .. } | Write::Restore { record } => {
                self.put(record, expression).await
            }
            Write::Takeover { .. } | Write::Settle { .. } => {
                self.update(id, expression, ReturnValue::AllNew).await
            }
            _ => self.update(id, expression, ReturnValue::None).await,
        }
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        let output = self
            .client
            .get_item()
            .table_name(&*self.table)
            .key(ID, AttributeValue::S(id.to_owned()))
            .consistent_read(read == Read::Consistent)
            .send()
            .await
            .map_err(|error| self.failed("GetItem", error))?;
        output.item().map(|item| from_item(id, item)).transpose()
    }
}

fn refused(id: &str, item: Option<&Item>) -> Result<Written, StoreError> {
    let record = item.map(|item| from_item(id, item)).transpose()?;
    Ok(Written::Refused(record.map(Box::new)))
}

/// A condition and a change, with the placeholders that they use. Every attribute name is a
/// placeholder, so that no reserved word matters.
#[derive(Debug, Default)]
struct Expression {
    condition: Option<String>,
    set: Vec<String>,
    remove: Vec<String>,
    names: HashMap<String, String>,
    values: Option<Item>,
}

impl Expression {
    fn of(write: &Write, condition: &Condition) -> Self {
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
                    self.set.push(format!("{name} = if_not_exists({name}, {empty})"));
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

    fn update(&self) -> String {
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

/// The text of the policy attribute; `rerun` is its absence.
const HOLD: &str = "hold";

fn data_values(data: Option<&Data>) -> [(&'static str, Option<AttributeValue>); 3] {
    let text = |text: &String| AttributeValue::S(text.clone());
    let (inline, companion, omitted) = match data {
        None => (None, None, None),
        Some(Data::Inline(json)) => (Some(text(json)), None, None),
        Some(Data::Companion(id)) => (None, Some(text(id)), None),
        Some(Data::Omitted(omitted)) => (None, None, Some(omitted_value(omitted))),
    };
    [
        (DATA, inline),
        (DATA_REF, companion),
        (DATA_OMITTED, omitted),
    ]
}

fn to_item(record: &Record) -> Item {
    let mut item = Item::new();
    let mut put = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    let text = |text: &str| Some(AttributeValue::S(text.to_owned()));
    let number = |number: i64| Some(AttributeValue::N(number.to_string()));
    put(ID, text(&record.id));
    put(STATUS, text(record.status.as_str()));
    put(EXPIRATION, record.expiration.and_then(|end| number(end.0)));
    put(LEASE, record.lease.and_then(|end| number(end.0)));
    put(OWNER, record.owner.as_ref().and_then(|owner| text(owner.expose())));
    put(ATTEMPT, number(record.attempt.into()));
    if record.policy == Policy::Hold {
        put(POLICY, text(HOLD));
    }
    if record.generation > 0 {
        put(GENERATION, number(record.generation.into()));
    }
    put(FINGERPRINT, record.fingerprint.and_then(|print| text(&print.to_hex())));
    for (name, value) in data_values(record.data.as_ref()) {
        put(name, value);
    }
    put(CHECKPOINTS, Some(map(record.checkpoints.iter().map(|(k, v)| (k.as_str(), v.clone())))));
    if let Some(activity) = &record.activity {
        put(ACTIVITY, text(&activity.text));
        put(ACTIVITY_AT, number(activity.at.0));
    }
    put(ERROR, record.error.as_ref().map(error_value));
    put(ORIGIN, Some(origin_value(&record.origin)));
    put(SETTLED, record.settled.as_ref().map(settled_value));
    item
}

fn map<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> AttributeValue {
    AttributeValue::M(
        entries
            .map(|(name, text)| (name.to_owned(), AttributeValue::S(text)))
            .collect(),
    )
}

fn with_number(value: AttributeValue, name: &str, number: i64) -> AttributeValue {
    match value {
        AttributeValue::M(mut entries) => {
            entries.insert(name.to_owned(), AttributeValue::N(number.to_string()));
            AttributeValue::M(entries)
        }
        other => other,
    }
}

fn error_value(error: &AttemptError) -> AttributeValue {
    let texts = [("code", error.code.clone()), ("message", error.message.clone())];
    with_number(map(texts.into_iter()), "attempt", error.attempt.into())
}

fn settled_value(settled: &Settled) -> AttributeValue {
    let texts = [("who", settled.who.clone()), ("why", settled.why.clone())];
    let value = with_number(map(texts.into_iter()), "at", settled.at.0);
    with_number(value, "attempt", settled.attempt.into())
}

fn omitted_value(omitted: &Omitted) -> AttributeValue {
    let texts = [
        ("sha256", omitted.sha256.clone()),
        ("reason", omitted.reason.clone()),
    ];
    let bytes = i64::try_from(omitted.bytes).unwrap_or(i64::MAX);
    with_number(map(texts.into_iter()), "bytes", bytes)
}

fn origin_value(origin: &Origin) -> AttributeValue {
    let texts = [
        ("function", &origin.function),
        ("request", &origin.request),
        ("trace", &origin.trace),
        ("event", &origin.event),
    ];
    map(texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, text.clone()?))))
}

/// Reads an item leniently: what another tool left out is `None`, a fractional number is floored,
/// but a status or lease that can't be understood is an error, because deciding without it could
/// run the work twice.
fn from_item(id: &str, item: &Item) -> Result<Record, StoreError> {
    let reader = Reader { id, item };
    let status = match reader.text(STATUS) {
        Some(text) => Status::parse(text)
            .ok_or_else(|| reader.malformed(STATUS, format!("the unknown status {text:?}")))?,
        None => return Err(reader.malformed(STATUS, "missing or no text".to_owned())),
    };
    let owner = reader.text(OWNER).map(Owner::new);
    let counter = |name| {
        reader
            .number(name)
            .map(|found| found.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
    };
    let activity = match (reader.text(ACTIVITY), reader.number(ACTIVITY_AT)?) {
        (Some(text), at) => Some(Activity {
            text: text.to_owned(),
            at: EpochMillis(at.unwrap_or(0)),
        }),
        (None, _) => None,
    };
    Ok(Record {
        id: reader.text(ID).unwrap_or(id).to_owned(),
        status,
        expiration: reader.number(EXPIRATION)?.map(EpochSeconds),
        lease: reader.number(LEASE)?.map(EpochMillis),
        attempt: counter(ATTEMPT)?.unwrap_or(1),
        policy: match reader.text(POLICY) {
            Some(HOLD) => Policy::Hold,
            _ => Policy::Rerun,
        },
        generation: counter(GENERATION)?.unwrap_or(0),
        // Another tool's hash is made in another way: it binds nothing here.
        fingerprint: owner
            .as_ref()
            .and_then(|_| reader.text(FINGERPRINT))
            .and_then(Fingerprint::from_hex),
        owner,
        data: reader.data(),
        checkpoints: reader.checkpoints(),
        activity,
        error: reader.map(ERROR).map(|entries| AttemptError {
            code: text_in(entries, "code"),
            message: text_in(entries, "message"),
            attempt: count_in(entries, "attempt"),
        }),
        origin: reader.map(ORIGIN).map_or_else(Origin::default, |entries| {
            let text = |name: &str| entries.get(name)?.as_s().ok().cloned();
            Origin {
                function: text("function"),
                request: text("request"),
                trace: text("trace"),
                event: text("event"),
            }
        }),
        settled: reader.map(SETTLED).map(|entries| Settled {
            who: text_in(entries, "who"),
            at: EpochMillis(number_in(entries, "at")),
            why: text_in(entries, "why"),
            attempt: count_in(entries, "attempt"),
        }),
    })
}

/// An item that is being read.
struct Reader<'a> {
    id: &'a str,
    item: &'a Item,
}

impl<'a> Reader<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.item.get(name)?.as_s().ok().map(String::as_str)
    }

    fn map(&self, name: &str) -> Option<&'a Item> {
        self.item.get(name)?.as_m().ok()
    }

    /// A number; one with a fraction (another tool writes them) is floored.
    fn number(&self, name: &'static str) -> Result<Option<i64>, StoreError> {
        match self.item.get(name) {
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(AttributeValue::N(text)) => whole(text)
                .map(Some)
                .ok_or_else(|| self.malformed(name, format!("the number {text:?}"))),
            Some(_) => Err(self.malformed(name, "not a number".to_owned())),
        }
    }

    fn data(&self) -> Option<Data> {
        if let Some(text) = self.text(DATA) {
            return Some(Data::Inline(text.to_owned()));
        }
        if let Some(id) = self.text(DATA_REF) {
            return Some(Data::Companion(id.to_owned()));
        }
        self.map(DATA_OMITTED).map(|entries| {
            Data::Omitted(Omitted {
                bytes: u64::try_from(number_in(entries, "bytes")).unwrap_or(0),
                sha256: text_in(entries, "sha256"),
                reason: text_in(entries, "reason"),
            })
        })
    }

    fn checkpoints(&self) -> BTreeMap<String, String> {
        let entries = self.map(CHECKPOINTS).into_iter().flatten();
        entries
            .filter_map(|(name, value)| Some((name.clone(), value.as_s().ok()?.clone())))
            .collect()
    }

    fn malformed(&self, attribute: &'static str, found: String) -> StoreError {
        StoreError::Malformed {
            id: self.id.to_owned(),
            attribute,
            found,
        }
    }
}

fn whole(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float to integer cast saturates, and a time beyond that range is as good as its end"
    )]
    number.is_finite().then(|| number.floor() as i64)
}

fn text_in(entries: &Item, name: &str) -> String {
    let text = entries.get(name).and_then(|value| value.as_s().ok());
    text.cloned().unwrap_or_default()
}

fn number_in(entries: &Item, name: &str) -> i64 {
    let text = entries.get(name).and_then(|value| value.as_n().ok());
    text.and_then(|text| whole(text)).unwrap_or(0)
}

fn count_in(entries: &Item, name: &str) -> u32 {
    u32::try_from(number_in(entries, name)).unwrap_or(0)
}
