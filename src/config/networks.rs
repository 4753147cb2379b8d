//! `allow`, `deny` and `clients`: networks, written in the file or in files of their own.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::keys::{ANY, SOME, Schema, keys};
use super::named_file::MAX_TABLE_BYTES;
use super::report::{OtherLine, quoted};
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use crate::route::client::AddressRules;

keys! {
    /// Who is admitted.
    pub(super) ADDRESS_RULES: AddressRuleKeys = "allow and deny" {
        /// Addresses and networks of the clients that are admitted, and "file:PATH" with one a line; others get 403.
        /// Default: all.
        allow = Schema::List(SOME, &Schema::Text);
        /// Addresses and networks of clients that get 403, and "file:PATH" with one a line. `deny` wins over `allow`.
        /// Default: none.
        deny = Schema::List(ANY, &Schema::Text);
    }
}

/// The prefix of an item that names a file.
const FILE: &str = "file:";

/// Reads `allow` and `deny` of a table.
pub(super) fn rules(table: &mut ConfigTable<'_>) -> AddressRules {
    let errors_before = table.diagnostics().errors();
    let allow = table.optional(&ADDRESS_RULES.allow, |value| {
        some(&value, "`allow` names no network, so every request would be refused")
    });
    // An empty `deny` refuses none.
    let deny = table.optional(&ADDRESS_RULES.deny, |value| {
        let mut all = Vec::new();
        value.each(|item| add(&item, &mut all))?;
        // An unknown value may be a further network.
        if value.diagnostics().errors() == errors_before {
            warn_of_none_left(allow.as_deref().unwrap_or_default(), &all, &value);
        }
        Some(all)
    });
    let shared = |all: Vec<IpNet>| Arc::new(all.into_iter().collect());
    AddressRules { allow: allow.map(shared), deny: deny.map(shared) }
}

/// `deny` wins over `allow`. In nginx the first line that fits decides, so people write `deny all` below an `allow`.
fn warn_of_none_left(allow: &[IpNet], deny: &[IpNet], value: &ConfigValue<'_>) {
    let is_denied = |allowed: &IpNet| deny.iter().any(|denied| denied.contains(allowed));
    if !allow.is_empty() && allow.iter().all(is_denied) {
        value.diagnostics().warn(
            value.span(),
            "`deny` has all networks of `allow`, and it wins: every request is refused",
            "leave `deny` out: clients that `allow` does not list are refused without it",
        );
    }
}

/// Reads `clients` of a route.
pub(super) fn clients(value: &ConfigValue<'_>) -> Option<Vec<IpNet>> {
    some(value, "`clients` names no network, so no request has this route")
}

/// At least one network; `none` is the fault of a list of files that name none.
fn some(value: &ConfigValue<'_>, none: &str) -> Option<Vec<IpNet>> {
    let (mut all, errors_before) = (Vec::new(), value.diagnostics().errors());
    value.some_of(|item| add(&item, &mut all))?;
    if all.is_empty() && value.diagnostics().errors() == errors_before {
        value.fault(none, "name a network");
    }
    Some(all)
}

fn add(item: &ConfigValue<'_>, all: &mut Vec<IpNet>) -> Option<()> {
    let text = item.text()?;
    if let Some(path) = text.as_str().strip_prefix(FILE).map(str::to_owned) {
        return add_file(item, &text.with(path), all);
    }
    let network = text.parse("a network", network)?;
    warn_of_host_bits(network, item);
    all.push(network.trunc());
    Some(())
}

/// A network or an address a line; blank lines, and what follows `#`, mean nothing.
fn add_file(item: &ConfigValue<'_>, path: &Cursor<'_>, all: &mut Vec<IpNet>) -> Option<()> {
    let bytes = item.file_at(path, MAX_TABLE_BYTES)?;
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        if line.is_empty() {
            continue;
        }
        let other = || OtherLine { file: path.as_str().to_owned(), line: number };
        match network(std::str::from_utf8(line).unwrap_or_default()) {
            Ok(network) => {
                if let Some((message, help)) = host_bits_warning(network) {
                    item.diagnostics().warn_in(item.span(), other(), message, help);
                }
                all.push(network.trunc());
            }
            // Not the line itself: by mistake the file may be one of secrets.
            Err(_) => item.diagnostics().fault_in(
                item.span(),
                other(),
                "this line is neither an address nor a network",
                "write an address (`192.0.2.1`) or a network (`10.0.0.0/8`) in each line",
            ),
        }
    }
    Some(())
}

/// A network written as one of its addresses: it is wider than the address.
pub(super) fn warn_of_host_bits(network: IpNet, value: &ConfigValue<'_>) {
    if let Some((message, help)) = host_bits_warning(network) {
        value.diagnostics().warn(value.span(), message, help);
    }
}

/// The warning and its remedy, if the network is written so.
fn host_bits_warning(network: IpNet) -> Option<(String, String)> {
    let whole = network.trunc();
    (whole != network).then(|| {
        let message = format!("`{network}` has bits set beyond its prefix: it is the network `{whole}`");
        (message, format!("write `{whole}`, or `{}` for the one address", network.addr()))
    })
}

fn network(text: &str) -> Result<IpNet, SyntaxError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    text.parse().map_err(|_| {
        let help = match text {
            "all" | "any" | "*" => "leave it out: an `allow` refuses all clients that it does not list",
            _ => {
                "write an address (`192.0.2.1`), a network (`10.0.0.0/8`) or, in `gateway.toml`, `file:PATH`"
            }
        };
        SyntaxError::new(format!("{} is neither an address nor a network", quoted(text)), help)
    })
}
