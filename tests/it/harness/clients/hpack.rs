//! Blocks of fields as clients write them (HPACK, RFC 7541).

/// Bits of the code of each byte (RFC 7541 appendix B).
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];

/// Puts a number (§5.1) below `high`, which says what it is of, in the bits of `mask` and further bytes.
pub(crate) fn put_number(value: usize, high: u8, mask: u8, block: &mut Vec<u8>) {
    let max = usize::from(mask);
    if value < max {
        block.push(high | u8::try_from(value).expect("small"));
        return;
    }
    block.push(high | mask);
    let mut rest = value - max;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128 + 128).expect("small"));
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("small"));
}

/// Puts a string (§5.2), in Huffman code or as it is.
pub(crate) fn put_string(text: &[u8], in_huffman: bool, block: &mut Vec<u8>) {
    if in_huffman {
        let coded = huffman(text);
        put_number(coded.len(), 0x80, 0x7f, block);
        block.extend(coded);
    } else {
        put_number(text.len(), 0, 0x7f, block);
        block.extend(text);
    }
}

fn huffman(text: &[u8]) -> Vec<u8> {
    let codes = codes();
    let bits = text.iter().flat_map(|byte| {
        let (code, length) = codes[usize::from(*byte)];
        (0..length).rev().map(move |at| code >> at & 1 == 1)
    });
    let bits: Vec<bool> = bits.collect();
    // Filled up with ones.
    let byte = |bits: &[bool]| {
        (0..8).fold(0, |byte, at| byte << 1 | u8::from(bits.get(at).copied().unwrap_or(true)))
    };
    bits.chunks(8).map(byte).collect()
}

/// The code is canonical: counted up by length, then by byte.
fn codes() -> [(u32, u8); 256] {
    let mut order: Vec<usize> = (0..256).collect();
    order.sort_by_key(|byte| LENGTHS[*byte]);
    let (mut codes, mut code, mut last) = ([(0, 0); 256], 0, 0);
    for byte in order {
        code <<= LENGTHS[byte] - last;
        last = LENGTHS[byte];
        codes[byte] = (code, last);
        code += 1;
    }
    codes
}

#[test]
fn the_examples_of_the_rfc() {
    assert_eq!(
        huffman(b"www.example.com"),
        [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]
    );
    assert_eq!(huffman(b"custom-value"), [0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]);
    assert_eq!(codes()[usize::from(b'#')], (0xffa, 12));
    assert_eq!(codes()[0xf9], (0x0fff_fffe, 28));
    let mut number = Vec::new();
    put_number(1337, 0xe0, 0x1f, &mut number);
    assert_eq!(number, [0xff, 0x9a, 0x0a]);
}
