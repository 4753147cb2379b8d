//! Black-box and seam tests: one binary, one module a subject.
#![expect(
    clippy::disallowed_methods,
    reason = "black-box tests wait for a real process, so they read a clock"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do the functions that tests share"
)]

mod abuse_connections;
mod abuse_faults;
mod abuse_fields;
mod abuse_hints;
mod abuse_memory;
mod admin_endpoints;
mod api_steer;
mod cli_explain;
mod cli_reload;
mod cli_usage;
mod client_address;
mod config_files;
mod config_fuzz;
mod config_report;
mod config_schema;
mod config_summary;
mod config_tour;
mod core_bounds;
mod core_cases;
mod core_convert;
mod core_definitions;
mod core_promises;
mod core_resume;
mod core_settle;
mod core_vectors;
mod edge_connections;
mod edge_cors;
mod edge_proxy_protocol;
mod grpc_calls;
mod harness;
mod http2_abuse;
mod http2_fragments;
mod http2_fuzz;
mod http2_life;
mod http2_malformed;
mod http2_requests;
mod http2_tools;
mod imports;
mod key_claim;
mod key_exemption;
mod key_words;
mod life_activation;
mod life_deploy;
mod life_redirect;
mod life_supervisor;
mod life_takeover;
mod limits_answers;
mod limits_exact;
mod limits_keys;
mod limits_seed;
mod proxy_forward;
mod proxy_framing;
mod proxy_fuzz;
mod proxy_headers;
mod proxy_identity;
mod proxy_integrity;
mod proxy_passage;
mod proxy_pipeline;
mod proxy_retry;
mod proxy_statuses;
mod proxy_streaming;
mod proxy_upgrade;
mod proxy_vectors;
mod redis_asker;
mod redis_ballot;
mod redis_cluster;
mod redis_link;
mod redis_login;
mod redis_logs;
mod redis_numbers;
mod redis_samples;
mod redis_script;
mod redis_traces;
mod redis_twins;
mod reload_drain;
mod reload_plan;
mod route_explain;
mod route_path;
mod route_pattern;
mod route_sample;
mod route_table;
mod route_unreachable;
mod shared_access;
mod shared_calm;
mod shared_check;
mod shared_cluster;
mod shared_exact;
mod shared_keys;
mod shared_outage;
mod shared_queue;
mod shared_refusals;
mod shared_reload;
mod shared_samples;
mod shared_sentinel;
mod shared_valkey;
mod store_adopt;
mod store_exactness;
mod store_flood;
mod store_loom;
mod store_numbers;
mod store_oracle;
mod store_refusals;
mod store_samples;
mod telemetry_access_log;
mod telemetry_alerts;
mod telemetry_dashboard;
mod telemetry_exposition;
mod telemetry_log_file;
mod telemetry_log_sample;
mod telemetry_metrics;
mod telemetry_scrape;
mod tls_certificates;
mod tls_clients;
mod tls_handshake;
mod tls_reload;
mod tls_traffic;
mod trace;
mod trace_context;
mod trace_export;
mod trace_life;
mod trace_spans;
mod upstream_balance;
mod upstream_bounds;
mod upstream_eject;
mod upstream_health;
mod upstream_http2;
mod upstream_http2_faults;
mod upstream_names;
mod upstream_tls;

// `store_loom` builds a file of the store, which names its neighbours from the root.
use tollgate::{limit, store};
