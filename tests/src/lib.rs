//! The harness of the integration tests: one engine per run, a [`Lab`] per test, and what a
//! deployment has around the handlers, as stubs that a test can look into and make fail.
//!
//! Everything listens on loopback at ports that the system chooses, belongs to one test, and is
//! gone when the test ends.

pub mod deliveries;
pub mod engine;
pub mod faults;
pub mod footprint;
mod http;
pub mod lab;
pub mod peers;
pub mod poll;
pub mod process;
pub mod proxy;
pub mod queue_stub;
pub mod responders;
pub mod runtime_api;
pub mod soak;
pub mod target;
pub mod template;
pub mod threads;
pub mod throughput;

pub use engine::Engine;
pub use lab::Lab;
