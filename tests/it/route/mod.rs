//! Routes and keys: which route a request takes, and which counter it is charged to.

mod countries;
mod credential;
mod explain;
mod key_claim;
mod key_exemption;
mod key_named;
mod key_words;
mod path;
mod pattern;
mod pure;
mod regex;
mod spelling;
mod steps;
mod table;
mod unreachable;
mod values;
