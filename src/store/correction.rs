//! The correction of a cost that was charged before it was known.

use super::Charge;
use crate::limit::units::Timestamp;

/// The correction of a charge that was admitted, once the request's cost is known.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    /// The charge.
    pub charge: Charge<'a>,
    /// When it counted: see [`Outcome::counted_at`](super::Outcome::counted_at).
    pub counted_at: Timestamp,
    /// By how many units the cost was higher; a refund if negative.
    pub difference: i64,
    /// A shared store has decided it, and not this process.
    pub shared: bool,
}
