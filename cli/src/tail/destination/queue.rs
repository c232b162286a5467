//! An SQS queue, standard or FIFO.

use std::time::Duration;

use aws_config::Region;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::send_message::SendMessageError;
use webhook::{Message, Outbox, SendError, Sqs};

use super::Handed;
use crate::check::{Trouble, root, sdk};
use crate::tail::event::Event;

/// How long one try may take, with the SDK's own.
const LIMIT: Duration = Duration::from_secs(15);

/// A queue by its URL.
#[derive(Debug)]
pub(in crate::tail) struct Queue(Sqs);

impl Queue {
    /// The queue at `url`, which also tells the service's endpoint and Region.
    pub(in crate::tail) async fn new(url: &str) -> Self {
        let uri = url.parse::<axum::http::Uri>().unwrap_or_default();
        let config = match region(uri.host().unwrap_or_default()) {
            Some(region) => {
                let config = sdk(None, LIMIT).await.into_builder();
                config.region(Region::new(region.to_owned())).build()
            }
            None => {
                let scheme = uri.scheme_str().unwrap_or("https");
                let authority = uri.authority().map_or("", |authority| authority.as_str());
                sdk(Some(&format!("{scheme}://{authority}")), LIMIT).await
            }
        };
        Self(Sqs::new(Client::new(&config), url))
    }

    pub(super) async fn send(&self, event: &Event) -> Handed {
        let message = Message {
            body: event.body.clone(),
            group: event.group.clone(),
        };
        match self.0.send(&message).await {
            Ok(()) => Handed::Done,
            Err(SendError::TooLarge { bytes }) => {
                Handed::Never(format!("its {bytes} bytes are more than the queue takes"))
            }
            Err(SendError::Refused(cause) | SendError::Unanswered(cause)) => {
                match cause.downcast_ref::<SdkError<SendMessageError>>() {
                    Some(error) => judge(error),
                    None => later(root(&*cause)),
                }
            }
            Err(error) => later(root(&error)),
        }
    }
}

fn judge(error: &SdkError<SendMessageError>) -> Handed {
    match error.code().unwrap_or_default() {
        "InvalidMessageContents" => {
            return Handed::Never("it has characters that no queue takes".to_owned());
        }
        code @ ("InvalidParameterValue" | "InvalidAddress" | "UnsupportedOperation") => {
            return Handed::Wrong(format!("{code}: {}", error.message().unwrap_or_default()));
        }
        _ => {}
    }
    match Trouble::of(error) {
        Trouble::Missing => Handed::Wrong("there is no such queue".to_owned()),
        Trouble::Denied => Handed::Wrong("sqs:SendMessage is denied".to_owned()),
        Trouble::Credentials(code) => {
            Handed::Wrong(format!("the credentials are refused ({code})"))
        }
        Trouble::NotConfigured(why) => {
            Handed::Wrong(format!("no Region or no credentials were found ({why})"))
        }
        Trouble::Unreachable(why) | Trouble::Refused(why) => later(why),
    }
}

fn later(why: String) -> Handed {
    Handed::Later { why, asked: None }
}

/// The Region in the name of an AWS endpoint.
fn region(host: &str) -> Option<&str> {
    let (region, domain) = host.strip_prefix("sqs.")?.split_once('.')?;
    ["amazonaws.com", "amazonaws.com.cn"]
        .contains(&domain)
        .then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_s_url_tells_its_region() {
        assert_eq!(region("sqs.eu-west-1.amazonaws.com"), Some("eu-west-1"));
        assert_eq!(
            region("sqs.cn-north-1.amazonaws.com.cn"),
            Some("cn-north-1")
        );
        for other in ["127.0.0.1", "sqs.example.com", "queue.amazonaws.com", ""] {
            assert_eq!(region(other), None, "{other}");
        }
    }
}
