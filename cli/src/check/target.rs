//! The targets: each answers. And the token that they are sent.

use std::time::Duration;

use aws_sdk_secretsmanager::Client as Secrets;
use queue::config::TokenSource;
use reqwest::{Client, Method, Url};

use super::finding::{Finding, bounded};
use super::senders::read_secret;
use super::settings::Settings;
use super::trouble::root;

/// Asks each target.
///
/// With `OPTIONS`, which HTTP defines as safe, without a body and without the token: no target that
/// keeps to HTTP does anything, whatever it does on `POST`. Any answer shows that it is there;
/// whether it takes the token and the operation only a real one can show.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    if settings.targets.is_empty() {
        let found = match settings.target_at_fault {
            true => {
                "TARGET_URL (--target-url) is set, but can't be used: see the line of the settings"
            }
            false => "TARGET_URL is not set, and there is no --target-url",
        };
        return vec![Finding::skipped("target", found)];
    }
    let http = match client(settings.limit) {
        Ok(http) => http,
        Err(error) => {
            return vec![Finding::fault(
                "target",
                format!("no HTTP client could be made: {}", root(&error)),
                "install the system's root certificates (ca-certificates)",
            )];
        }
    };
    let asked = settings.targets.iter().map(|(name, url)| {
        let http = http.clone();
        async move {
            let answered = bounded("target", settings.limit, ask(&http, url)).await;
            answered
                .unwrap_or_else(|hung| hung)
                .of(format!("{} ({name})", shown(url)))
        }
    });
    futures_util::future::join_all(asked).await
}

/// Looks at the token, without sending it anywhere.
pub(super) async fn check_token(settings: &Settings) -> Vec<Finding> {
    let finding = match &settings.token {
        TokenSource::SecretsManager(arn) => {
            let read = bounded("target-token", settings.limit, async {
                let config = settings.sdk(settings.secrets_manager.as_deref()).await;
                read_secret(&Secrets::new(&config), "target-token", arn).await
            });
            let finding = match read.await.unwrap_or_else(Err) {
                Ok(token) if sendable(&token) => Finding::ok("target-token", "can be read"),
                Ok(_) => Finding::fault(
                    "target-token",
                    "the secret is empty, or has characters that can't stand in a header",
                    "store the bare token: visible ASCII characters",
                ),
                Err(finding) => finding,
            };
            finding.of(arn)
        }
        TokenSource::Fixed(_) => {
            Finding::ok("target-token", "can stand in a header").of("TARGET_TOKEN")
        }
        _ => Finding::skipped("target-token", "the target is sent none"),
    };
    vec![finding]
}

pub(super) fn client(limit: Duration) -> Result<Client, reqwest::Error> {
    // The process may have one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("firstclaim/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        // The worker uses none either.
        .no_proxy()
        .timeout(limit)
        .build()
}

async fn ask(http: &Client, url: &Url) -> Finding {
    let answer = match http.request(Method::OPTIONS, url.clone()).send().await {
        Ok(answer) => answer,
        Err(error) if error.is_connect() => {
            return Finding::fault(
                "target",
                format!("no connection: {}", root(&error)),
                "see that it runs, and that name, port and certificate are the right ones",
            );
        }
        Err(error) => {
            return Finding::fault(
                "target",
                format!("connected, but no answer: {}", root(&error)),
                "see what the target's own log says",
            );
        }
    };
    let status = answer.status();
    let found = format!("answers (OPTIONS: {status})");
    match status.as_u16() {
        300..=399 => Finding::warning(
            "target",
            found,
            "redirects are not followed: name the address that it redirects to",
        ),
        500..=599 => Finding::warning("target", found, "see whether it is well"),
        _ => Finding::ok("target", found),
    }
}

fn sendable(token: &str) -> bool {
    let token = token.trim_end_matches(['\r', '\n']);
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A URL without its query, which can hold secrets.
fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    shown.to_string()
}
