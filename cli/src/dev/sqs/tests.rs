use std::path::Path;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName};
use firstclaim::aws::{Patience, loopback_config};
use firstclaim::clock::{EpochMillis, ManualSource};

use super::*;

const BOUND: Duration = Duration::from_secs(10);

async fn client(server: &Server) -> Client {
    let patience = Patience {
        attempts: 1,
        attempt: BOUND,
        total: BOUND,
    };
    Client::new(&loopback_config(server.endpoint(), patience).await)
}

/// A server with the queue `work`, whose messages go to `dead` after two receives.
async fn server(storage: &Storage, source: &ManualSource) -> (Server, Client, String) {
    let settings = [
        Settings::new("dead"),
        Settings::new("work").redrive("dead", 2),
    ];
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = Server::serve(listener, &settings, storage, Arc::new(source.clone())).unwrap();
    let client = client(&server).await;
    let url = server.queue_url("work");
    (server, client, url)
}

fn clock() -> ManualSource {
    ManualSource::at(EpochMillis(1_794_478_868_000))
}

async fn receive(client: &Client, url: &str) -> Vec<aws_sdk_sqs::types::Message> {
    client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .message_attribute_names("All")
        .send()
        .await
        .unwrap()
        .messages
        .unwrap_or_default()
}

async fn send(client: &Client, url: &str, body: &str) -> String {
    let sent = client
        .send_message()
        .queue_url(url)
        .message_body(body)
        .send()
        .await
        .unwrap();
    sent.message_id.unwrap()
}

fn receive_count(message: &aws_sdk_sqs::types::Message) -> &str {
    &message.attributes.as_ref().unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount]
}

#[tokio::test]
async fn a_message_comes_back_as_it_was_sent() {
    let (_server, client, url) = server(&Storage::Memory, &clock()).await;
    let attribute = MessageAttributeValue::builder()
        .data_type("String")
        .string_value("timeout")
        .build()
        .unwrap();
    let binary = MessageAttributeValue::builder()
        .data_type("Binary")
        .binary_value(aws_sdk_sqs::primitives::Blob::new([0, 255]))
        .build()
        .unwrap();
    let body = "{\"text\":\"h\u{e9}llo \u{1F980}\\u0000\"}";
    let sent = client
        .send_message()
        .queue_url(&url)
        .message_body(body)
        .message_attributes("reason", attribute.clone())
        .message_attributes("bytes", binary.clone())
        .message_group_id("octo/hello#1")
        .send()
        .await
        .unwrap();

    let received = receive(&client, &url).await;
    assert_eq!(received.len(), 1);
    let message = &received[0];
    assert_eq!(message.body(), Some(body));
    assert_eq!(message.message_id, sent.message_id);
    assert_eq!(message.md5_of_body, sent.md5_of_message_body);
    assert_eq!(
        message.md5_of_message_attributes,
        sent.md5_of_message_attributes
    );
    let attributes = message.message_attributes.as_ref().unwrap();
    assert_eq!(attributes["reason"], attribute);
    assert_eq!(attributes["bytes"], binary);
    let system = message.attributes.as_ref().unwrap();
    assert_eq!(
        system[&MessageSystemAttributeName::MessageGroupId],
        "octo/hello#1"
    );
    assert_eq!(
        system[&MessageSystemAttributeName::SentTimestamp],
        "1794478868000"
    );
    assert_eq!(receive_count(message), "1");
}

/// The attribute's digest is the MD5 of `0006reason 0006String 01 0007timeout`, lengths in four bytes.
#[test]
fn digests_are_those_that_clients_check() {
    let attributes = BTreeMap::from([("reason".to_owned(), Attribute::text("timeout"))]);
    assert_eq!(
        message::body_digest("hello"),
        "5d41402abc4b2a76b9719d911017c592"
    );
    let expected = "b6d5ddb4184a493e6e429dca43ad9c9f".to_owned();
    assert_eq!(message::attributes_digest(&attributes), Some(expected));
    assert_eq!(message::attributes_digest(&BTreeMap::new()), None);
}

#[tokio::test]
async fn a_received_message_is_hidden_until_its_visibility_ends() {
    let source = clock();
    let (_server, client, url) = server(&Storage::Memory, &source).await;
    send(&client, &url, "work").await;
    assert_eq!(receive(&client, &url).await.len(), 1);
    source.advance(Duration::from_millis(29_999));
    assert_eq!(receive(&client, &url).await, []);
    source.advance(Duration::from_millis(1));
    let again = receive(&client, &url).await;
    assert_eq!(receive_count(&again[0]), "2");
}

#[tokio::test]
async fn changing_the_visibility_moves_its_end() {
    let source = clock();
    let (_server, client, url) = server(&Storage::Memory, &source).await;
    send(&client, &url, "work").await;
    let receipt = receive(&client, &url).await[0]
        .receipt_handle
        .clone()
        .unwrap();
    let change = |seconds| {
        client
            .change_message_visibility()
            .queue_url(&url)
            .receipt_handle(&receipt)
            .visibility_timeout(seconds)
            .send()
    };
    change(60).await.unwrap();
    source.advance(Duration::from_secs(59));
    assert_eq!(receive(&client, &url).await, []);
    change(0).await.unwrap();
    assert_eq!(receive(&client, &url).await.len(), 1);

    let stale = change(5).await.unwrap_err().into_service_error();
    assert!(stale.is_message_not_inflight(), "{stale:?}");
    let long = change(43_201).await.unwrap_err();
    assert_eq!(long.code(), Some("InvalidParameterValue"));
}

#[tokio::test]
async fn a_deleted_message_is_gone_and_an_old_handle_deletes_nothing() {
    let source = clock();
    let (server, client, url) = server(&Storage::Memory, &source).await;
    send(&client, &url, "work").await;
    let old = receive(&client, &url).await[0]
        .receipt_handle
        .clone()
        .unwrap();
    source.advance(Duration::from_secs(30));
    let new = receive(&client, &url).await[0]
        .receipt_handle
        .clone()
        .unwrap();
    let delete = |receipt: &str| {
        client
            .delete_message()
            .queue_url(&url)
            .receipt_handle(receipt)
            .send()
    };
    delete(&old).await.unwrap();
    assert_eq!(server.queue("work").unwrap().count().in_flight, 1);
    delete(&new).await.unwrap();
    delete(&new).await.unwrap();
    assert_eq!(server.queue("work").unwrap().count(), Count::default());
    let error = delete("nonsense").await.unwrap_err().into_service_error();
    assert!(error.is_receipt_handle_is_invalid(), "{error:?}");
}

#[tokio::test]
async fn what_is_received_too_often_becomes_a_dead_letter() {
    let source = clock();
    let (server, client, url) = server(&Storage::Memory, &source).await;
    let id = send(&client, &url, "poison").await;
    for _ in 0..2 {
        assert_eq!(receive(&client, &url).await.len(), 1);
        source.advance(Duration::from_secs(30));
    }
    assert_eq!(receive(&client, &url).await, []);
    let dead = receive(&client, &server.queue_url("dead")).await;
    assert_eq!(dead[0].message_id.as_deref(), Some(id.as_str()));
    assert_eq!(dead[0].body(), Some("poison"));
    assert_eq!(receive_count(&dead[0]), "1");
    let system = dead[0].attributes.as_ref().unwrap();
    let from = &system[&MessageSystemAttributeName::DeadLetterQueueSourceArn];
    assert_eq!(*from, server.queue("work").unwrap().arn());
}

#[tokio::test]
async fn an_empty_receive_waits_for_the_next_message() {
    let (_server, client, url) = server(&Storage::Memory, &clock()).await;
    let waiting = tokio::spawn({
        let request = client
            .receive_message()
            .queue_url(&url)
            .wait_time_seconds(20);
        async move { request.send().await.unwrap().messages.unwrap_or_default() }
    });
    send(&client, &url, "work").await;
    let received = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
    assert_eq!(received.len(), 1);
}

#[tokio::test]
async fn a_delayed_message_is_not_there_yet() {
    let source = clock();
    let (server, client, url) = server(&Storage::Memory, &source).await;
    let request = client.send_message().queue_url(&url).message_body("later");
    request.delay_seconds(10).send().await.unwrap();
    assert_eq!(receive(&client, &url).await, []);
    assert_eq!(server.queue("work").unwrap().count().delayed, 1);
    source.advance(Duration::from_secs(10));
    assert_eq!(receive(&client, &url).await.len(), 1);
}

#[tokio::test]
async fn a_queue_tells_its_url_attributes_and_counts() {
    let (_server, client, url) = server(&Storage::Memory, &clock()).await;
    let found = client
        .get_queue_url()
        .queue_name("work")
        .send()
        .await
        .unwrap();
    assert_eq!(found.queue_url, Some(url.clone()));
    send(&client, &url, "one").await;
    send(&client, &url, "two").await;
    let request = client
        .receive_message()
        .queue_url(&url)
        .max_number_of_messages(1);
    request.send().await.unwrap();
    let all = client
        .get_queue_attributes()
        .queue_url(&url)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await
        .unwrap()
        .attributes
        .unwrap();
    assert_eq!(all[&QueueAttributeName::ApproximateNumberOfMessages], "1");
    assert_eq!(
        all[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible],
        "1"
    );
    assert_eq!(all[&QueueAttributeName::VisibilityTimeout], "30");
    let policy = &all[&QueueAttributeName::RedrivePolicy];
    assert!(policy.contains("\"maxReceiveCount\":2"), "{policy}");
}

#[tokio::test]
async fn refusals_carry_the_codes_that_clients_know() {
    let (server, client, url) = server(&Storage::Memory, &clock()).await;
    let nowhere = client
        .send_message()
        .queue_url(server.queue_url("none"))
        .message_body("x");
    let error = nowhere.send().await.unwrap_err().into_service_error();
    assert!(error.is_queue_does_not_exist(), "{error:?}");
    let refused = async |body: &str| {
        let request = client.send_message().queue_url(&url).message_body(body);
        request.send().await.unwrap_err()
    };
    let control = refused("\u{1}").await.into_service_error();
    assert!(control.is_invalid_message_contents(), "{control:?}");
    assert_eq!(refused("").await.code(), Some("MissingParameter"));
    let long = "x".repeat(1024 * 1024 + 1);
    assert_eq!(refused(&long).await.code(), Some("InvalidParameterValue"));
    send(&client, &url, &long[1..]).await;
    let purge = client
        .purge_queue()
        .queue_url(&url)
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        purge.code(),
        Some("AWS.SimpleQueueService.UnsupportedOperation")
    );
}

#[tokio::test]
async fn messages_receive_counts_and_handles_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Folder(folder.path().to_owned());
    let source = clock();
    let (first, client, url) = server(&storage, &source).await;
    send(&client, &url, "one").await;
    send(&client, &url, "two").await;
    let received = receive(&client, &url).await;
    let [one, two] = received.as_slice() else {
        panic!("two were sent: {received:?}");
    };
    let delete = client.delete_message().queue_url(&url);
    delete
        .receipt_handle(one.receipt_handle().unwrap())
        .send()
        .await
        .unwrap();
    first.stop().await;

    let (second, client, url) = server(&storage, &source).await;
    assert_eq!(receive(&client, &url).await, []);
    let change = client
        .change_message_visibility()
        .queue_url(&url)
        .visibility_timeout(0);
    change
        .receipt_handle(two.receipt_handle().unwrap())
        .send()
        .await
        .unwrap();
    let again = receive(&client, &url).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].body(), Some("two"));
    assert_eq!(again[0].message_id, two.message_id);
    assert_eq!(receive_count(&again[0]), "2");
    send(&client, &url, "three").await;
    second.stop().await;
    assert_eq!(
        files(&folder.path().join("work")),
        ["0000000000000001.json", "0000000000000002.json"]
    );
}

#[tokio::test]
async fn a_message_that_can_not_be_kept_is_not_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Folder(folder.path().to_owned());
    let (server, client, url) = server(&storage, &clock()).await;
    std::fs::remove_dir_all(folder.path().join("work")).unwrap();
    let request = client.send_message().queue_url(&url).message_body("x");
    let error = request.send().await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 500);
    assert_eq!(server.queue("work").unwrap().count(), Count::default());
}

#[tokio::test]
async fn a_write_that_was_cut_off_is_no_message_and_a_spoilt_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Folder(folder.path().to_owned());
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("0000000000000007.part"), "{").unwrap();
    let server = Server::start(&[Settings::new("work")], &storage)
        .await
        .unwrap();
    assert_eq!(server.queue("work").unwrap().count(), Count::default());
    assert!(files(&work).is_empty());
    std::fs::write(work.join("0000000000000007.json"), "{").unwrap();
    let error = Server::start(&[Settings::new("work")], &storage)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("0000000000000007.json"),
        "{error}"
    );
}

#[tokio::test]
async fn settings_that_can_not_be_are_refused() {
    let refuse =
        async |settings: &[Settings]| Server::start(settings, &Storage::Memory).await.unwrap_err();
    for name in ["", "a.fifo", "../up", &"x".repeat(81)] {
        assert!(
            matches!(refuse(&[Settings::new(name)]).await, ServerError::Name(_)),
            "{name}"
        );
    }
    let later = [
        Settings::new("work").redrive("dead", 1),
        Settings::new("dead"),
    ];
    assert!(matches!(
        refuse(&later).await,
        ServerError::NoDeadLetterQueue { .. }
    ));
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
