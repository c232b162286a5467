//! Reading variables one by one while collecting what is wrong with them.

use std::time::Duration;

use super::{Fault, Faults};

/// Reads variables and keeps their faults.
pub(super) struct Reader<L> {
    lookup: L,
    faults: Vec<Fault>,
}

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    pub(super) fn new(lookup: L) -> Self {
        Self {
            lookup,
            faults: Vec::new(),
        }
    }

    /// The value; `None` where it is not set or empty, as a template's empty parameter makes it.
    pub(super) fn text(&self, variable: &str) -> Option<String> {
        (self.lookup)(variable).filter(|text| !text.is_empty())
    }

    pub(super) fn optional<T>(
        &mut self,
        variable: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(&self.text(variable)?) {
            Ok(value) => Some(value),
            Err(found) => {
                self.fault(variable, found);
                None
            }
        }
    }

    pub(super) fn required<T>(
        &mut self,
        variable: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if self.text(variable).is_none() {
            self.fault(variable, "is required and not set");
        }
        self.optional(variable, parse)
    }

    pub(super) fn fault(&mut self, variable: &'static str, found: impl Into<String>) {
        self.faults.push(Fault {
            variable,
            found: found.into(),
        });
    }

    /// The faults, if there are any.
    pub(super) fn into_faults(self) -> Option<Faults> {
        (!self.faults.is_empty()).then_some(Faults(self.faults))
    }
}

/// Reads a whole number with its unit: `31d`, `12h`, `30m` or `90s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a whole number and a unit, such as 31d, 12h, 30m or 90s".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        'd' => 24 * 60 * 60,
        'h' => 60 * 60,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number = &text[..text.len() - unit.len_utf8()];
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "is too long".to_owned())
}
