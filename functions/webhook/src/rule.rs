//! `operation_key` rules: JMESPath over the event's JSON.

use std::fmt;

use serde_json::Value;

use crate::keys;

/// A compiled `operation_key`.
pub(crate) struct Rule(jmespath::Expression<'static>);

/// The rule yields nothing that names an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed;

impl Rule {
    /// Compiles a rule; `Err` says in one line what is wrong where.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        jmespath::compile(text).map(Self).map_err(|error| {
            let reason = error.reason.to_string().replace(['\n', '\r'], " ");
            format!("at character {}: {reason}", error.offset)
        })
    }

    /// The id that the rule finds: a text is the id itself, so that the same operation can be named
    /// elsewhere too; an array is joined, so that its parts keep their borders and types; any other
    /// value is joined as an array of one.
    pub(crate) fn id(&self, document: &Value) -> Result<String, Missed> {
        let found = self.0.search(document).map_err(|_| Missed)?;
        let value = serde_json::to_value(&found).map_err(|_| Missed)?;
        let id = match &value {
            Value::String(text) if keys::names(&value) => keys::id_of_text(text),
            Value::Array(parts) => return keys::id_of_parts(parts).ok_or(Missed),
            other => return keys::id_of_parts(std::slice::from_ref(other)).ok_or(Missed),
        };
        id.map_err(|_| Missed)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({:?})", self.0.as_str())
    }
}
