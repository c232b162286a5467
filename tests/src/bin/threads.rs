//! A threads server to try the worker with: it keeps threads in memory, has no idempotency, and
//! shows each reply and activity as it comes.
//!
//! ```text
//! cargo run -p integration --bin threads
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Duration;

use integration::threads::ThreadsServer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let server = ThreadsServer::start().await?;
    println!("threads server  {}   ctrl-c ends it", server.url());
    let (mut replies, mut activities) = (0, 0);
    loop {
        let said = server.activities();
        for activity in &said[activities..] {
            match activity.is_empty() {
                true => println!("activity        none"),
                false => println!("activity        {}", activity.escape_debug()),
            }
        }
        activities = said.len();
        let posted = server.posted();
        for (repo, number, reply) in &posted[replies..] {
            println!("reply {:<9} {repo} thread #{number}", reply.id);
            for line in reply.body.lines() {
                println!("                {}", line.escape_debug());
            }
            println!("                links {}", reply.links);
        }
        replies = posted.len();
        // Nothing waits for this: it is shown when it is there.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
