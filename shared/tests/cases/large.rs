//! Results that are awkward to keep: large, very large, not writable. The operation never runs
//! again because of them.

use std::collections::HashMap;

use firstclaim::record::{Data, Omitted};
use firstclaim::store::memory::Fault;
use firstclaim::{Answer, Config, Failure, Once, Status};

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, Wire, key};

/// Text that does not compress well.
fn noise(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(letters[usize::try_from(state % 64).unwrap()])
        })
        .collect()
}

async fn returning(lab: &Lab, once: Once<Wire>, text: &str) -> Answer<String> {
    let ran = once.run(|_work| async {
        lab.effect();
        Ok::<_, Failure<Broken>>(text.to_owned())
    });
    ran.await.unwrap().answer
}

fn omitted(answer: Answer<String>) -> Omitted {
    match answer {
        Answer::ResultOmitted(omitted) => omitted,
        other => panic!("{other:?}"),
    }
}

/// A text whose JSON has just this many bytes.
fn of_json(bytes: usize) -> String {
    noise(bytes - 2)
}

#[tokio::test]
async fn a_result_up_to_the_inline_limit_stands_in_the_record() {
    for (bytes, inline) in [(2048, true), (2049, false)] {
        let lab = Lab::new();
        returning(&lab, lab.once(), &of_json(bytes)).await;
        let data = lab.record().data.unwrap();
        assert_eq!(matches!(data, Data::Inline(_)), inline, "{bytes}");
        assert_eq!(matches!(data, Data::Companion { .. }), !inline, "{bytes}");
    }
}

#[tokio::test]
async fn p75_a_large_result_replays_from_its_companion() {
    for kilobytes in [3, 100, 399] {
        let lab = Lab::new();
        let text = noise(kilobytes * 1024);
        let first = returning(&lab, lab.once(), &text).await;
        assert_eq!(first, Answer::Performed(text.clone()));
        let again = returning(&lab, lab.once(), &text).await;
        assert_eq!(again, Answer::Replayed(text));
        let owner = lab.record().owner.unwrap();
        let Some(Data::Companion { id, .. }) = lab.record().data else {
            panic!("{:?}", lab.record());
        };
        assert_eq!(id, format!("{}#data#{}", key(), owner.expose()));
    }
}

#[tokio::test]
async fn p75_a12_a_result_too_large_even_compressed_is_omitted_and_the_work_not_repeated() {
    for kilobytes in [600, 1024] {
        let lab = Lab::new();
        let text = noise(kilobytes * 1024);
        let first = returning(&lab, lab.once(), &text).await;
        assert_eq!(first, Answer::Performed(text.clone()));
        let note = omitted(returning(&lab, lab.once(), &text).await);
        assert_eq!(note.bytes, text.len() as u64 + 2);
        assert_eq!(note.sha256.len(), 64);
        assert_eq!(note.reason, "too large, even compressed");
        assert_eq!((lab.effects(), lab.record().status), (1, Status::Completed));
    }
}

#[tokio::test]
async fn p75_a_large_result_that_compresses_is_kept() {
    let lab = Lab::new();
    let text = "a".repeat(2 * 1024 * 1024);
    returning(&lab, lab.once(), &text).await;
    let again = returning(&lab, lab.once(), &text).await;
    assert_eq!(again, Answer::Replayed(text));
}

#[tokio::test]
async fn p75_a_companion_that_is_gone_or_damaged_is_told_and_the_work_not_repeated() {
    use firstclaim::Store;
    use firstclaim::clock::EpochSeconds;

    let lab = Lab::new();
    let text = noise(5000);
    returning(&lab, lab.once(), &text).await;
    let Some(Data::Companion { id, note }) = lab.record().data else {
        panic!("{:?}", lab.record());
    };

    for damaged in [b"not gzip".to_vec(), Vec::new()] {
        let put = lab.memory.put_companion(&id, damaged, EpochSeconds(0));
        put.await.unwrap();
        let found = omitted(returning(&lab, lab.once(), &text).await);
        assert_eq!((found.bytes, &found.sha256), (note.bytes, &note.sha256));
        assert_eq!(found.reason, "its companion item is missing or damaged");
    }
    // Whole, but another's.
    let other = firstclaim::Key::new("orders", "another").unwrap();
    let once = lab.process().once(other.clone()).lease(LEASE);
    returning(&lab, once, &noise(6000)).await;
    let Some(Data::Companion { id: others, .. }) =
        lab.process().read(&other).await.unwrap().unwrap().data
    else {
        panic!("it is large");
    };
    let packed = lab.memory.companion(&others).await.unwrap().unwrap();
    let put = lab.memory.put_companion(&id, packed, EpochSeconds(0));
    put.await.unwrap();
    omitted(returning(&lab, lab.once(), &text).await);

    lab.memory.remove_companions();
    omitted(returning(&lab, lab.once(), &text).await);
    // One for each key.
    assert_eq!(lab.effects(), 2);
}

#[tokio::test]
async fn a_companion_that_can_not_be_read_just_now_is_no_answer() {
    let lab = Lab::new();
    let text = noise(5000);
    returning(&lab, lab.once(), &text).await;
    lab.wire.rule("companion", Rule::Refuse);
    let failed = lab.run(lab.once()).await.unwrap_err();
    assert!(
        failed.to_string().contains("could not be claimed"),
        "{failed}"
    );
    lab.wire.clear("companion");
    assert_eq!(
        returning(&lab, lab.once(), &text).await,
        Answer::Replayed(text)
    );
}

#[tokio::test]
async fn p28_p75_a_companion_that_can_not_be_written_leaves_a_note() {
    let lab = Lab::new();
    let text = noise(5000);
    lab.wire.rule("put_companion", Rule::Refuse);
    let first = lab.once().run(|_work| async {
        lab.effect();
        Ok::<_, Failure<Broken>>(text.clone())
    });
    let clock = lab.pass(5 * SECOND, SECOND / 10);
    let (first, ()) = tokio::join!(first, clock);
    assert_eq!(first.unwrap().answer, Answer::Performed(text.clone()));
    let note = omitted(returning(&lab, lab.once(), &text).await);
    assert_eq!(note.reason, "its companion item could not be written");
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn p28_a_companion_whose_first_write_is_refused_is_sent_again() {
    let lab = Lab::new();
    let text = noise(5000);
    lab.failing
        .plan([Fault::None, Fault::Refuse, Fault::LoseReply]);
    let first = returning(&lab, lab.once(), &text);
    let clock = lab.pass(5 * SECOND, SECOND / 10);
    let (first, ()) = tokio::join!(first, clock);
    assert_eq!(first, Answer::Performed(text.clone()));
    assert_eq!(
        returning(&lab, lab.once(), &text).await,
        Answer::Replayed(text)
    );
}

#[tokio::test]
async fn p75_a_record_that_the_store_finds_too_large_is_completed_without_its_result() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::TooLarge);
    let first = returning(&lab, lab.once(), "result");
    let (first, ()) = tokio::join!(first, lab.pass(5 * SECOND, SECOND / 10));
    assert_eq!(first, Answer::Performed("result".to_owned()));
    lab.wire.clear("finish");
    let note = omitted(returning(&lab, lab.once(), "result").await);
    assert_eq!(note.reason, "larger than the store takes");
    assert_eq!((note.bytes, lab.effects()), (8, 1));
}

#[tokio::test]
async fn p28_p75_a_result_that_is_no_json_is_omitted_and_the_work_not_repeated() {
    let lab = Lab::new();
    for round in 0..2 {
        let ran = lab.once().run(|_work| async {
            lab.effect();
            Ok::<_, Failure<Broken>>(HashMap::from([((1_u8, 2_u8), 3_u8)]))
        });
        let answer = ran.await.unwrap().answer;
        match (round, answer) {
            (0, Answer::Performed(value)) => assert_eq!(value[&(1, 2)], 3),
            (1, Answer::ResultOmitted(note)) => {
                assert_eq!((note.bytes, note.sha256.as_str()), (0, ""));
                assert!(
                    note.reason.starts_with("can't be written as JSON"),
                    "{note:?}"
                );
            }
            (_, other) => panic!("{other:?}"),
        }
    }
    assert_eq!((lab.effects(), lab.record().status), (1, Status::Completed));
}

#[tokio::test]
async fn a_takeover_does_not_touch_the_companion_of_another_owner() {
    let lab = Lab::new();
    let late = crate::lab::held(lab.once()).await;
    lab.advance(2 * LEASE);
    let text = noise(5000);
    let winner = returning(&lab, lab.once(), &text).await;
    assert_eq!(winner, Answer::Performed(text.clone()));
    // The loser's own large result is written under its own name before it is refused.
    let answer = late.complete(noise(6000)).await.answer;
    assert_eq!(answer, Answer::Replayed(text.clone()));
    assert_eq!(
        returning(&lab, lab.once(), &text).await,
        Answer::Replayed(text)
    );
}

#[tokio::test]
async fn the_inline_limit_is_configurable() {
    let lab = Lab::new();
    let config = Config {
        inline_limit: 10,
        ..Config::default()
    };
    let once = lab.process_with(config).once(key()).lease(LEASE);
    returning(&lab, once, "a text of more").await;
    assert!(matches!(lab.record().data, Some(Data::Companion { .. })));
    let again = returning(&lab, lab.once(), "").await;
    assert_eq!(again, Answer::Replayed("a text of more".to_owned()));
}
