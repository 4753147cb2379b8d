//! Access logs, and what is made of them.

pub(crate) mod field_list;
pub(crate) mod log_files;
pub(crate) mod nginx_day;
pub(crate) mod replayed;
