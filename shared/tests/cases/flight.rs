//! Concurrent requests for one key in one process share one claim.

use std::future::pending;

use firstclaim::clock::Source;
use firstclaim::{Answer, Claims, Failure, Fingerprint, Once, Policy};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, START, Wire, held, key, quiet, until};

fn request(claims: &Claims<Wire>) -> Once<Wire> {
    claims.once(key()).lease(LEASE)
}

fn spawned(lab: &Lab, once: Once<Wire>) -> JoinHandle<Answer<usize>> {
    let lab = lab.clone();
    tokio::spawn(async move { lab.answer(once).await })
}

/// An operation that works until it is told to end.
fn working(lab: &Lab, once: Once<Wire>) -> (JoinHandle<Answer<usize>>, oneshot::Sender<()>) {
    let (end, ended) = oneshot::channel::<()>();
    let lab = lab.clone();
    let task = tokio::spawn(async move {
        let ran = once.run(|_work| async {
            let _ = ended.await;
            Ok::<_, Failure<Broken>>(lab.effect())
        });
        ran.await.unwrap().answer
    });
    (task, end)
}

#[tokio::test]
async fn a34_a_thousand_concurrent_duplicates_make_at_most_three_calls() {
    let lab = Lab::new();
    let claims = lab.process();
    let tasks: Vec<_> = (0..1000)
        .map(|_| spawned(&lab, request(&claims).wait_for(10 * SECOND)))
        .collect();
    let mut performed = 0;
    for task in tasks {
        match task.await.unwrap() {
            Answer::Performed(1) => performed += 1,
            answer => assert_eq!(answer, Answer::Replayed(1)),
        }
    }
    assert_eq!((performed, lab.effects()), (1, 1));
    assert!(lab.failing.calls() <= 3, "{:?}", lab.wire.log());
}

#[tokio::test]
async fn a34_of_fifty_parallel_deliveries_one_runs_and_the_others_are_told() {
    let lab = Lab::new();
    let claims = lab.process();
    let (first, end) = working(&lab, request(&claims));
    let tasks: Vec<_> = (0..49).map(|_| spawned(&lab, request(&claims))).collect();
    for task in tasks {
        let answer = task.await.unwrap();
        assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    }
    end.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Answer::Performed(1));
    assert_eq!(lab.wire.log(), ["claim", "finish"]);
}

#[tokio::test]
async fn a35_of_fifty_parallel_deliveries_to_five_processes_one_runs() {
    let lab = Lab::new();
    let processes: Vec<_> = (0..5).map(|_| lab.process()).collect();
    let tasks: Vec<_> = (0..50)
        .map(|number| spawned(&lab, request(&processes[number % 5])))
        .collect();
    let mut performed = 0;
    for task in tasks {
        match task.await.unwrap() {
            Answer::Performed(1) => performed += 1,
            Answer::Replayed(1) | Answer::InProgress { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((performed, lab.effects()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn p18_many_keys_at_once_never_get_each_others_results() {
    let lab = Lab::new();
    let claims = lab.process();
    let tasks: Vec<_> = (0..120_u32)
        .flat_map(|number| [number; 4])
        .map(|number| {
            let key = firstclaim::Key::new(format!("f{}", number % 2), number.to_string()).unwrap();
            let once = claims.once(key).lease(LEASE).wait_for(SECOND);
            tokio::spawn(async move {
                let ran = once.run(|work| async move {
                    quiet().await;
                    Ok::<_, Failure<Broken>>(work.key().as_str().to_owned())
                });
                (number, ran.await.unwrap().into_result())
            })
        })
        .collect();
    for task in tasks {
        let (number, result) = task.await.unwrap();
        assert_eq!(result, Some(format!("f{}#{number}", number % 2)));
    }
    assert_eq!(lab.memory.records().len(), 120);
}

#[tokio::test]
async fn p57_a_follower_with_another_payload_is_told_so() {
    let lab = Lab::new();
    let claims = lab.process();
    let five = Fingerprint::of_bytes(b"5");
    let fifty = Fingerprint::of_bytes(b"50");
    let (first, end) = working(&lab, request(&claims).fingerprint(five));
    let mismatch = Answer::Mismatch {
        stored: five,
        given: fifty,
    };
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    // One that does not wait, while the first runs; and one that waits for its end.
    let at_once = lab.answer(request(&claims).fingerprint(fifty)).await;
    assert_eq!(at_once, mismatch);
    let waiting = request(&claims).fingerprint(fifty).wait_for(LEASE);
    let waiting = spawned(&lab, waiting);
    quiet().await;
    end.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Answer::Performed(1));
    assert_eq!(waiting.await.unwrap(), mismatch);
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn p57_a_leaders_mismatch_is_not_the_answer_of_a_follower_with_the_right_payload() {
    let lab = Lab::new();
    let five = Fingerprint::of_bytes(b"5");
    let fifty = Fingerprint::of_bytes(b"50");
    lab.answer(lab.once().fingerprint(five)).await;
    let claims = lab.process();
    lab.wire.rule("claim", Rule::HoldReply);
    let leader = spawned(&lab, request(&claims).fingerprint(fifty));
    until("the leader asks", || lab.wire.count("claim") == 2).await;
    let follower = spawned(&lab, request(&claims).fingerprint(five));
    quiet().await;
    lab.wire.clear("claim");
    assert!(matches!(leader.await.unwrap(), Answer::Mismatch { .. }));
    assert_eq!(follower.await.unwrap(), Answer::Replayed(1));
}

#[tokio::test]
async fn n38_a_leader_that_is_dropped_while_it_claims_is_followed_by_another() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.wire.rule("claim", Rule::Hold);
    let leader = spawned(&lab, request(&claims));
    until("the leader asks", || lab.wire.count("claim") == 1).await;
    let followers: Vec<_> = (0..5)
        .map(|_| spawned(&lab, request(&claims).wait_for(LEASE)))
        .collect();
    quiet().await;
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    lab.wire.clear("claim");
    let mut answers = Vec::new();
    for follower in followers {
        answers.push(follower.await.unwrap());
    }
    answers.sort_by_key(|answer| matches!(answer, Answer::Replayed(_)));
    assert_eq!(answers[0], Answer::Performed(1));
    assert!(
        answers[1..]
            .iter()
            .all(|answer| *answer == Answer::Replayed(1))
    );
}

#[tokio::test]
async fn n38_a_leader_that_is_dropped_while_it_works_lapses_for_its_followers() {
    let lab = Lab::new();
    let claims = lab.process();
    let leader =
        tokio::spawn(request(&claims).run(|_work| pending::<Result<usize, Failure<Broken>>>()));
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    quiet().await;
    let follower = spawned(&lab, request(&claims).wait_for(3 * LEASE));
    quiet().await;
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    lab.advance_until(SECOND, "the follower ends", || follower.is_finished())
        .await;
    assert_eq!(follower.await.unwrap(), Answer::Performed(1));
    let taken = lab.source.now().since(START);
    assert!(taken >= LEASE && taken < LEASE + 2 * SECOND, "{taken:?}");
}

#[tokio::test]
async fn n38_a_leader_that_hangs_beyond_its_lease_does_not_block_the_others() {
    let lab = Lab::new();
    let claims = lab.process();
    let (leader, end) = working(&lab, request(&claims));
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    let waiting = spawned(&lab, request(&claims).wait_for(2 * LEASE));
    lab.advance_until(SECOND, "the waiting one ends", || waiting.is_finished())
        .await;
    assert_eq!(waiting.await.unwrap(), Answer::Performed(1));
    // One that does not wait gets the result too.
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(1));
    end.send(()).unwrap();
    assert_eq!(leader.await.unwrap(), Answer::Replayed(1));
}

#[tokio::test]
async fn a_leader_nobody_polls_does_not_block_the_others() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    let lab = Lab::new();
    let claims = lab.process();
    lab.wire.rule("claim", Rule::Hold);
    let mut leader = pin!(lab.answer(request(&claims)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(leader.as_mut().poll(&mut context).is_pending());
    lab.wire.clear("claim");
    let follower = spawned(&lab, request(&claims));
    lab.advance_until(SECOND / 10, "the follower ends", || follower.is_finished())
        .await;
    assert_eq!(follower.await.unwrap(), Answer::Performed(1));
    assert!(lab.source.now() <= START.after(5 * SECOND));
    assert_eq!(leader.await, Answer::Replayed(1));
}

#[tokio::test]
async fn a_waiting_leader_does_not_block_a_follower_that_does_not_wait() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let claims = lab.process();
    let leader = spawned(&lab, request(&claims).wait_for(2 * LEASE));
    until("the leader waits", || lab.wire.count("claim") == 2).await;
    quiet().await;
    let calls = lab.failing.calls();
    let answer = lab.answer(request(&claims)).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    assert_eq!(lab.failing.calls(), calls);
    lab.advance_until(SECOND, "the leader ends", || leader.is_finished())
        .await;
    assert_eq!(leader.await.unwrap(), Answer::Performed(1));
}

#[tokio::test]
async fn a_leader_that_does_not_wait_is_no_answer_for_a_follower_that_does() {
    let lab = Lab::new();
    let winner = held(lab.once()).await;
    let claims = lab.process();
    lab.wire.rule("claim", Rule::HoldReply);
    let leader = spawned(&lab, request(&claims));
    until("the leader asks", || lab.wire.count("claim") == 2).await;
    let follower = spawned(&lab, request(&claims).wait_for(LEASE));
    quiet().await;
    lab.wire.clear("claim");
    let answer = leader.await.unwrap();
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    quiet().await;
    winner.complete(7).await;
    lab.advance_until(SECOND / 10, "the follower ends", || follower.is_finished())
        .await;
    assert_eq!(follower.await.unwrap(), Answer::Replayed(7));
}

#[tokio::test]
async fn a_leader_under_hold_is_no_answer_for_a_follower_under_rerun() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(LEASE);
    let claims = lab.process();
    lab.wire.rule("claim", Rule::HoldReply);
    let leader = spawned(&lab, request(&claims).policy(Policy::Hold));
    until("the leader asks", || lab.wire.count("claim") == 2).await;
    let follower = spawned(&lab, request(&claims));
    quiet().await;
    lab.wire.clear("claim");
    assert!(matches!(leader.await.unwrap(), Answer::Held { .. }));
    assert_eq!(follower.await.unwrap(), Answer::Performed(1));
}

#[tokio::test]
async fn followers_of_a_held_record_share_its_answer() {
    let lab = Lab::new();
    lab.crash(lab.once().policy(Policy::Hold)).await;
    lab.advance(LEASE);
    let claims = lab.process();
    lab.wire.rule("claim", Rule::HoldReply);
    let tasks: Vec<_> = (0..20).map(|_| spawned(&lab, request(&claims))).collect();
    quiet().await;
    lab.wire.clear("claim");
    for task in tasks {
        let answer = task.await.unwrap();
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
    }
    assert_eq!(lab.wire.count("claim"), 2);
}

#[tokio::test]
async fn p83_a_store_that_does_not_answer_fails_all_at_once_and_not_one_after_the_other() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.wire.rule("claim", Rule::Hang(1));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (lab, once) = (lab.clone(), request(&claims).wait_for(LEASE));
            tokio::spawn(async move { lab.run(once).await.is_err() })
        })
        .collect();
    until("the leader asks", || lab.wire.count("claim") == 1).await;
    quiet().await;
    // The time-out of the first is over; that of all others must run at the same time.
    lab.wire.rule("claim", Rule::Hang(2));
    until("all others ask", || lab.wire.count("claim") == 100).await;
    lab.wire.rule("claim", Rule::Hang(3));
    for task in tasks {
        assert!(task.await.unwrap());
    }
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn n38_one_that_does_not_wait_takes_over_from_a_leader_that_hangs_beyond_its_lease() {
    let lab = Lab::new();
    let claims = lab.process();
    let (leader, end) = working(&lab, request(&claims));
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    lab.advance(LEASE);
    assert_eq!(lab.answer(request(&claims)).await, Answer::Performed(1));
    end.send(()).unwrap();
    assert_eq!(leader.await.unwrap(), Answer::Replayed(1));
}
