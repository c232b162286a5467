//! Claims.
pub(crate) fn tests() -> Vec<crate::registry::Test> {
    vec![]
}
