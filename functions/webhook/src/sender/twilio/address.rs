//! The address that Twilio signs.

use super::word;

/// The value of `bodySHA256` in a raw query, if it stands there once.
pub(super) fn body_digest(query: &str) -> Option<&str> {
    let mut found = query
        .split('&')
        .filter_map(|field| field.strip_prefix("bodySHA256="));
    let digest = found.next()?;
    // With a second one nobody could tell which binds the body: then none does.
    Some(if found.next().is_some() { "" } else { digest })
}

/// The address with its port and without: Twilio signs either.
pub(super) fn with_and_without_port(url: &str) -> [String; 2] {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ if scheme == "http" => (authority, "80"),
        _ => (authority, "443"),
    };
    [
        format!("{scheme}://{host}:{port}{behind}"),
        format!("{scheme}://{host}{behind}"),
    ]
}

/// The address with the names in its query and without their values.
pub(super) fn without_values(url: &str) -> String {
    let Some((address, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let names: Vec<&str> = query
        .split('&')
        .map(|field| field.split('=').next().and_then(word).unwrap_or("…"))
        .collect();
    format!("{address}?{}", names.join("&"))
}
