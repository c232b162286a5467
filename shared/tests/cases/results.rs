//! A replayed result is the first one, in every type and for every value.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use firstclaim::record::Data;
use firstclaim::{Answer, Failure};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::lab::{Broken, Lab};

/// The first answer, the one of the same process and the one of a process that has just started.
async fn three<T>(lab: &Lab, value: T) -> [Answer<T>; 3]
where
    T: Serialize + DeserializeOwned + Clone + Debug,
{
    let first = lab.once();
    let same_process = first.clone();
    let mut answers = Vec::new();
    for once in [first, same_process, lab.once()] {
        let value = value.clone();
        let ran = once.run(|_work| async {
            lab.effect();
            Ok::<_, Failure<Broken>>(value)
        });
        answers.push(ran.await.unwrap().answer);
    }
    assert_eq!(lab.effects(), 1);
    answers.try_into().unwrap()
}

async fn faithful<T>(value: T)
where
    T: Serialize + DeserializeOwned + Clone + Debug + PartialEq,
{
    let [first, same_process, cold] = three(&Lab::new(), value.clone()).await;
    assert_eq!(first, Answer::Performed(value.clone()));
    assert_eq!(same_process, Answer::Replayed(value.clone()));
    assert_eq!(cold, Answer::Replayed(value));
}

#[tokio::test]
async fn p64_p65_falsy_values_replay_as_themselves() {
    faithful(0).await;
    faithful(false).await;
    faithful(String::new()).await;
    faithful(Vec::<u8>::new()).await;
    faithful(BTreeMap::<String, u8>::new()).await;
    faithful(()).await;
    faithful(None::<u8>).await;
    faithful(serde_json::Value::Null).await;
    faithful(serde_json::json!({})).await;
}

#[tokio::test]
async fn p64_negative_zero_keeps_its_sign() {
    let [_, same_process, cold] = three(&Lab::new(), -0.0_f64).await;
    for answer in [same_process, cold] {
        let Answer::Replayed(value) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(value.to_bits(), (-0.0_f64).to_bits());
    }
}

#[tokio::test]
async fn numbers_at_their_limits_replay_exactly() {
    faithful(u64::MAX).await;
    faithful(i64::MIN).await;
    faithful(i128::MIN).await;
    faithful(u128::MAX).await;
    for number in [
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        f64::EPSILON,
        0.1 + 0.2,
        1e22,
        123_456_789.123_456_79,
    ] {
        faithful(number).await;
    }
    faithful(f32::MIN_POSITIVE).await;
}

#[tokio::test]
async fn a_number_that_json_has_not_is_told_as_omitted_and_never_run_again() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let [first, same_process, cold] = three(&Lab::new(), number).await;
        assert!(matches!(first, Answer::Performed(_)), "{first:?}");
        for answer in [same_process, cold] {
            assert!(matches!(answer, Answer::ResultOmitted(_)), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn texts_of_every_kind_replay_exactly() {
    faithful("𝄞 🦀 \u{0} \u{7f} \u{2028} \"\\/\n\t é e\u{301}".to_owned()).await;
    faithful('\u{10ffff}').await;
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: String,
    amount: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    Open,
    Paid(u64),
    Sent { to: String, at: (u8, i16) },
}

#[tokio::test]
async fn p69_p74_typed_results_replay_in_their_type() {
    let receipt = |state| Receipt {
        order: "42".to_owned(),
        amount: None,
        note: None,
        state,
    };
    faithful(receipt(State::Open)).await;
    faithful(vec![
        receipt(State::Paid(u64::MAX)),
        receipt(State::Sent {
            to: "ada".to_owned(),
            at: (1, -1),
        }),
    ])
    .await;
    faithful(Some(State::Open)).await;
    faithful(Ok::<u8, String>(1)).await;
    faithful(Err::<u8, String>("no".to_owned())).await;
    faithful(HashMap::from([(7_u32, State::Open)])).await;
}

#[tokio::test]
async fn a_result_of_another_type_is_told_as_omitted_and_never_run_again() {
    let lab = Lab::new();
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    let ran = lab.once().run(|_work| async {
        lab.effect();
        Ok::<String, Failure<Broken>>(String::new())
    });
    let answer = ran.await.unwrap().answer;
    let Answer::ResultOmitted(omitted) = answer else {
        panic!("{answer:?}");
    };
    assert!(
        omitted.reason.starts_with("not of the asked type"),
        "{omitted:?}"
    );
    assert_eq!((omitted.bytes, lab.effects()), (1, 1));
}

#[tokio::test]
async fn what_is_stored_is_what_was_serialised_first() {
    let lab = Lab::new();
    three(&lab, serde_json::json!({"b": 1.0, "a": [null, ""]})).await;
    let Some(Data::Inline(text)) = lab.record().data else {
        panic!("{:?}", lab.record());
    };
    assert_eq!(text, r#"{"a":[null,""],"b":1.0}"#);
}

#[tokio::test]
async fn a_completed_record_of_another_tool_without_data_replays_as_null() {
    use firstclaim::Status;

    let lab = Lab::new();
    lab.answer(lab.once()).await;
    let mut record = lab.record();
    assert_eq!(record.status, Status::Completed);
    record.data = None;
    record.owner = None;
    lab.memory.put(record);
    let ran = lab
        .once()
        .run(|_work| async { Ok::<Option<u8>, Failure<Broken>>(Some(1)) });
    assert_eq!(ran.await.unwrap().answer, Answer::Replayed(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_value_replays_as_the_first(
        text in any::<String>(),
        number in any::<f64>().prop_filter("JSON has no others", |number| number.is_finite()),
        large in any::<u64>(),
        nested in prop::collection::vec(any::<Option<i64>>(), 0..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(faithful((text, number, large, nested)));
    }
}
