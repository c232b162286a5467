//! Settings of the threads server.

use reqwest::Url;

use super::read::Reader;
use super::{TokenSource, target_url, token};

/// The server that events of threads are told to: MCP over HTTP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadsSettings {
    /// `THREADS_URL`: its MCP endpoint.
    pub url: Url,
    /// `THREADS_TOKEN` or `THREADS_TOKEN_SECRET_ARN`.
    pub token: TokenSource,
}

impl ThreadsSettings {
    /// A server that asks for no token.
    #[must_use]
    pub fn at(url: Url) -> Self {
        Self {
            url,
            token: TokenSource::None,
        }
    }
}

/// What is set; `None` where no server is, which is said of a token alone.
pub(super) fn read<L: Fn(&str) -> Option<String>>(read: &mut Reader<L>) -> Option<ThreadsSettings> {
    let allow_http = read.text("ALLOW_HTTP").as_deref() == Some("true");
    let given = read.text("THREADS_URL").is_some();
    let url = read.optional("THREADS_URL", |text| {
        target_url(text, "THREADS_TOKEN", allow_http)
    });
    let token = token(read, "THREADS_TOKEN", "THREADS_TOKEN_SECRET_ARN");
    if !given {
        for variable in ["THREADS_TOKEN", "THREADS_TOKEN_SECRET_ARN"] {
            if read.text(variable).is_some() {
                read.fault(variable, "is set without THREADS_URL");
            }
        }
    }
    Some(ThreadsSettings { url: url?, token })
}
