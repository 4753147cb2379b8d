//! Inputs of the pure core: charges, traces, requests.

pub(crate) mod cases;
pub(crate) mod charges;
pub(crate) mod in_flight;
pub(crate) mod metered;
pub(crate) mod overload_model;
pub(crate) mod places;
pub(crate) mod refusals;
pub(crate) mod sample_request;
pub(crate) mod trace;
