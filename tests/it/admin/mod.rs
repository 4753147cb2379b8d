//! The admin listener: its API and the dashboard.

mod charge;
mod dashboard;
mod endpoints;
mod keys;
mod limits;
mod masking;
mod overrides;
mod refusals;
mod samples;
mod steer;
mod talkers;
mod tls;
mod tokens;
