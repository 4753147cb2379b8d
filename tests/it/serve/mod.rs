//! The process: start, reload, takeover, drain, service managers.

mod activation;
mod deploy;
mod drain;
mod hand_over;
mod rates;
mod reload;
mod snapshots;
mod supervisor;
mod takeover;
mod upgrade;
mod wall_clock;
