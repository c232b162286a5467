//! The service's own clock, from the `Date` header of its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};

use crate::clock::EpochSeconds;

/// Keeps the `Date` of the answer to the call that it is attached to.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceDate(Arc<AtomicI64>);

impl ServiceDate {
    /// `None` until an answer with a readable `Date` has come.
    pub(super) fn read(&self) -> Option<EpochSeconds> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            seconds => Some(EpochSeconds(seconds)),
        }
    }
}

impl Intercept for ServiceDate {
    fn name(&self) -> &'static str {
        "ServiceDate"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let header = context.response().headers().get("date");
        // An unreadable date tells nothing; the call goes on.
        if let Some(Ok(date)) =
            header.map(|text| DateTime::from_str(text, DateTimeFormat::HttpDate))
        {
            self.0.store(date.secs(), Ordering::Relaxed);
        }
        Ok(())
    }
}
