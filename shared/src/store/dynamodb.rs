//! The DynamoDB store: the protocol's conditions as expressions, and the record as an item. This and
//! its submodules are the only files that know the SDK's types.

mod date;
mod expression;
mod item;
mod scan;

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};

use super::{Cause, Read, Store, StoreError, Written};
use crate::clock::EpochSeconds;
use crate::protocol::{Condition, Write};
use crate::record::Record;
use attribute::{COMPANION, EXPIRATION, ID};
use date::ServiceDate;
use expression::Expression;
use item::{from_item, to_item};
pub use scan::{Cursor, Page};

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
    pub(super) const UNENTERED: &str = "unentered";
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
    /// In a companion item only: the compressed result.
    pub(super) const COMPANION: &str = "companion";
}
/// Records in one DynamoDB table with the partition key `id` (a string) and no sort key.
#[derive(Clone, Debug)]
pub struct DynamoDb {
    client: Client,
    table: Arc<str>,
    /// For mutation checks: the name of a write, and the part of its condition that is left out.
    mutant: Option<(&'static str, &'static str)>,
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

    /// The same store with the part called `part` left out of the conditions of the write named
    /// `write`, to see whether the tests notice.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn without_part(mut self, write: &'static str, part: &'static str) -> Self {
        self.mutant = Some((write, part));
        self
    }

    /// What the write asks of the item.
    fn condition(&self, write: &Write) -> Condition {
        let condition = write.condition();
        match self.mutant {
            Some((name, part)) if name == write.name() => condition.without_named(part),
            _ => condition,
        }
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The service's own time, as it says it in its answer to a read of the record `id`; `None`
    /// where it says none.
    ///
    /// # Errors
    ///
    /// The store could not answer.
    pub async fn service_time(&self, id: &str) -> Result<Option<EpochSeconds>, StoreError> {
        let date = ServiceDate::default();
        self.client
            .get_item()
            .table_name(&*self.table)
            .key(ID, AttributeValue::S(id.to_owned()))
            .customize()
            .interceptor(date.clone())
            .send()
            .await
            .map_err(|error| self.failed("GetItem", error))?;
        Ok(date.read())
    }

    async fn put(
        &self,
        record: &Record,
        mut expression: Expression,
        date: Option<&ServiceDate>,
    ) -> Result<Written, StoreError> {
        let call = self
            .client
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(to_item(record)))
            .set_condition_expression(expression.take_condition())
            .set_expression_attribute_names(expression.take_names())
            .set_expression_attribute_values(expression.take_values())
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        // Boxed, as every call: the SDK's futures are large, and those around them are moved.
        let answer = match date {
            Some(date) => {
                let timed = call.customize().interceptor(date.clone());
                Box::pin(timed.send()).await
            }
            None => Box::pin(call.send()).await,
        };
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
        mut expression: Expression,
        returned: ReturnValue,
    ) -> Result<Written, StoreError> {
        let call = self
            .client
            .update_item()
            .table_name(&*self.table)
            .key(ID, AttributeValue::S(id.to_owned()))
            .update_expression(expression.take_update())
            .set_condition_expression(expression.take_condition())
            .set_expression_attribute_names(expression.take_names())
            .set_expression_attribute_values(expression.take_values())
            .return_values(returned)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        let answer = Box::pin(call.send()).await;
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
            "ValidationException" if message.contains("exceeded the maximum allowed size") => {
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
                self.put(record, expression, None).await
            }
            Write::Takeover { .. } | Write::Settle { .. } => {
                self.update(id, expression, ReturnValue::AllNew).await
            }
            _ => self.update(id, expression, ReturnValue::None).await,
        }
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        let call = self
            .client
            .get_item()
            .table_name(&*self.table)
            .key(ID, AttributeValue::S(id.to_owned()))
            .consistent_read(read == Read::Consistent);
        let output = Box::pin(call.send()).await;
        let output = output.map_err(|error| self.failed("GetItem", error))?;
        output.item().map(|item| from_item(id, item)).transpose()
    }

    /// Only a claim is timed: every request begins with one.
    async fn write_timed(
        &self,
        id: &str,
        write: &Write,
    ) -> Result<(Written, Option<EpochSeconds>), StoreError> {
        let Write::Claim { record, .. } = write else {
            return Ok((self.write(id, write).await?, None));
        };
        let date = ServiceDate::default();
        let expression = Expression::of(write, &self.condition(write));
        let written = self.put(record, expression, Some(&date)).await?;
        Ok((written, date.read()))
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        // The id holds the owner's token: a copy that lands twice puts the same bytes.
        let call = self
            .client
            .put_item()
            .table_name(&*self.table)
            .item(ID, AttributeValue::S(id.to_owned()))
            .item(COMPANION, AttributeValue::B(Blob::new(packed)))
            .item(EXPIRATION, AttributeValue::N(expiration.0.to_string()));
        let put = Box::pin(call.send()).await;
        put.map(drop).map_err(|error| self.failed("PutItem", error))
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let call = self
            .client
            .get_item()
            .table_name(&*self.table)
            .key(ID, AttributeValue::S(id.to_owned()))
            .consistent_read(true);
        let output = Box::pin(call.send()).await;
        let output = output.map_err(|error| self.failed("GetItem", error))?;
        let packed = output
            .item()
            .and_then(|item| item.get(COMPANION)?.as_b().ok());
        Ok(packed.map(|blob| blob.as_ref().to_vec()))
    }
}

fn refused(id: &str, item: Option<&Item>) -> Result<Written, StoreError> {
    let record = item.map(|item| from_item(id, item)).transpose()?;
    Ok(Written::Refused(record.map(Box::new)))
}
