//! `allow`, `deny` and `clients`: networks, written in the file or in files of their own.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::named_file::MAX_TABLE_BYTES;
use super::report::{OtherLine, quoted};
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use crate::route::client::AddressRules;

/// The prefix of an item that names a file.
const FILE: &str = "file:";

/// Reads `allow` and `deny` of a table.
pub(super) fn rules(table: &mut ConfigTable<'_>) -> AddressRules {
    AddressRules {
        allow: table.optional("allow", |value| {
            let all = some(&value, "`allow` names no network, so every request would be refused")?;
            Some(Arc::new(all.into_iter().collect()))
        }),
        // An empty `deny` refuses none.
        deny: table.optional("deny", |value| {
            let mut all = Vec::new();
            value.each(|item| add(&item, &mut all))?;
            Some(Arc::new(all.into_iter().collect()))
        }),
    }
}

/// Reads `clients` of a route.
pub(super) fn clients(value: &ConfigValue<'_>) -> Option<Vec<IpNet>> {
    some(value, "`clients` names no network, so no request has this route")
}

/// At least one network; `none` is the fault of a list of files that name none.
fn some(value: &ConfigValue<'_>, none: &str) -> Option<Vec<IpNet>> {
    let (mut all, errors_before) = (Vec::new(), value.reader().errors());
    value.some_of(|item| add(&item, &mut all))?;
    if all.is_empty() && value.reader().errors() == errors_before {
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
                    item.reader().warn_in(item.span(), other(), message, help);
                }
                all.push(network.trunc());
            }
            // Not the line itself: by mistake the file may be one of secrets.
            Err(_) => item.reader().fault_in(
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
        value.reader().warn(value.span(), message, help);
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
        SyntaxError::new(
            format!("{} is neither an address nor a network", quoted(text)),
            "write an address (`192.0.2.1`), a network (`10.0.0.0/8`) or, in `gateway.toml`, `file:PATH`",
        )
    })
}
