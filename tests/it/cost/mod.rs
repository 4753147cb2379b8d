//! Costs that are known only from the request or its response.

mod calendars;
mod documents;
mod faults;
mod http2;
mod request;
mod reserve;
mod response;
mod shapes;
mod stores;
mod sums;
mod terminal_events;
mod tiers;
