//! Keys of a later version: they are reported as such, not as mistyped.

/// The keys by the table that they belong to; one that ends in `.` begins the titles of many tables.
const LATER: [(&str, &[&str]); 7] = [
    ("the file", &["acme"]),
    ("`[server]`", &["compress", "http3", "limits", "ratelimit_policies"]),
    ("`[store]`", &["lease", "on_change", "snapshot"]),
    ("`[upstreams.", &["breaker", "mirror", "send_proxy_protocol", "slow_start", "sticky"]),
    ("`eject`", &["statuses"]),
    (
        "`[limits.",
        &[
            "fold",
            "lease",
            "max_keys",
            "on_change",
            "retry_jitter",
            "starts",
            "sync",
            "time_zone",
            "trial",
            "unreadable",
        ],
    ),
    ("`[[routes]]`", &["compress", "mirror", "server_limits"]),
];

/// Whether a later version knows this key in the table with this title.
pub(super) fn is_later(title: &str, key: &str) -> bool {
    let is_of = |of: &str| title == of || (of.ends_with('.') && title.starts_with(of));
    LATER.iter().any(|(of, keys)| is_of(of) && keys.contains(&key))
}
