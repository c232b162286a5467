//! The threads server: it is there, takes the token, and has the tools.

use aws_config::SdkConfig;
use firstclaim::clock::{Source, SystemSource};
use queue::config::TokenSource;
use queue::threads::{Threads, ThreadsError};

use super::finding::{Finding, bounded};
use super::settings::Settings;

/// Asks the server for its tools, which changes nothing there; with the token, since a server says
/// nothing to whom it does not know.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let Some((threads, mut target)) = settings.threads.clone() else {
        return vec![Finding::skipped("threads", "THREADS_URL is not set")];
    };
    // Only its connections are used.
    target.token = TokenSource::None;
    let mut subject = threads.url.clone();
    subject.set_query(None);
    subject.set_fragment(None);
    let asked = bounded("threads", settings.limit, async {
        let config = match threads.token {
            TokenSource::SecretsManager(_) => {
                settings.sdk(settings.secrets_manager.as_deref()).await
            }
            _ => SdkConfig::builder().build(),
        };
        let server = queue::Target::new(target, &config)
            .and_then(|target| Threads::new(threads, &target, &config));
        let Ok(server) = server else {
            return Finding::fault(
                "threads",
                "no HTTP client could be made",
                "install the system's root certificates (ca-certificates)",
            );
        };
        let missing = server
            .missing_tools(settings.limit, SystemSource.now())
            .await;
        found(missing)
    });
    vec![asked.await.unwrap_or_else(|hung| hung).of(subject.as_str())]
}

fn found(missing: Result<Vec<&'static str>, ThreadsError>) -> Finding {
    let error = match missing {
        Ok(missing) if missing.is_empty() => {
            return Finding::ok("threads", "answers, and has the tools");
        }
        Ok(missing) => {
            return Finding::fault(
                "threads",
                format!("answers, and has no {}", missing.join(", ")),
                "see that it is the threads server's own MCP endpoint, and what the token may do",
            );
        }
        Err(error) => error,
    };
    let advice = match error {
        ThreadsError::Refused { status: 401 | 403 } => {
            "see that THREADS_TOKEN, or the secret of THREADS_TOKEN_SECRET_ARN, is the one it gave"
        }
        ThreadsError::NoToken => "see that the secret is there and may be read",
        ThreadsError::Unreachable | ThreadsError::TimedOut => {
            "see that it runs, and that name, port and certificate are the right ones"
        }
        _ => "see that THREADS_URL is its MCP endpoint, and what its own log says",
    };
    Finding::fault("threads", error.to_string(), advice)
}
