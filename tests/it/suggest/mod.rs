//! Proposed limits as a part of the config file.

mod text;
