//! The queue function.
