//! `--scope`: which keys a server accepts.

use std::fmt;

use firstclaim::{Key, Scope};

/// What stands between the parts of an id.
const BORDERS: [char; 3] = ['/', ':', '#'];

/// The keys that are accepted: those of one scope, or of it those whose id begins with some parts.
///
/// A beginning never ends inside a part: `thread#teams/website` accepts
/// `thread#teams/website:42:a1` and not `thread#teams/website-of-others:42:a1`, and a scope is never
/// the beginning of another.
///
/// ```
/// use firstclaim::Key;
/// use firstclaim_cli::claims::mcp::Allowed;
///
/// let allowed = Allowed::parse("thread#teams/website:4")?;
/// assert!(allowed.accepts(&Key::parse("thread#teams/website:4:a1").unwrap()));
/// assert!(!allowed.accepts(&Key::parse("thread#teams/website:42:a1").unwrap()));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    scope: Scope,
    beginning: String,
}

impl Allowed {
    /// Reads `scope` or `scope#beginning`.
    ///
    /// # Errors
    ///
    /// What is wrong with the scope, or with the beginning.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scope, beginning) = text.split_once('#').unwrap_or((text, ""));
        let scope = Scope::new(scope).map_err(|error| error.to_string())?;
        // What no id can begin with would accept nothing.
        if !beginning.is_empty() {
            Key::in_scope(&scope, beginning).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            scope,
            beginning: beginning.to_owned(),
        })
    }

    /// Whether a key is one of them.
    #[must_use]
    pub fn accepts(&self, key: &Key) -> bool {
        if key.scope() != self.scope.as_str() {
            return false;
        }
        let Some(rest) = key.id().strip_prefix(&self.beginning) else {
            return false;
        };
        self.beginning.is_empty()
            || self.beginning.ends_with(BORDERS)
            || rest.is_empty()
            || rest.starts_with(BORDERS)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}…", self.scope.as_str(), self.beginning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_ends_where_a_part_does() {
        let key = "thread#teams/website:42:a1";
        let cases = [
            ("thread", key, true),
            ("thread#", key, true),
            ("thread#teams/", key, true),
            ("thread#teams", key, true),
            ("thread#teams/website", key, true),
            ("thread#teams/website:42", key, true),
            (key, key, true),
            ("thread#team", key, false),
            ("thread#teams/web", key, false),
            ("thread#teams/website:4", key, false),
            ("thread#teams/website:42:a1b", key, false),
            ("thre", key, false),
            ("threads", key, false),
            ("thread", "threads#teams/website:42:a1", false),
            ("thread", "cli#thread#teams/website:42:a1", false),
            ("thread#teams", "thread#other/teams", false),
        ];
        for (allowed, key, accepted) in cases {
            let allowed = Allowed::parse(allowed).unwrap();
            let key = Key::parse(key).unwrap();
            assert_eq!(allowed.accepts(&key), accepted, "{allowed} {key}");
        }
    }

    #[test]
    fn what_no_key_can_begin_with_is_refused() {
        for wrong in ["", "#teams", "thread#a\u{1b}", "a\nb"] {
            assert!(Allowed::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
