//! The process: start, reload, takeover, drain, service managers.

mod activation;
mod deploy;
mod drain;
mod reload;
mod supervisor;
mod takeover;
mod upgrade;
mod wall_clock;
