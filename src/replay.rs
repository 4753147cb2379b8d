//! Replays an access log through the limits of a plan, in virtual time: the route, the client, the keys and the decisions
//! are found by the code that serves requests.
//!
//! For example, a line of 12:00:00.000 and one of 12:00:00.900 are decided 0.9 s apart, whatever the clock of the machine
//! says. The report tells which clients a limit would have refused, and how often, before it is enforced.

mod caller;
mod calls;
mod decided;
mod described;
mod in_flight;
pub mod keys_of_log;
mod logged_call;
mod logged_response;
pub mod missing_fields;
pub mod report;
mod run;
pub mod statistics;
mod virtual_gateway;

pub use caller::LoggedConsumers;
pub use decided::{LimitResult, LoggedLabel, ReplayRefusal, ReplaySink, ReplayVerdict, ReplayedRequest};
pub use described::DescribedRequest;
pub use run::{PlanComparison, Replay, Watch};
pub use virtual_gateway::VirtualGateway;
