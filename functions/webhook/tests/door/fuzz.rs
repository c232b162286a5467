//! Input at volume: header parsing, verification and event decoding. Nothing panics, nothing that
//! was changed is believed, and whatever is believed has keys.
//!
//! A short run is part of the tests. A long one, spread over the three targets:
//!
//! ```console
//! $ FIRSTCLAIM_FUZZ_INPUTS=10000000 cargo test --profile bench -p webhook --test door fuzz
//! ```

mod input;

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use webhook::{Inspected, Response};

use crate::bench::{Bench, Request, SCHEMES, now};
use input::{Change, bodies, changes, good, header_values, kinds};

/// How many inputs the three targets get in all, unless the environment says otherwise.
const SHORT: u32 = 6_000;

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read their environment"
)]
fn config() -> ProptestConfig {
    let said = std::env::var("FIRSTCLAIM_FUZZ_INPUTS").ok();
    let inputs = said.map_or(SHORT, |said| said.parse().unwrap());
    ProptestConfig {
        cases: inputs.div_ceil(3),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);

/// What the request would be taken for. Senders that are configured inline are never waited for.
fn inspect(request: &Request) -> Result<Inspected, Response> {
    let inspected = pin!(BENCH.webhook.inspect(request.event(), now()));
    match inspected.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(inspected) => inspected,
        Poll::Pending => panic!("something was waited for"),
    }
}

fn scheme() -> impl Strategy<Value = usize> {
    0..SCHEMES.len()
}

proptest! {
    #![proptest_config(config())]

    /// Header values of any form in the place of a proof: 401, or it was the right one.
    #[test]
    fn header_parsing(
        scheme in scheme(),
        which in any::<prop::sample::Index>(),
        value in header_values(),
    ) {
        let good = good(SCHEMES[scheme]);
        let header = which.get(good.proofs);
        let request = good.request.clone().with(header, &value);
        match inspect(&request) {
            Ok(_) => prop_assert!(good.still_proved(&request), "{header}: {value}"),
            Err(response) => prop_assert!((400..500).contains(&response.status_code)),
        }
    }

    /// A good delivery with anything changed: it is only believed if all that is signed is as it
    /// was.
    #[test]
    fn verification(
        scheme in scheme(),
        changes in prop::collection::vec(changes(), 1..4),
    ) {
        let good = good(SCHEMES[scheme]);
        let request = changes.iter().fold(good.request.clone(), |request, change| {
            Change::apply(change, request)
        });
        match inspect(&request) {
            Ok(_) => prop_assert!(good.still_proved(&request), "{changes:?}"),
            Err(response) => prop_assert!((200..500).contains(&response.status_code)),
        }
    }

    /// Any body, rightly signed: it has keys that are keys, twice the same, or it is refused.
    #[test]
    fn event_decoding(scheme in scheme(), body in bodies(), kind in kinds()) {
        let scheme = SCHEMES[scheme];
        let request = kind.apply(good(scheme).request.clone().body(body)).signed_by(scheme);
        match inspect(&request) {
            Ok(seen) => {
                prop_assert_eq!(inspect(&request).unwrap(), seen.clone());
                prop_assert_eq!(&*seen.sender, scheme);
                for key in [&seen.door, &seen.operation] {
                    prop_assert!(!key.id().is_empty());
                    prop_assert!(!key.as_str().contains(char::is_control), "{}", key);
                }
                let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
                prop_assert!(!seen.kind.is_empty() && seen.kind.bytes().all(safe), "{}", seen.kind);
                if seen.fallback.is_some() {
                    prop_assert_eq!(seen.door.id(), seen.operation.id());
                }
            }
            // A probe, or no key.
            Err(response) => prop_assert!([200, 400].contains(&response.status_code)),
        }
    }
}
