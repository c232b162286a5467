//! The answers, and what they say together.

use std::fmt::Write;

use reqwest::Client;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::Error;
use super::delivery::Delivery;
use crate::check::root;
use crate::dev::is_loopback;
use crate::escape::{Escaped, EscapedJson};

/// How much of an answer is read, in bytes.
const LIMIT: usize = 1024 * 1024;

/// What the problems of firstclaim are called.
const PROBLEM: &str = "urn:firstclaim:problem:";

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// 1 for the first.
    pub number: u64,
    /// The delivery's id.
    pub delivery: Option<String>,
    /// The HTTP status; `None` where no answer came.
    pub status: Option<u16>,
    /// `accepted`, `replayed`, `answered`, `no answer`, or what the problem is called.
    pub answer: String,
    /// The operation's key, if the answer has one.
    pub key: Option<String>,
    /// The problem's title, or why no answer came.
    pub said: Option<String>,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Whether no connection was made.
    #[serde(skip)]
    pub(super) never_sent: bool,
    /// Whether nobody listened.
    #[serde(skip)]
    pub(super) refused: bool,
}

/// Sends the delivery once.
pub(super) async fn send(http: &Client, delivery: &Delivery, number: u64) -> Answer {
    let started = Instant::now();
    let request = http
        .post(&delivery.url)
        .headers(delivery.headers.clone())
        .body(delivery.body.clone());
    let sent = match request.send().await {
        Ok(answer) => read(answer).await,
        Err(error) => Err(error),
    };
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let blank = Answer {
        number,
        delivery: delivery.id.clone(),
        status: None,
        answer: "no answer".to_owned(),
        key: None,
        said: None,
        ms,
        never_sent: false,
        refused: false,
    };
    match sent {
        Ok(said) => Answer {
            status: Some(said.status),
            answer: said.word(),
            key: said.text("key"),
            said: said.problem().and(said.text("title")),
            ..blank
        },
        Err(error) => Answer {
            said: Some(why(&error)),
            never_sent: error.is_connect(),
            refused: was_refused(&error),
            ..blank
        },
    }
}

/// What came back.
struct Said {
    status: u16,
    reason: &'static str,
    replayed: bool,
    body: Option<Value>,
}

async fn read(mut answer: reqwest::Response) -> Result<Said, reqwest::Error> {
    let status = answer.status();
    let replayed = answer.headers().get("idempotent-replayed");
    let replayed = replayed.is_some_and(|value| value == "true");
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > LIMIT {
            break;
        }
    }
    Ok(Said {
        status: status.as_u16(),
        reason: status.canonical_reason().unwrap_or("refused"),
        replayed,
        body: serde_json::from_slice(&body).ok(),
    })
}

impl Said {
    fn text(&self, member: &str) -> Option<String> {
        Some(self.body.as_ref()?.get(member)?.as_str()?.to_owned())
    }

    /// What the problem is called, if it is one of ours.
    fn problem(&self) -> Option<String> {
        let problem = self.text("type")?;
        Some(problem.strip_prefix(PROBLEM)?.to_owned())
    }

    fn word(&self) -> String {
        match (self.status, self.problem()) {
            (200..=299, _) if self.replayed => "replayed".to_owned(),
            (202, _) => "accepted".to_owned(),
            (200..=299, _) => "answered".to_owned(),
            (_, Some(problem)) => problem,
            (_, None) => self.reason.to_lowercase(),
        }
    }
}

fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    root(error)
}

fn was_refused(error: &reqwest::Error) -> bool {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref().map(std::io::Error::kind);
        if kind == Some(std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The answers to one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// What was sent where.
    heading: String,
    /// In the order of sending.
    pub answers: Vec<Answer>,
}

impl Answers {
    /// The answers, of which at least one has come.
    pub(super) fn of(delivery: Delivery, answers: Vec<Answer>) -> Result<Self, Error> {
        let came = answers.iter().any(|answer| answer.status.is_some());
        match answers.first() {
            Some(first) if !came => Err(Error::NoAnswer {
                why: first.said.clone().unwrap_or_default(),
                hint: match first.refused && is_loopback(&delivery.url) {
                    true => "; is `firstclaim dev` running?",
                    false => "",
                },
                url: delivery.url,
            }),
            _ => {
                let id = delivery.id.map(|id| format!(", delivery {id}"));
                Ok(Self {
                    heading: format!(
                        "{} to {}{}",
                        delivery.what,
                        delivery.url,
                        id.unwrap_or_default()
                    ),
                    answers,
                })
            }
        }
    }

    /// 0 where each was taken, or told to come back while another one was taken; 75 where all were
    /// told to come back; 69 where one got no answer; else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let statuses = || self.answers.iter().map(|answer| answer.status);
        let taken = |status: Option<u16>| status.is_some_and(|code| (200..300).contains(&code));
        let later = |status: Option<u16>| status == Some(409);
        if statuses().any(|status| !taken(status) && !later(status) && status.is_some()) {
            1
        } else if statuses().any(|status| status.is_none()) {
            69
        } else if statuses().any(taken) {
            0
        } else {
            75
        }
    }

    /// A table, and a last line that counts.
    #[must_use]
    pub fn to_text(&self) -> String {
        let widest = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
        let number = widest(&mut self.answers.iter().map(|row| row.number.to_string().len()));
        let word = widest(&mut self.answers.iter().map(|row| row.answer.chars().count())).max(8);
        let ms = widest(&mut self.answers.iter().map(|row| row.ms.to_string().len())).max(2);
        let mut text = format!("{}\n\n", Escaped(&self.heading));
        // Writing to a text can't fail.
        let _ = writeln!(
            text,
            "{:>number$}  status  {:<word$}  {:>ms$}  key",
            "#", "answer", "ms"
        );
        for row in &self.answers {
            let status = row
                .status
                .map_or("-".to_owned(), |status| status.to_string());
            let last = row.key.as_ref().or(row.said.as_ref());
            let line = format!(
                "{:>number$}  {status:<6}  {:<word$}  {:>ms$}  {}",
                row.number,
                row.answer,
                row.ms,
                last.map_or("-", String::as_str)
            );
            let _ = writeln!(text, "{}", Escaped(&line));
        }
        let _ = writeln!(text, "\n{}", Escaped(&self.count()));
        text
    }

    /// One JSON object per line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        for answer in &self.answers {
            // Texts, numbers and nulls are always JSON.
            if let Ok(json) = serde_json::to_string(answer) {
                let _ = writeln!(text, "{}", EscapedJson(&json));
            }
        }
        text
    }

    /// How many answers of each kind there are: the good ones first, then in the order in which they
    /// came.
    fn count(&self) -> String {
        let mut counts: Vec<(&str, usize)> = vec![("accepted", 0), ("replayed", 0)];
        for answer in &self.answers {
            match counts.iter_mut().find(|(word, _)| *word == answer.answer) {
                Some((_, count)) => *count += 1,
                None => counts.push((&answer.answer, 1)),
            }
        }
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        let noun = if self.answers.len() == 1 {
            "answer"
        } else {
            "answers"
        };
        format!("{} {noun}: {}", self.answers.len(), counts.join(", "))
    }
}
