//! Killed at any moment and started again: every event reaches the queue, and none is passed over.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use firstclaim_cli::dev::sqs::{self, Settings, Storage};

use crate::lab::{Lab, until};
use crate::server::{Log, Server, key};

const EVENTS: usize = 40;

/// How many processes are killed while they follow.
const KILLS: usize = 15;

#[test]
fn killed_at_any_moment_every_event_reaches_the_queue_and_none_is_skipped() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let queues = [Settings::new("work")];
    let server = runtime
        .block_on(sqs::Server::start(&queues, &Storage::Memory))
        .unwrap();
    let queue = server.queue("work").unwrap();
    let log = Log::of(EVENTS);
    let chance = Chance::new(0x5eed);
    let from = Server::start({
        let chance = chance.clone();
        // Every connection breaks off somewhere, mostly in the middle of an event.
        move |request, stream| log.serve(request, stream, 1, Some(150 + chance.below(1500)))
    });
    let lab = Lab::new();
    // Slow, so that most kills meet an event that is being handed over.
    let between = proxy(server.endpoint(), &chance);
    let url = sqs::queue_url(&between, "work");
    let mut received: Vec<String> = Vec::new();
    let receive = |received: &mut Vec<String>| {
        while let [message] = &queue.receive(1, None).unwrap()[..] {
            let body: serde_json::Value = serde_json::from_str(&message.draft.body).unwrap();
            received.push(body["key"].as_str().unwrap().to_owned());
            queue.delete(&message.receipt).unwrap();
        }
    };
    let mut killed = 0;
    while killed < KILLS {
        let running = lab.tail(&from.url, &["--queue", &url]);
        running.wait_for_stderr("following");
        let lives = u64::try_from(chance.below(120)).unwrap();
        thread::sleep(Duration::from_millis(lives));
        killed += usize::from(running.kill());
        // Read first: what lies before it must be in the queue by now.
        let position = lab.id();
        receive(&mut received);
        let there: BTreeSet<&String> = received.iter().collect();
        let upto = position.map_or(0, |id| id[1..].parse::<usize>().unwrap());
        for number in 1..=upto {
            assert!(
                there.contains(&key(number)),
                "{number} was skipped at {upto}"
            );
        }
    }
    let last = lab.tail(&from.url, &["--queue", &url]);
    until("the last event", || {
        (lab.id()? == format!("e{EVENTS}")).then_some(())
    });
    last.stop().with(0);
    receive(&mut received);
    let there: BTreeSet<String> = received.iter().cloned().collect();
    assert_eq!(there, (1..=EVENTS).map(key).collect());
}

/// The endpoint, behind a connection that takes its time, and loses requests and replies.
fn proxy(endpoint: &str, chance: &Chance) -> String {
    let to = endpoint["http://".len()..].to_owned();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let chance = chance.clone();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let service = TcpStream::connect(&to).unwrap();
            let back = (service.try_clone().unwrap(), client.try_clone().unwrap());
            for (mut from, mut to) in [(client, service), back] {
                let chance = chance.clone();
                thread::spawn(move || {
                    let mut buffer = [0; 8192];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        let pause = u64::try_from(chance.below(20)).unwrap();
                        thread::sleep(Duration::from_millis(pause));
                        if chance.below(12) == 0 || to.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    // One of them may be closed already.
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    url
}

/// Numbers by chance, the same in each run. Clones share them.
#[derive(Clone)]
pub(crate) struct Chance(std::sync::Arc<AtomicU64>);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(std::sync::Arc::new(AtomicU64::new(seed)))
    }

    pub(crate) fn below(&self, end: usize) -> usize {
        // Weyl's sequence, mixed as SplitMix64 does.
        let mut mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed >> 33) % u64::try_from(end).unwrap()).unwrap()
    }
}
