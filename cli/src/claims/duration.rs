//! Durations as people write them: `90s`, `5m`, `1h30m`, `31d`.

use std::time::Duration;

/// Reads a duration.
///
/// ```
/// use std::time::Duration;
/// use firstclaim_cli::claims::duration::parse;
///
/// assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
/// assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
/// assert!(parse("5").is_err());
/// ```
///
/// # Errors
///
/// What can be read instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number and a unit: 500ms, 90s, 5m, 1h30m, 31d".to_owned();
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (unit, behind) = rest.split_at(letters);
        let millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 60 * 60 * 1000,
            "d" => 24 * 60 * 60 * 1000,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(wrong)?;
        rest = behind;
    }
    Ok(total)
}

/// A duration in its largest unit, for people: `3 s`, `12 min`, `5 h`, `2 d`.
#[must_use]
pub fn about(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 => format!("{} ms", duration.as_millis()),
        1..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up_and_nothing_else_is_read() {
        assert_eq!(parse("1d2h3m4s5ms"), Ok(Duration::from_millis(93_784_005)));
        assert_eq!(parse(" 5m "), Ok(Duration::from_secs(300)));
        for wrong in ["", "5", "m", "-5m", "5 m", "1.5h", "5x", "99999999999999d"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn about_stays_in_one_unit() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (600, "10 min"), (7200, "2 h")] {
            assert_eq!(about(Duration::from_secs(seconds)), text);
        }
        assert_eq!(about(Duration::from_millis(20)), "20 ms");
    }
}
