//! Files in MaxMind's format, version 2: written from a list of networks with their records.

use ipnet::IpNet;
use serde_json::{Value, json};

/// A child of a node: nothing, a node, or a record at this place of the data.
#[derive(Clone, Copy)]
enum Child {
    Nothing,
    Node(usize),
    Record(usize),
}

/// A file with these networks, of which none contains another. Those of IPv4 stand below `::/96`.
pub(crate) fn database(networks: &[(&str, Value)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Child::Nothing; 2]], Vec::new());
    for (network, record) in networks {
        let network: IpNet = network.parse().expect("a network");
        let (bits, length) = match network {
            IpNet::V4(network) => {
                (u128::from(network.addr().to_bits()), 96 + u32::from(network.prefix_len()))
            }
            IpNet::V6(network) => (network.addr().to_bits(), u32::from(network.prefix_len())),
        };
        let place = data.len();
        encode(record, &mut data);
        let mut node = 0;
        for depth in 0..length {
            let side = usize::from(bits >> (127 - depth) & 1 == 1);
            if depth + 1 == length {
                nodes[node][side] = Child::Record(place);
                break;
            }
            node = match nodes[node][side] {
                Child::Node(next) => next,
                _ => {
                    nodes.push([Child::Nothing; 2]);
                    let next = nodes.len() - 1;
                    nodes[node][side] = Child::Node(next);
                    next
                }
            };
        }
    }
    written(&nodes, &data)
}

/// A file whose nodes are met again and again: each has the next one on both sides, so that it has 2^128 networks.
pub(crate) fn endless(has_data: bool) -> Vec<u8> {
    let last = if has_data { Child::Record(0) } else { Child::Nothing };
    let mut nodes: Vec<_> = (1..128).map(|next| [Child::Node(next); 2]).collect();
    nodes.push([last; 2]);
    let mut data = Vec::new();
    encode(&json!({ "country": { "iso_code": "DE" } }), &mut data);
    written(&nodes, &data)
}

fn written(nodes: &[[Child; 2]], data: &[u8]) -> Vec<u8> {
    let count = nodes.len();
    let number = |child: &Child| match child {
        Child::Nothing => count,
        Child::Node(node) => *node,
        Child::Record(place) => count + 16 + place,
    };
    let children = nodes.iter().flatten().map(number);
    let mut bytes: Vec<u8> =
        children.flat_map(|number| u32::try_from(number).expect("a small file").to_be_bytes()).collect();
    bytes.extend([0; 16]);
    bytes.extend(data);
    bytes.extend(b"\xab\xcd\xefMaxMind.com");
    bytes.extend(metadata(u32::try_from(count).expect("a small file")));
    bytes
}

/// The metadata, whose numbers have types of their own: 5 (two bytes), 6 (four) and 9 (eight).
fn metadata(node_count: u32) -> Vec<u8> {
    let mut bytes = vec![7 << 5 | 9];
    let mut member = |name: &str, value: &[u8]| {
        encode(&name.into(), &mut bytes);
        bytes.extend(value);
    };
    let short = |number: u8| [5 << 5 | 2, 0, number];
    let encoded = |value: Value| {
        let mut bytes = Vec::new();
        encode(&value, &mut bytes);
        bytes
    };
    member("binary_format_major_version", &short(2));
    member("binary_format_minor_version", &short(0));
    member("build_epoch", &[&[8, 2][..], &1_700_000_000_u64.to_be_bytes()].concat());
    member("database_type", &encoded("Test".into()));
    member("description", &encoded(json!({ "en": "test" })));
    member("ip_version", &short(6));
    member("languages", &encoded(json!(["en"])));
    member("node_count", &[&[6 << 5 | 4][..], &node_count.to_be_bytes()].concat());
    member("record_size", &short(32));
    bytes
}

fn encode(value: &Value, out: &mut Vec<u8>) {
    let mut begin = |kind: u8, size: usize| {
        let small = u8::try_from(size.min(29)).expect("small");
        out.push(if kind > 7 { small } else { kind << 5 | small });
        if kind > 7 {
            out.push(kind - 7);
        }
        if size >= 29 {
            out.push(u8::try_from(size - 29).expect("at most 284 bytes"));
        }
    };
    match value {
        Value::String(text) => {
            begin(2, text.len());
            out.extend(text.as_bytes());
        }
        Value::Number(number) => {
            let number = number.as_u64().and_then(|number| u32::try_from(number).ok()).expect("32 bits");
            begin(6, 4);
            out.extend(number.to_be_bytes());
        }
        Value::Object(members) => {
            begin(7, members.len());
            for (name, value) in members {
                encode(&Value::String(name.clone()), out);
                encode(value, out);
            }
        }
        Value::Array(items) => {
            begin(11, items.len());
            items.iter().for_each(|item| encode(item, out));
        }
        Value::Null | Value::Bool(_) => panic!("no record has {value}"),
    }
}
