//! Who may send to the local stack: the senders' file, or one sender of each scheme with a secret
//! that everybody knows.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The development secret of each scheme's sender, which is named like its scheme.
pub(crate) const DEVELOPMENT: [(&str, &str); 8] = [
    ("github", "firstclaim-development-secret"),
    ("gitlab", "firstclaim-development-gitlab-token"),
    ("stripe", "whsec_firstclaim-development-secret"),
    ("slack", "firstclaim-development-slack-secret"),
    ("shopify", "firstclaim-development-shopify-secret"),
    // `whsec_` and the Base64 of 30 bytes.
    ("standard", "whsec_Zmlyc3RjbGFpbS1kZXZlbG9wbWVudC1vbmx5ISEh"),
    ("twilio", "firstclaim-development-twilio-token"),
    ("token", TOKEN),
];

/// The token of the sender `token`.
pub(super) const TOKEN: &str = "firstclaim-development-token";

/// The senders of a local stack. Its `Debug` hides their secrets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Senders {
    /// What the functions get as `SENDERS`.
    pub(super) json: String,
    /// Name and scheme of each, as far as they are texts.
    pub(super) listed: Vec<(String, String)>,
    /// The file, if there is one: its secrets are nobody's business.
    pub(super) file: Option<PathBuf>,
}

/// Why the senders' file can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendersError {
    /// There is none, or it can't be read.
    #[error("the senders' file {} can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("the senders' file {} is no JSON", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON, but not an object that names senders.
    #[error(
        "the senders' file {} must hold an object with a member for each sender: \
         {{\"<name>\": {{\"scheme\": \"…\", \"secrets\": [\"…\"]}}}}",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
    },
    /// A sender in it is not right.
    #[error("the senders' file {}: {faults}", path.display())]
    Faults {
        /// The file.
        path: PathBuf,
        /// Which, and what is wrong.
        faults: String,
    },
}

impl Senders {
    /// The senders of `file`; without one, those with the development secrets.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, SendersError> {
        let Some(path) = file else {
            return Ok(Self::development());
        };
        let path = path.to_owned();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(SendersError::Read { path, source }),
        };
        let json: Value = match serde_json::from_str(&text) {
            Ok(json) => json,
            Err(source) => return Err(SendersError::Json { path, source }),
        };
        match json {
            Value::Object(senders) if !senders.is_empty() => Ok(Self {
                listed: listed(&senders),
                json: text,
                file: Some(path),
            }),
            _ => Err(SendersError::Shape { path }),
        }
    }

    fn development() -> Self {
        let senders: Map<String, Value> = DEVELOPMENT
            .into_iter()
            .map(|(scheme, secret)| {
                let sender = json!({ "scheme": scheme, "secrets": [secret] });
                (scheme.to_owned(), sender)
            })
            .collect();
        Self {
            listed: listed(&senders),
            json: Value::Object(senders).to_string(),
            file: None,
        }
    }

    /// The name of a sender that can be tried without a signature.
    pub(super) fn token_sender(&self) -> Option<&str> {
        let mut listed = self.listed.iter();
        let (name, _) = listed.find(|(_, scheme)| scheme == "token")?;
        Some(name)
    }
}

impl fmt::Debug for Senders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Senders")
            .field("listed", &self.listed)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

fn listed(senders: &Map<String, Value>) -> Vec<(String, String)> {
    let scheme = |sender: &Value| sender.get("scheme")?.as_str().map(str::to_owned);
    senders
        .iter()
        .map(|(name, sender)| (name.clone(), scheme(sender).unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_a_development_secret() {
        let schemes = DEVELOPMENT.map(|(scheme, _)| scheme);
        assert_eq!(schemes, webhook::signing::SCHEMES);
        assert_eq!(Senders::read(None).unwrap().listed.len(), schemes.len());
    }

    #[test]
    fn a_file_says_which_senders_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("senders.json");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(r#"{"shop": {"scheme": "token", "secrets": ["a-long-enough-secret"]}}"#);
        let senders = Senders::read(Some(&path)).unwrap();
        assert_eq!(senders.listed, [("shop".to_owned(), "token".to_owned())]);
        assert_eq!(senders.token_sender(), Some("shop"));

        write("{\n  \"shop\": }");
        let error = Senders::read(Some(&path)).unwrap_err();
        let SendersError::Json { source, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(source.line(), 2);
        for shape in ["[]", "{}", "1"] {
            write(shape);
            let error = Senders::read(Some(&path)).unwrap_err();
            assert!(
                matches!(error, SendersError::Shape { .. }),
                "{shape}: {error:?}"
            );
        }
        let error = Senders::read(Some(&folder.path().join("none.json"))).unwrap_err();
        assert!(matches!(error, SendersError::Read { .. }), "{error:?}");
    }
}
