//! The worker, fed with events as Lambda brings them: a store and queues in memory, and a target
//! on a loopback socket that answers, hangs or breaks off.

mod answers;
mod batches;
mod groups;
mod hold;
mod logs;
mod outage;
mod random;
mod rig;
mod samples;
mod sources;
mod sqs;
mod stub;
mod target;
mod threads;
