//! What to do about a store that could not even be asked.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::scan::ScanError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use firstclaim::StoreError;
use firstclaim::store::Cause;

use crate::check::Trouble;

/// What is missing or wrong of the AWS settings, and what to do, as `firstclaim check` says it; `None`
/// for any other trouble, which the error itself tells.
pub(super) fn of(error: &StoreError) -> Option<String> {
    let (StoreError::Unavailable {
        operation, source, ..
    }
    | StoreError::Denied {
        operation, source, ..
    }) = error
    else {
        return None;
    };
    let trouble = trouble::<GetItemError>(source)
        .or_else(|| trouble::<PutItemError>(source))
        .or_else(|| trouble::<UpdateItemError>(source))
        .or_else(|| trouble::<ScanError>(source))?;
    if !matches!(trouble, Trouble::NotConfigured(_) | Trouble::Credentials(_)) {
        return None;
    }
    let finding = trouble.finding("table", operation, ("", ""));
    Some(format!(
        "{}; {}",
        finding.found,
        finding.advice.unwrap_or_default()
    ))
}

fn trouble<E>(source: &Cause) -> Option<Trouble>
where
    E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    source.downcast_ref::<SdkError<E>>().map(Trouble::of)
}
