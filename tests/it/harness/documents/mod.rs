//! The pages of the project, and the sources as text.

pub(crate) mod descriptors;
pub(crate) mod mmdb;
pub(crate) mod newcomer;
pub(crate) mod page_run;
pub(crate) mod page_session;
pub(crate) mod pages;
pub(crate) mod shown;
pub(crate) mod sources;
