//! The other side: a delivery as its sender signs it, to try an endpoint out and to test it.

use firstclaim::clock::EpochMillis;

use crate::sender::AnyScheme;

/// The names of all schemes.
pub const SCHEMES: &[&str] = AnyScheme::NAMES;

/// Headers by lower-case name.
pub type Headers = Vec<(&'static str, String)>;

/// A delivery that is not signed yet.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    /// The address that is called, with its query.
    pub url: &'a str,
    /// The body's content type: Twilio signs a form otherwise than anything else.
    pub content_type: &'a str,
    /// The body, byte for byte.
    pub body: &'a [u8],
    /// The delivery's id; of no use to schemes whose id is in the body (see [`id_header`]).
    pub id: &'a str,
    /// When it is sent.
    pub at: EpochMillis,
}

/// A signed delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The address to call. Twilio adds the digest of a body that is no form.
    pub url: String,
    /// The headers that the scheme is about: the delivery's id and the signature.
    pub headers: Headers,
}

/// Why a delivery was not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SigningError {
    /// There is no scheme of this name.
    #[error("there is no scheme {0:?}")]
    Scheme(String),
    /// The secret can't sign; it is not printed.
    #[error("the secret {0}")]
    Secret(String),
}

/// Signs a delivery as the sender of this scheme does. Secrets of any length are taken: it is the
/// receiver's business to refuse a short one.
///
/// ```
/// use firstclaim::clock::EpochMillis;
/// use webhook::signing::{Unsigned, sign};
///
/// let delivery = Unsigned {
///     url: "https://hooks.example.com/webhooks/github",
///     content_type: "application/json",
///     body: b"Hello, World!",
///     id: "72d3162e-cc78-11e3-81ab-4c9367dc0958",
///     at: EpochMillis(1_794_478_900_000),
/// };
/// let signed = sign("github", "It's a Secret to Everybody", &delivery)?;
/// // GitHub's own example.
/// let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
/// assert!(signed.headers.contains(&("x-hub-signature-256", signature.to_owned())));
/// # Ok::<(), webhook::signing::SigningError>(())
/// ```
///
/// # Errors
///
/// See [`SigningError`].
pub fn sign(scheme: &str, secret: &str, delivery: &Unsigned<'_>) -> Result<Signed, SigningError> {
    let signed = AnyScheme::sign(scheme, secret, delivery);
    let signed = signed.ok_or_else(|| SigningError::Scheme(scheme.to_owned()))?;
    let (url, headers) = signed.map_err(SigningError::Secret)?;
    Ok(Signed { url, headers })
}

/// The header with the delivery's id; `None` where the id is in the body, or for an unknown scheme.
#[must_use]
pub fn id_header(scheme: &str) -> Option<&'static str> {
    AnyScheme::id_header(scheme)
}
