//! One worker and a real Redis: the script, and the connections that carry it.

mod ballot;
mod calendars;
mod cluster;
mod histories;
mod leases;
mod link;
mod login;
mod logs;
mod numbers;
mod places;
mod script;
mod tiers;
mod traces;
mod twins;
mod unix_socket;
