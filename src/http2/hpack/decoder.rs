//! The decoder of HPACK blocks (RFC 7541 §3 and §6).

use super::dynamic_table::{DynamicTable, TableName};
use super::{CompressionError, static_table};

/// Size of the dynamic table until the peer changes it, in bytes (RFC 9113 §6.5.2).
const INITIAL_TABLE_SIZE: usize = 4096;
/// Size updates at the start of a block: the smallest size since the last block, and the present one (§4.2).
const MAX_SIZE_UPDATES: usize = 2;
/// Bytes of an integer after its prefix.
const MAX_CONTINUATION: u32 = 5;

/// Decodes the blocks of one direction of a connection, in their order.
///
/// The memory that a decoder owns between two blocks is bounded by twice the maximum size of the table, plus 12 bytes
/// for each entry that the table has room for, rounded up to a power of two: 10 KiB for a table of 4096 bytes. A
/// decoder with an empty dynamic table owns no heap memory.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
}

/// Strings of a field that had to be decoded. Their memory is used again for the next field.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Bytes of the block not read yet.
#[derive(Debug)]
pub(crate) struct FieldBlock<'a>(&'a [u8]);

impl Decoder {
    /// A decoder with an empty dynamic table. `max_table_size` is the largest size in bytes that the peer may choose
    /// for the table, as announced by SETTINGS_HEADER_TABLE_SIZE; more than 1 GiB counts as 1 GiB.
    ///
    /// The table has 4096 bytes until the peer changes the size, or `max_table_size` if that is less. In the latter
    /// case a block that the peer sent before it received the SETTINGS may be refused.
    pub fn new(max_table_size: usize) -> Self {
        Self { table: DynamicTable::new(INITIAL_TABLE_SIZE, max_table_size) }
    }

    /// Decodes one whole block: the fragments of a HEADERS frame and its CONTINUATION frames, joined. Each name and
    /// value is passed to `field`, in their order.
    ///
    /// A byte of the block may stand for a field as large as the table, so `field` has to bound what it keeps.
    ///
    /// # Errors
    ///
    /// The block breaks a rule of RFC 7541. The fields before that place were passed. The decoder must not be used any
    /// more.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CompressionError> {
        let mut input = FieldBlock(block);
        let mut scratch = Scratch::default();
        self.size_updates(&mut input)?;
        while let Some(first) = input.peek() {
            match first {
                0x80.. => {
                    let (name, value) = self.entry(input.integer(7)?)?;
                    field(name, value);
                }
                0x40.. => {
                    let (name, value) = self.literal(6, &mut input, &mut scratch, &mut field)?;
                    self.table.insert(name, value).ok_or(CompressionError)?;
                }
                // A size update after a field.
                0x20.. => return Err(CompressionError),
                // Without indexing, and never indexed.
                _ => {
                    self.literal(4, &mut input, &mut scratch, &mut field)?;
                }
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Reads the size updates with which a block may begin (§6.3).
    fn size_updates(&mut self, input: &mut FieldBlock<'_>) -> Result<(), CompressionError> {
        for _ in 0..MAX_SIZE_UPDATES {
            if input.peek().is_none_or(|first| first & 0xe0 != 0x20) {
                break;
            }
            if !self.table.resize(input.integer(5)?) {
                return Err(CompressionError);
            }
        }
        Ok(())
    }

    /// Reads a literal (§6.2) with a name index of `prefix` bits, and passes it to `field`.
    fn literal<'s, 'a: 's>(
        &self,
        prefix: u32,
        input: &mut FieldBlock<'a>,
        scratch: &'s mut Scratch,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(TableName<'s>, &'s [u8]), CompressionError> {
        let name = match input.integer(prefix)? {
            0 => TableName::Literal(input.string(7, &mut scratch.name)?),
            index => match static_table::get(index) {
                Some((name, _)) => TableName::Literal(name),
                None => TableName::Entry(index - static_table::LENGTH - 1),
            },
        };
        let value = input.string(7, &mut scratch.value)?;
        match name {
            TableName::Literal(name) => field(name, value),
            TableName::Entry(index) => field(self.table.get(index).ok_or(CompressionError)?.0, value),
        }
        Ok((name, value))
    }

    /// The entry at `index` of both tables (§2.3.3).
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), CompressionError> {
        let entry =
            static_table::get(index).or_else(|| self.table.get(index.checked_sub(static_table::LENGTH + 1)?));
        entry.ok_or(CompressionError)
    }
}

impl<'a> FieldBlock<'a> {
    #[cfg(feature = "http3")]
    pub(crate) fn new(block: &'a [u8]) -> Self {
        Self(block)
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Result<u8, CompressionError> {
        let (byte, rest) = self.0.split_first().ok_or(CompressionError)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// Reads an integer (§5.1) that begins in the lowest `prefix` bits of a byte. It must fit into 32 bits.
    #[inline]
    pub(crate) fn integer(&mut self, prefix: u32) -> Result<usize, CompressionError> {
        let mask = u8::MAX >> (8 - prefix);
        let low = self.byte()? & mask;
        if low < mask { Ok(low.into()) } else { self.continuation(low) }
    }

    fn continuation(&mut self, low: u8) -> Result<usize, CompressionError> {
        let mut value = u64::from(low);
        for index in 0..MAX_CONTINUATION {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                let value = u32::try_from(value).map_err(|_| CompressionError)?;
                return usize::try_from(value).map_err(|_| CompressionError);
            }
        }
        Err(CompressionError)
    }

    /// Reads a string (§5.2), whose length begins in the lowest `prefix` bits of a byte, after the bit that tells whether it
    /// is Huffman coded. If it is, it is decoded into `scratch`.
    #[inline]
    pub(crate) fn string<'s>(
        &mut self,
        prefix: u32,
        scratch: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], CompressionError>
    where
        'a: 's,
    {
        let is_huffman = self.peek().is_some_and(|first| first & (1 << prefix) != 0);
        let length = self.integer(prefix)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(CompressionError)?;
        self.0 = rest;
        if is_huffman {
            super::huffman::decode(string, scratch)?;
            Ok(scratch)
        } else {
            Ok(string)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(String, String)>;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn decode(decoder: &mut Decoder, block: &[u8]) -> (Result<(), CompressionError>, Fields) {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let result = decoder.decode(block, |name, value| fields.push((text(name), text(value))));
        (result, fields)
    }

    fn fields(text: &str) -> Fields {
        let field =
            |line: &str| line.trim().rsplit_once(": ").map(|(name, value)| (name.into(), value.into()));
        text.lines().filter_map(field).collect()
    }

    fn is_error(hex: &str) -> bool {
        decode(&mut Decoder::new(4096), &bytes(hex)).0.is_err()
    }

    #[test]
    fn representations_of_the_rfc_are_decoded() {
        let example = |hex: &str, field: &str, size: usize| {
            let mut decoder = Decoder::new(4096);
            assert_eq!(decode(&mut decoder, &bytes(hex)), (Ok(()), fields(field)), "{field}");
            assert_eq!(decoder.table.size(), size, "{field}");
        };
        let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        example(custom, "custom-key: custom-header", 55);
        example("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0);
        example("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0);
        example("82", ":method: GET", 0);
    }

    /// Appendices C.3 (plain) and C.4 (Huffman coded).
    #[test]
    fn requests_of_the_rfc_are_decoded() {
        let common = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
        let last = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value";
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let huffman = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, huffman] {
            let mut decoder = Decoder::new(4096);
            let expected = [
                (common.to_owned(), 57),
                (format!("{common}cache-control: no-cache"), 110),
                (last.into(), 164),
            ];
            for (block, (expected, size)) in blocks.iter().zip(expected) {
                assert_eq!(decode(&mut decoder, &bytes(block)), (Ok(()), fields(&expected)), "{block}");
                assert_eq!(decoder.table.size(), size);
            }
        }
    }

    /// Appendices C.5 (plain) and C.6 (Huffman coded), with a table of 256 bytes.
    #[test]
    fn responses_of_the_rfc_are_decoded() {
        let first =
            "cache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com";
        let last = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n\
            content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        let plain = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 \
             474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 \
             666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 \
             3630 303b 2076 6572 7369 6f6e 3d31",
        ];
        let huffman = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
             63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
             b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ];
        for blocks in [plain, huffman] {
            let mut decoder = Decoder::new(256);
            let expected = [format!(":status: 302\n{first}"), format!(":status: 307\n{first}"), last.into()];
            for ((block, expected), size) in blocks.iter().zip(expected).zip([222, 222, 215]) {
                let expected = fields(&expected);
                assert_eq!(decode(&mut decoder, &bytes(block)), (Ok(()), expected), "{block}");
                assert_eq!(decoder.table.size(), size);
            }
        }
    }

    #[test]
    fn indices_refer_to_entries() {
        assert!(is_error("80") && is_error("be") && is_error("7e 00") && is_error("0f 2f 00"));
        assert!(!is_error("40 00 00 be") && is_error("40 00 00 bf"));
    }

    #[test]
    fn integers_have_32_bits() {
        let integer = |hex: &str| FieldBlock(&bytes(hex)).integer(5);
        assert_eq!((integer("0a"), integer("1f 9a 0a")), (Ok(10), Ok(1337)));
        assert_eq!((integer("1f 00"), integer("1f 80 80 80 80 00")), (Ok(31), Ok(31)));
        assert_eq!(integer("1f e0 ff ff ff 0f"), Ok(0xffff_ffff));
        assert_eq!(integer("1f e1 ff ff ff 0f"), Err(CompressionError));
        assert_eq!(integer("1f 80 80 80 80 80 00"), Err(CompressionError));
        assert_eq!((integer(""), integer("1f 80")), (Err(CompressionError), Err(CompressionError)));
    }

    #[test]
    fn size_updates_begin_a_block() {
        assert!(!is_error("20") && !is_error("20 3f e1 1f 82"), "0, then 4096");
        assert!(is_error("20 20 20") && is_error("82 20") && is_error("3f e2 1f"), "4097");
        assert!(is_error("20 40 00 00 be"), "an entry has no room in an empty table");
    }
}
