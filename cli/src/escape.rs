//! Foreign text where a person reads it.

use std::fmt::{self, Display, Write};

use serde_json::value::RawValue;

/// Shows a text on a terminal without letting it act there: control characters, line and paragraph
/// separators, and the characters that turn or hide text are written as `\u{…}`.
///
/// ```
/// use firstclaim_cli::escape::Escaped;
///
/// assert_eq!(Escaped("order-1\u{1b}[2J").to_string(), r"order-1\u{1b}[2J");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if acts(c) => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Shows JSON text on a terminal without letting it act there: the same characters are written as
/// `\uXXXX`, so that a program reads the same values. JSON has them in its strings only.
#[derive(Clone, Copy, Debug)]
pub struct EscapedJson<'a>(pub &'a str);

impl Display for EscapedJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if acts(c) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(f, "\\u{unit:04x}")?;
                }
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// JSON without white space between its values, so that it fits into a line; its numbers and texts
/// are what they were. `None` for what is no JSON.
pub(crate) fn compact(json: &str) -> Option<Box<RawValue>> {
    let json = RawValue::from_string(json.to_owned()).ok()?;
    let (mut inside, mut escaped) = (false, false);
    let compact = json.get().chars().filter(|c| {
        let kept = inside || !c.is_ascii_whitespace();
        match c {
            '"' if !escaped => inside = !inside,
            _ => {}
        }
        escaped = inside && *c == '\\' && !escaped;
        kept
    });
    RawValue::from_string(compact.collect()).ok()
}

/// A text as one word of a shell, to be pasted. What acts on a terminal is written in the form that
/// bash, zsh and ksh read.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            return f.write_str(self.0);
        }
        if !self.0.chars().any(acts) {
            return write!(f, "'{}'", self.0.replace('\'', r"'\''"));
        }
        f.write_str("$'")?;
        for c in self.0.chars() {
            match c {
                '\'' | '\\' => write!(f, "\\{c}")?,
                c if acts(c) => write!(f, "\\U{:08x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('\'')
    }
}

/// A text of several lines as one line: what a colon announces follows it, and all else is a part of
/// its own.
///
/// ```
/// use firstclaim_cli::escape::one_line;
///
/// let text = "nothing was found. Attempted:\n  one: not set\n  two: not set\n";
/// let line = "nothing was found. Attempted: one: not set; two: not set";
/// assert_eq!(one_line(text), line);
/// ```
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part);
    }
    line
}

/// Whether a terminal or its font does something else than to show the character.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Zero width, and the marks, embeddings, overrides and isolates of direction.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags.
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        let hostile = "a\u{1b}]0;t\u{7}\u{9b}2J\r\n\u{7f}\u{202e}gnp.exe\u{200b}\u{2028}\u{feff}z";
        let shown = Escaped(hostile).to_string();
        assert_eq!(
            shown,
            r"a\u{1b}]0;t\u{7}\u{9b}2J\r\n\u{7f}\u{202e}gnp.exe\u{200b}\u{2028}\u{feff}z"
        );
    }

    #[test]
    fn json_keeps_its_values() {
        let hostile = serde_json::json!({ "text": "\u{9b}2J\u{202e}\u{e0041}\u{1b}z" });
        let shown = EscapedJson(&hostile.to_string()).to_string();
        assert_eq!(shown, r#"{"text":"\u009b2J\u202e\udb40\udc41\u001bz"}"#);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            hostile
        );
    }

    #[test]
    fn foreign_json_fits_into_a_line_with_its_digits_and_texts() {
        let shown = |json| compact(json).unwrap().get().to_owned();
        let json =
            "\t{ \"a \\\" b\\\\\" :\n 1.0e+2, \"c\": [ 12345678901234567890123,\r\n\"  \" ] }\n";
        let line = r#"{"a \" b\\":1.0e+2,"c":[12345678901234567890123,"  "]}"#;
        assert_eq!(shown(json), line);
        assert_eq!(shown(line), line);
        for none in ["", "{", "a b", "1 2"] {
            assert!(compact(none).is_none(), "{none}");
        }
    }

    #[test]
    fn a_shell_reads_a_quoted_text_as_the_text() {
        for (text, word) in [
            ("orders/1:a", "orders/1:a"),
            ("", "''"),
            ("a#1", "'a#1'"),
            ("$(touch x)", "'$(touch x)'"),
            ("it's; ls", r"'it'\''s; ls'"),
            ("k\u{202e}'\\", r"$'k\U0000202e\'\\'"),
        ] {
            assert_eq!(Quoted(text).to_string(), word);
        }
    }

    #[test]
    fn what_people_write_stays_readable() {
        for text in [
            "token#order-1",
            "h\u{e9}llo, \u{4e16}\u{754c} \u{1f980}",
            r"C:\path",
            "",
        ] {
            assert_eq!(Escaped(text).to_string(), text);
        }
    }
}
