//! A backend that gets more requests than it can work on.

mod adaptive;
mod gateway;
mod leaky_bucket;
mod release;
mod shared_store;
mod shares;
mod views;
