//! Several gateways that count in one shared store.

mod access;
mod bans;
mod calm;
mod charge;
mod check;
mod cluster;
mod exact;
mod fleet;
mod keys;
mod lease_faults;
mod leased_limits;
mod leases;
mod outage;
mod places;
mod places_in_cluster;
mod queue;
mod refusals;
mod reload;
mod sentinel;
mod steering;
mod valkey;
