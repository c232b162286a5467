//! Why a call of AWS failed, in words for the one who can mend it.

use std::error::Error;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use firstclaim::aws::{Patience, loopback_config, sdk_config};
use std::time::Duration;

use super::Finding;
use crate::dev::is_loopback;
use crate::escape::one_line;

/// More than the functions have: whoever checks may be far away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The limit of one attempt of a call.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Clients for `endpoint`, or for AWS's own. One on this machine needs no AWS settings.
pub(crate) async fn sdk(endpoint: Option<&str>, limit: Duration) -> SdkConfig {
    let patience = Patience {
        attempts: 2,
        attempt: ATTEMPT.min(limit),
        total: limit,
    };
    let config = match endpoint {
        Some(url) if is_loopback(url) => loopback_config(url, patience).await,
        Some(url) => {
            let config = sdk_config(patience).await;
            config.into_builder().endpoint_url(url).build()
        }
        None => sdk_config(patience).await,
    };
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(patience.attempt)
        .operation_timeout(patience.total)
        .build();
    config.into_builder().timeout_config(timeouts).build()
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing answered.
    Unreachable(String),
    /// No Region, or no credentials: nothing was sent.
    NotConfigured(String),
    /// The credentials are not right, or not any more.
    Credentials(String),
    /// They may not do this.
    Denied,
    /// What was asked for is not there.
    Missing,
    /// Anything else that the service said.
    Refused(String),
}

impl Trouble {
    pub(crate) fn of<E, R>(error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        match error.code().unwrap_or_default() {
            "ResourceNotFoundException"
            | "AWS.SimpleQueueService.NonExistentQueue"
            | "QueueDoesNotExist" => return Self::Missing,
            "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" => {
                return Self::Denied;
            }
            code @ ("UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "MissingAuthenticationTokenException"
            | "IncompleteSignatureException") => return Self::Credentials(code.to_owned()),
            _ => {}
        }
        let root = root(error);
        match error {
            SdkError::ConstructionFailure(_) => Self::NotConfigured(missing(error)),
            SdkError::TimeoutError(_) => Self::Unreachable("no answer in time".to_owned()),
            SdkError::DispatchFailure(failure)
                if (failure.is_user() || failure.is_other()) && !is_lost(error) =>
            {
                Self::NotConfigured(missing(error))
            }
            SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => Self::Unreachable(root),
            _ => {
                let code = error.code().unwrap_or("no code");
                match error.message() {
                    Some(message) => Self::Refused(format!("{code}: {message}")),
                    None => Self::Refused(format!("{code}: {root}")),
                }
            }
        }
    }

    /// The finding: `action` is the right that is needed, `missing` what to say and do where the
    /// thing itself is not there.
    pub(crate) fn finding(
        self,
        check: &'static str,
        action: &str,
        missing: (&str, &str),
    ) -> Finding {
        match self {
            Self::Unreachable(why) => Finding::fault(
                check,
                format!("no answer: {why}"),
                "see that it runs and can be reached from here, and that the endpoint and the \
                 Region (AWS_REGION) are the right ones",
            ),
            Self::NotConfigured(why) => Finding::fault(
                check,
                format!("nothing could be asked, for want of a Region or credentials ({why})"),
                "set AWS_REGION and credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY), or name an endpoint",
            ),
            Self::Credentials(code) => Finding::fault(
                check,
                format!("the credentials are refused ({code})"),
                "renew them, and see that they are of the right account",
            ),
            Self::Denied => Finding::fault(
                check,
                format!("{action} is denied"),
                format!("grant {action} to whoever runs this check"),
            ),
            Self::Missing => Finding::fault(check, missing.0, missing.1),
            Self::Refused(said) => Finding::fault(
                check,
                format!("{action} was refused: {said}"),
                "see the service's message",
            ),
        }
    }
}

/// Whether the connection went away under the call, which the SDK does not tell from what it never
/// sent.
fn is_lost(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<hyper::Error>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// An error with all its causes.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The first cause, which names what went wrong; what lies above it only says that something did.
pub(crate) fn root(error: &(dyn Error + 'static)) -> String {
    // Some of the SDK's have several lines.
    one_line(&deepest(error))
}

fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// What is missing, without the list of all places that the SDK has looked for it in: the advice says
/// which of them to use.
fn missing(error: &(dyn Error + 'static)) -> String {
    let text = deepest(error);
    let first = text.lines().next().unwrap_or_default().trim();
    match first.strip_suffix(':') {
        // What announces the list goes with it.
        Some(announcing) => match announcing.rsplit_once(". ") {
            Some((missing, _)) => missing.to_owned(),
            None => announcing.to_owned(),
        },
        None => first.to_owned(),
    }
}
