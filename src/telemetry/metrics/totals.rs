//! Counts that were read at one moment. Deltas are their differences.

use crate::counter::{FineTotal, Scale};

/// A count that only grows, or several.
pub(super) trait Count {
    /// The counts since they were `earlier`.
    fn since(&self, earlier: &Self) -> Self;
    fn add(&mut self, more: &Self);
    fn is_zero(&self) -> bool;
}

/// The counts of a group of counters that deltas need.
pub(super) trait Total: Count + Default {
    /// The counters.
    type Cells;
    /// Reads the counters.
    fn of(cells: &Self::Cells) -> Self;
}

impl Count for u64 {
    fn since(&self, earlier: &Self) -> Self {
        self.saturating_sub(*earlier)
    }

    fn add(&mut self, more: &Self) {
        *self += more;
    }

    fn is_zero(&self) -> bool {
        *self == 0
    }
}

impl<const N: usize> Count for [u64; N] {
    fn since(&self, earlier: &Self) -> Self {
        std::array::from_fn(|index| self[index].since(&earlier[index]))
    }

    fn add(&mut self, more: &Self) {
        self.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }

    fn is_zero(&self) -> bool {
        self.iter().all(Count::is_zero)
    }
}

impl<S: Scale> Count for FineTotal<S> {
    fn since(&self, earlier: &Self) -> Self {
        self.since(earlier)
    }

    fn add(&mut self, more: &Self) {
        self.merge(more);
    }

    fn is_zero(&self) -> bool {
        self.count() == 0
    }
}

/// Declares a [`Total`]: after each field stands the function that reads it from the counters.
macro_rules! totals {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident of $cells:ty {
            $($(#[$of_field:meta])* $field_visible:vis $field:ident: $type:ty = $read:expr,)+
        }
    ) => {
        $(#[$attribute])*
        $visible struct $name { $($(#[$of_field])* $field_visible $field: $type,)+ }

        impl $name {
            /// Adds the counts under another name, or at another time.
            pub fn add(&mut self, more: &Self) {
                $($crate::telemetry::metrics::totals::Count::add(&mut self.$field, &more.$field);)+
            }
        }

        impl $crate::telemetry::metrics::totals::Count for $name {
            fn since(&self, earlier: &Self) -> Self {
                Self { $($field: $crate::telemetry::metrics::totals::Count::since(&self.$field, &earlier.$field),)+ }
            }

            fn add(&mut self, more: &Self) {
                self.add(more);
            }

            fn is_zero(&self) -> bool {
                $($crate::telemetry::metrics::totals::Count::is_zero(&self.$field))&&+
            }
        }

        impl $crate::telemetry::metrics::totals::Total for $name {
            type Cells = $cells;

            fn of(cells: &$cells) -> Self {
                $(let $field: fn(&$cells) -> $type = $read;)+
                Self { $($field: $field(cells),)+ }
            }
        }
    };
}
pub(super) use totals;
