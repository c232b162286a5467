//! The answer to one who was not first.

use firstclaim::{Answer, Key, Outcome, Record, Status};
use serde::Serialize;
use serde_json::{Value, json};

use super::ending::Ending;
use super::stored::Stored;
use super::{Run, told};
use crate::claims::Error;
use crate::claims::answered::Answered;
use crate::claims::view::Text;

impl Run<'_> {
    /// Somebody else was first: their result, or why there is none.
    pub(super) async fn answer(&self, outcome: Outcome<String>) -> Result<Ending, Error> {
        let json = self.options.place.json;
        let (key, attempt) = (outcome.key.clone(), outcome.attempt);
        let text = match &outcome.answer {
            Answer::Replayed(text) => Some(text.clone()),
            // What is remembered of a failure can be more than its code and message.
            Answer::ReplayedFailure(_) => self.failed_result(&key).await?,
            _ => None,
        };
        let Some(text) = text else {
            let store = self.options.place.pasted(&self.place);
            let answered = Answered::of(&outcome, &store);
            return Ok(Ending {
                json: json.then(|| answered.json(&outcome)),
                ..Ending::important(answered.code, answered.text)
            });
        };
        let by = outcome.origin.request.as_deref();
        let by = by.map_or_else(String::new, |request| format!(", claimed by {request}"));
        let replayed = |more: &str| format!("replayed {key}, attempt {attempt}{by}: {more}");
        Ok(match serde_json::from_str::<Stored>(&text) {
            Ok(stored) => {
                let code = stored.exit_code();
                let more = format!("{}{}", told(code), stored.cut());
                Ending {
                    matters: false,
                    json: json.then(|| stored.json(&key, attempt, "replayed", code)),
                    replay: (!json).then_some(stored),
                    ..Ending::important(code, replayed(&more))
                }
            }
            // Recorded by another tool, or by `complete`.
            Err(_) => {
                let shown = json!({
                    "id": key,
                    "outcome": "replayed",
                    "attempt": attempt,
                    "exit_code": 0,
                });
                let plain = serde_json::from_str::<String>(&text).ok();
                Ending {
                    matters: false,
                    json: json.then(|| with_data(&shown, &text)),
                    text: (!json).then(|| plain.unwrap_or(text)),
                    ..Ending::important(0, replayed("a result that no run made"))
                }
            }
        })
    }

    async fn failed_result(&self, key: &Key) -> Result<Option<String>, Error> {
        let record: Option<Record> = self.claims.read(key).await?;
        let Some(record) = record.filter(|record| record.status == Status::Failed) else {
            return Ok(None);
        };
        let text = self.claims.result(&record).await?;
        Ok(text.filter(|text| serde_json::from_str::<Stored>(text).is_ok()))
    }
}

/// An object with one member more, `data`: foreign JSON with its digits.
fn with_data(shown: &Value, data: &str) -> String {
    #[derive(Serialize)]
    struct With<'a> {
        #[serde(flatten)]
        shown: &'a Value,
        data: Text,
    }
    let data = Text::of(data);
    // Texts and numbers: writing them can't fail.
    serde_json::to_string(&With { shown, data }).unwrap_or_default()
}
