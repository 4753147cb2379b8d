//! What other proxies and applications ask on the listener of `[decisions]`.

mod access;
mod check;
mod decide;
mod hostile;
mod rate_limits;
mod records;
mod totals;
