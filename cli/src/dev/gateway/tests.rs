use std::net::Ipv4Addr;

use super::*;

fn request(builder: axum::http::request::Builder) -> Parts {
    builder.body(()).unwrap().into_parts().0
}

fn event_of(head: &Parts, body: &[u8]) -> Value {
    let caller = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
    event(head, body, caller, EpochMillis(1_794_478_868_123))
}

#[test]
fn a_json_request_becomes_a_function_urls_event() {
    let head = request(
        Request::post("/webhooks/github?a=1&b=%20")
            .header("Host", "127.0.0.1:9000")
            .header("Content-Type", "application/json; charset=utf-8")
            .header("User-Agent", "GitHub-Hookshot/1")
            .header("X-GitHub-Event", "ping"),
    );
    let mut event = event_of(&head, "{\"zen\": \"\u{1f980}\"}".as_bytes());
    let id = event["requestContext"]
        .as_object_mut()
        .unwrap()
        .remove("requestId");
    assert!(id.unwrap().as_str().is_some_and(|id| id.len() == 36));
    assert_eq!(
        event,
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": "/webhooks/github",
            "rawQueryString": "a=1&b=%20",
            "headers": {
                "content-type": "application/json; charset=utf-8",
                "host": "127.0.0.1:9000",
                "user-agent": "GitHub-Hookshot/1",
                "x-github-event": "ping",
            },
            "requestContext": {
                "accountId": "anonymous",
                "apiId": "dev",
                "domainName": "127.0.0.1:9000",
                "domainPrefix": "dev",
                "http": {
                    "method": "POST",
                    "path": "/webhooks/github",
                    "protocol": "HTTP/1.1",
                    "sourceIp": "127.0.0.1",
                    "userAgent": "GitHub-Hookshot/1",
                },
                "routeKey": "$default",
                "stage": "$default",
                "timeEpoch": 1_794_478_868_123_i64,
            },
            "body": "{\"zen\": \"\u{1f980}\"}",
            "isBase64Encoded": false,
        })
    );
}

#[test]
fn forms_and_bytes_are_encoded_as_function_urls_do() {
    let body_of = |content_type: Option<&str>, body: &[u8]| {
        let mut builder = Request::post("/");
        if let Some(content_type) = content_type {
            builder = builder.header("content-type", content_type);
        }
        let event = event_of(&request(builder), body);
        let encoded = event["isBase64Encoded"].as_bool().unwrap();
        let text = event["body"].as_str().unwrap().to_owned();
        (encoded, text)
    };
    let encoded = |body: &[u8]| (true, STANDARD.encode(body));
    let form = b"payload=%7B%7D&a=+b";
    assert_eq!(
        body_of(Some("application/x-www-form-urlencoded"), form),
        encoded(form)
    );
    assert_eq!(
        body_of(Some("application/json"), b"\xff\x00"),
        encoded(b"\xff\x00")
    );
    assert_eq!(body_of(None, b"{}"), encoded(b"{}"));
    for text in [
        "text/plain",
        "TEXT/XML",
        "application/cloudevents+json",
        "application/xml",
    ] {
        assert_eq!(
            body_of(Some(text), b"a\r\nb"),
            (false, "a\r\nb".to_owned()),
            "{text}"
        );
    }
}

#[test]
fn an_empty_body_is_absent() {
    let event = event_of(&request(Request::get("/")), b"");
    assert_eq!(event.get("body"), None);
    assert_eq!(event["isBase64Encoded"], false);
    assert_eq!(event["rawQueryString"], "");
}

#[test]
fn repeated_headers_are_joined_with_commas() {
    let head = request(
        Request::post("/")
            .header("X-Hub-Signature-256", "sha256=aa")
            .header("x-hub-signature-256", "sha256=bb")
            .header("X-Latin", HeaderValue::from_bytes(b"caf\xe9").unwrap()),
    );
    let event = event_of(&head, b"x");
    assert_eq!(
        event["headers"]["x-hub-signature-256"],
        "sha256=aa,sha256=bb"
    );
    assert_eq!(event["headers"]["x-latin"], "caf\u{fffd}");
}

#[tokio::test]
async fn an_answer_becomes_a_response() {
    let answer = json!({
        "statusCode": 202,
        "headers": { "location": "/operations/x", "content-type": "application/json" },
        "body": STANDARD.encode(b"\xff\x00"),
        "isBase64Encoded": true,
    });
    let response = response(answer).unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    assert_eq!(response.headers()["location"], "/operations/x");
    let body = to_bytes(response.into_body(), 10).await.unwrap();
    assert_eq!(&body[..], b"\xff\x00");
}

#[test]
fn an_answer_that_is_none_is_told() {
    for answer in [
        json!(null),
        json!({}),
        json!({"statusCode": 99}),
        json!({"statusCode": 200, "headers": {"a": "b\n"}}),
        json!({"statusCode": 200, "body": "!", "isBase64Encoded": true}),
    ] {
        assert!(response(answer.clone()).is_err(), "{answer}");
    }
}
