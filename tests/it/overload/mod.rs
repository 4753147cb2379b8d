//! A backend that gets more requests than it can work on.

mod adaptive;
mod gateway;
mod shares;
