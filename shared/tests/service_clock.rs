//! The own clock against the service's `Date`, over a stub that answers every call the same way.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use firstclaim::aws::{Patience, loopback_config};
use firstclaim::clock::{EpochMillis, Source, SystemSource};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, ClaimError, Claims, Config, Failure, Key, RunError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_clock_that_is_an_hour_fast_is_refused_before_the_work_and_the_claim_given_back() {
    let an_hour_ago = SystemSource.now().before(Duration::from_secs(3600));
    let (endpoint, calls) = service(an_hour_ago, Duration::ZERO).await;
    let ran = claims(&endpoint)
        .await
        .once(key())
        .lease(Duration::from_secs(60))
        .run(|_| async { Ok::<(), Failure<String>>(()) })
        .await;
    let Err(RunError::Claim(ClaimError::Clock { off_by_ms, .. })) = ran else {
        panic!("the operation ran, or was refused for another reason: {ran:?}");
    };
    assert!((3_599_000..3_602_000).contains(&off_by_ms), "{off_by_ms}");
    assert_eq!(calls.load(Ordering::SeqCst), 2, "the claim and its release");
}

#[tokio::test]
async fn a_right_clock_is_compared_without_a_call_of_its_own() {
    let (endpoint, calls) = service(SystemSource.now(), Duration::ZERO).await;
    let outcome = claims(&endpoint)
        .await
        .once(key())
        .lease(Duration::from_secs(60))
        .run(|_| async { Ok::<_, Failure<String>>(7) })
        .await
        .unwrap();
    assert_eq!(outcome.answer, Answer::Performed(7));
    assert_eq!(
        calls.load(Ordering::SeqCst),
        2,
        "the claim and its completion"
    );
}

/// Found by the fault campaign with processes: the time that an answer takes was counted as a
/// difference of the clocks.
#[tokio::test]
async fn a_slow_answer_is_no_difference_of_the_clocks() {
    let delay = Duration::from_millis(1300);
    let (endpoint, _) = service(SystemSource.now(), delay).await;
    let config = Config {
        grace: Duration::from_millis(200),
        ..Config::default()
    };
    let outcome = claims_with(&endpoint, config)
        .await
        .once(key())
        .lease(Duration::from_secs(60))
        .run(|_| async { Ok::<_, Failure<String>>(7) })
        .await
        .unwrap();
    assert_eq!(outcome.answer, Answer::Performed(7));
}

/// What a slow answer may have hidden is looked for again.
#[tokio::test]
async fn a_clock_is_compared_again_after_an_answer_that_says_too_little() {
    let delay = Duration::from_millis(1300);
    // Its date stands still, so that the own clock is fast by as much when the second claim comes.
    let (endpoint, _) = service(SystemSource.now(), delay).await;
    let config = Config {
        grace: Duration::from_millis(200),
        ..Config::default()
    };
    let claims = claims_with(&endpoint, config).await;
    let run = |id: &str| {
        let once = claims.once(Key::new("clock", id).unwrap());
        once.lease(Duration::from_secs(60))
            .run(|_| async { Ok::<_, Failure<String>>(7) })
    };
    assert_eq!(run("1").await.unwrap().answer, Answer::Performed(7));
    let again = run("2").await;
    assert!(
        matches!(again, Err(RunError::Claim(ClaimError::Clock { .. }))),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_deadline_that_the_platform_gave_is_trusted() {
    let an_hour_ago = SystemSource.now().before(Duration::from_secs(3600));
    let (endpoint, _) = service(an_hour_ago, Duration::ZERO).await;
    let outcome = claims(&endpoint)
        .await
        .once(key())
        .deadline(SystemSource.now().after(Duration::from_secs(60)))
        .run(|_| async { Ok::<_, Failure<String>>(7) })
        .await
        .unwrap();
    assert_eq!(outcome.answer, Answer::Performed(7));
}

fn key() -> Key {
    Key::new("clock", "1").unwrap()
}

async fn claims(endpoint: &str) -> Claims<DynamoDb> {
    claims_with(endpoint, Config::default()).await
}

async fn claims_with(endpoint: &str, config: Config) -> Claims<DynamoDb> {
    let patience = Patience {
        attempt: Duration::from_secs(20),
        total: Duration::from_secs(20),
        ..Patience::default()
    };
    let sdk = loopback_config(endpoint, patience).await;
    let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(&sdk), "claims");
    Claims::new(store, config).unwrap()
}

/// A service whose clock stands at `now`, and whose first answer takes `delay`; counts the calls.
async fn service(now: EpochMillis, delay: Duration) -> (String, Arc<AtomicUsize>) {
    let date = DateTime::from_secs(now.seconds().0)
        .fmt(DateTimeFormat::HttpDate)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let delay = match counted.fetch_add(1, Ordering::SeqCst) {
                0 => delay,
                _ => Duration::ZERO,
            };
            tokio::spawn(answer(stream, date.clone(), delay));
        }
    });
    (endpoint, calls)
}

async fn answer(mut stream: TcpStream, date: String, delay: Duration) {
    let mut request = Vec::new();
    while !whole(&request) {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    tokio::time::sleep(delay).await;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nDate: {date}\r\nConnection: close\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// Whether the head and as much body as it announces have come.
fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    body.len() >= length
}
