//! Known answers, changed by a bit: whatever is signed counts, and nothing else does.

use firstclaim::clock::EpochMillis;
use serde_json::json;

use crate::bench::{Bench, Request, SCHEMES, now, problem, secret, vectors};

/// How one scheme proves that a delivery is its sender's.
struct Proof {
    scheme: &'static str,
    /// A delivery with the proof that the sender's own library made.
    file: &'static str,
    /// The header with the proof.
    header: &'static str,
    /// Whether the body is signed, and which headers are.
    body: bool,
    headers: &'static [&'static str],
    /// Whether two signatures may stand side by side: what is between them.
    between: Option<&'static str>,
}

const PROOFS: [Proof; 9] = [
    Proof {
        scheme: "github",
        file: "github/ping.json",
        header: "x-hub-signature-256",
        body: true,
        headers: &[],
        between: None,
    },
    Proof {
        scheme: "gitlab",
        file: "gitlab/note.json",
        header: "x-gitlab-token",
        body: false,
        headers: &[],
        between: None,
    },
    Proof {
        scheme: "stripe",
        file: "stripe/charge.succeeded.json",
        header: "stripe-signature",
        body: true,
        headers: &[],
        between: Some(","),
    },
    Proof {
        scheme: "slack",
        file: "slack/slash_command.json",
        header: "x-slack-signature",
        body: true,
        headers: &["x-slack-request-timestamp"],
        between: None,
    },
    Proof {
        scheme: "shopify",
        file: "shopify/orders-create.json",
        header: "x-shopify-hmac-sha256",
        body: true,
        headers: &[],
        between: None,
    },
    Proof {
        scheme: "standard",
        file: "standard/user.created.json",
        header: "webhook-signature",
        body: true,
        headers: &["webhook-id", "webhook-timestamp"],
        between: Some(" "),
    },
    Proof {
        scheme: "standard",
        file: "standard/user.created.ed25519.json",
        header: "webhook-signature",
        body: true,
        headers: &["webhook-id", "webhook-timestamp"],
        between: Some(" "),
    },
    Proof {
        scheme: "twilio",
        file: "twilio/message-status.delivered.json",
        header: "x-twilio-signature",
        body: true,
        headers: &[],
        between: None,
    },
    Proof {
        scheme: "token",
        file: "token/operation.json",
        header: "authorization",
        body: false,
        headers: &[],
        between: None,
    },
];

impl Proof {
    fn good(&self) -> Request {
        Request::of(self.file).to(&format!("/webhooks/{}", self.scheme))
    }

    fn value(&self) -> String {
        self.good().headers[self.header].clone()
    }

    fn bench(&self) -> Bench {
        let mut senders = Bench::senders();
        if self.file.contains("ed25519") {
            senders["standard"]["secrets"] = json!([vectors()["ed25519"]["public"]]);
        }
        Bench::with_senders(&senders)
    }
}

async fn accepted(bench: &Bench, request: &Request, what: &str) {
    if let Err(response) = bench.inspect(request).await {
        panic!("{what}: {}", response.body);
    }
}

async fn refused(bench: &Bench, request: &Request, what: &str) {
    let Err(response) = bench.inspect(request).await else {
        panic!("{what} was accepted");
    };
    assert_eq!(response.status_code, 401, "{what}");
    assert_eq!(problem(&response), "unauthorized", "{what}");
}

/// A text with one bit of one of its bytes changed, as far as that is a text.
fn flipped(text: &str, at: usize, bit: u32) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] ^= 1 << bit;
    String::from_utf8(bytes).ok()
}

#[test]
fn every_scheme_is_here() {
    assert!(
        SCHEMES
            .iter()
            .all(|scheme| PROOFS.iter().any(|proof| proof.scheme == *scheme))
    );
}

#[tokio::test]
async fn one_bit_of_the_body() {
    for proof in PROOFS {
        let (bench, good) = (proof.bench(), proof.good());
        accepted(&bench, &good, proof.file).await;
        let step = (good.body.len() / 60).max(1);
        for (count, at) in (0..good.body.len()).step_by(step).enumerate() {
            let mut body = good.body.clone();
            body[at] ^= 1 << (count % 8);
            let changed = good.clone().body(body);
            let what = format!("{}: byte {at}", proof.file);
            match proof.body {
                true => refused(&bench, &changed, &what).await,
                // Nothing is signed: who has the token may say anything.
                false => accepted(&bench, &changed, &what).await,
            }
        }
        for body in [
            Vec::new(),
            [&good.body[..], b"\n"].concat(),
            [b" ", &good.body[..]].concat(),
        ] {
            if proof.body {
                refused(&bench, &good.clone().body(body), proof.file).await;
            }
        }
    }
}

#[tokio::test]
async fn one_bit_of_the_proof() {
    for proof in PROOFS {
        let (bench, good, value) = (proof.bench(), proof.good(), proof.value());
        for at in 0..value.len() {
            for bit in 0..8 {
                let Some(changed) = flipped(&value, at, bit) else {
                    continue;
                };
                // The word before a token is one in any case.
                if changed.eq_ignore_ascii_case(&value)
                    && at < "bearer".len()
                    && proof.scheme == "token"
                {
                    continue;
                }
                let request = good.clone().with(proof.header, &changed);
                refused(&bench, &request, &format!("{}: {changed}", proof.file)).await;
            }
        }
    }
}

#[tokio::test]
async fn one_bit_of_a_signed_header() {
    for proof in PROOFS {
        let (bench, good) = (proof.bench(), proof.good());
        for name in proof.headers {
            let value = good.headers[*name].clone();
            for at in 0..value.len() {
                for bit in 0..7 {
                    let changed = flipped(&value, at, bit).unwrap();
                    let request = good.clone().with(name, &changed);
                    refused(
                        &bench,
                        &request,
                        &format!("{}: {name}: {changed}", proof.file),
                    )
                    .await;
                }
            }
            refused(&bench, &good.clone().without(name), name).await;
            refused(
                &bench,
                &good.clone().with(name, &format!("{value},{value}")),
                name,
            )
            .await;
            refused(&bench, &good.clone().with(name, &format!(" {value}")), name).await;
        }
    }
}

#[tokio::test]
async fn one_bit_of_the_secret() {
    for scheme in SCHEMES {
        // A bit of the key that leaves a `whsec_` decodable.
        let right = secret(scheme);
        let at = right.len() - 8;
        let alike = |other: &String| other.as_bytes()[at].is_ascii_alphanumeric();
        let mut others = (0..6).filter_map(|bit| flipped(&right, at, bit));
        let other = others.find(alike).unwrap();
        let proof = PROOFS.iter().find(|proof| proof.scheme == scheme).unwrap();
        let bench = proof.bench();
        let signed = |secret: &str| proof.good().signed_at(scheme, secret, now());
        accepted(&bench, &signed(&right), scheme).await;
        refused(&bench, &signed(&other), scheme).await;
        // Either of two configured ones is right, in any order.
        for secrets in [[&right, &other], [&other, &right]] {
            let mut senders = Bench::senders();
            senders[scheme]["secrets"] = json!(secrets);
            let bench = Bench::with_senders(&senders);
            accepted(&bench, &signed(&right), scheme).await;
            accepted(&bench, &signed(&other), scheme).await;
        }
    }
}

#[tokio::test]
async fn truncated_long_repeated_and_foreign_proofs() {
    for proof in PROOFS {
        let (bench, good, value) = (proof.bench(), proof.good(), proof.value());
        for length in 0..value.len() {
            let request = good.clone().with(proof.header, &value[..length]);
            refused(&bench, &request, &format!("{}: {length}", proof.file)).await;
        }
        let odd = [
            format!("{value}0"),
            format!("{value}="),
            format!("{value},{value}"),
            format!("{value}, {value}"),
            format!("{value};{value}"),
            format!(" {value}"),
            format!("{value}é"),
            format!("é{value}"),
            value.to_uppercase(),
            value.replace(|c: char| c.is_ascii_digit(), "０"),
            value.repeat(1000),
            value.chars().rev().collect(),
        ];
        // Where spaces stand between signatures, one more is none.
        let listed = |text: &String| proof.between == Some(" ") && text.contains(' ');
        for changed in odd.into_iter().filter(|text| !listed(text)) {
            let request = good.clone().with(proof.header, &changed);
            refused(&bench, &request, &format!("{}: {changed:.200}", proof.file)).await;
        }
        refused(&bench, &good.clone().without(proof.header), proof.file).await;
        // Beside a wrong one the right one counts where the scheme has lists, and only there.
        let wrong = flipped(&value, value.len() - 3, 0).unwrap();
        let wrong = wrong.rsplit(',').next().unwrap().to_owned();
        let last = value.rsplit(',').next().unwrap().to_owned();
        let wrong = match proof.scheme {
            "standard" => value.replace(&last, &wrong),
            _ => wrong,
        };
        let between = proof.between.unwrap_or(" ");
        for list in [
            format!("{value}{between}{wrong}"),
            format!("{wrong}{between}{value}"),
        ] {
            let request = good.clone().with(proof.header, &list);
            match proof.between {
                Some(_) => accepted(&bench, &request, &list).await,
                None => refused(&bench, &request, &list).await,
            }
        }
    }
}

/// Whether time stamps count, and how exactly.
#[tokio::test]
async fn a_time_stamp_may_be_300_seconds_off_to_either_side() {
    for proof in PROOFS
        .iter()
        .filter(|proof| !proof.file.contains("ed25519"))
    {
        let bench = proof.bench();
        let stamped = ["stripe", "slack", "standard"].contains(&proof.scheme);
        for (seconds, fresh) in [
            (-301, false),
            (-300, true),
            (0, true),
            (300, true),
            (301, false),
        ] {
            let at = EpochMillis(now().0 + seconds * 1000);
            let request = proof
                .good()
                .signed_at(proof.scheme, &secret(proof.scheme), at);
            let what = format!("{}: {seconds} s", proof.scheme);
            match fresh || !stamped {
                true => accepted(&bench, &request, &what).await,
                false => refused(&bench, &request, &what).await,
            }
        }
    }
}

/// The proofs of all other schemes, all of them right, beside or in place of the own one.
#[tokio::test]
async fn n14_headers_of_other_schemes_change_nothing() {
    for proof in PROOFS {
        let (bench, good) = (proof.bench(), proof.good());
        let plain = bench.seen(&good).await;
        let mut crowded = good.clone();
        for other in PROOFS.iter().filter(|other| other.scheme != proof.scheme) {
            let foreign = good.clone().signed_by(other.scheme);
            // GitLab and callers both name their keys `idempotency-key`; all other names differ.
            let shared = |name: &str| good.headers.contains_key(name);
            for (name, value) in foreign.headers.iter().filter(|(name, _)| !shared(name)) {
                crowded = crowded.with(name, value);
            }
            for (name, value) in &other.good().headers {
                if !shared(name) && name != "svix-id" {
                    crowded = crowded.with(name, value);
                }
            }
            let foreign = foreign.without(proof.header);
            refused(&bench, &foreign.to(&good.path), other.scheme).await;
        }
        let crowded = crowded
            .with("svix-id", "forged")
            .with("svix-signature", "v1,forged");
        let crowded = match proof.scheme {
            // Read if it is there: it is the scheme's own.
            "twilio" => crowded,
            _ => crowded.with("x-twilio-signature", "forged"),
        };
        assert_eq!(bench.seen(&crowded).await, plain, "{}", proof.scheme);
    }
}
