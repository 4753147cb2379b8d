//! Messages generated from a grammar, and then mutated. The same number always gives the same message.

use super::mutate::mutate;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): each message has a seed of its
/// own, so one that fails is made again without those before it.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Less than `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    /// True this many times in a hundred.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'t, T: ?Sized>(&mut self, all: &[&'t T]) -> &'t T {
        all[self.below(all.len())]
    }
}

const METHODS: &[&str] = &["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "QUERY", "M-SEARCH"];
const ODD_METHODS: &[&str] = &["get", "Post", "TRACE", "CONNECT", "PRI", "", "G T", "A@", "*"];
const TARGETS: &[&str] =
    &["/a", "/a/../b?c=d", "//x", "/%41%2f", "/a?b?c/d", "/;x=1", "http://test/x", "http://test:80?y"];
const ODD_TARGETS: &[&str] =
    &["*", "", "a", "/a b", "/#x", "/\u{e9}", "http://other/", "http://u@test/", "/%zz", "test:80", "/%00"];
const ODD_VERSIONS: &[&str] = &["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/11", ""];
const FIELDS: &[&str] = &[
    "x: y",
    "X-Mixed-Case:\t  some value \t",
    "x:",
    "accept: */*",
    "user-agent: a (b; c)",
    "cookie: a=b; c=d",
    "te: trailers",
    "te: trailers, gzip",
    "trailer: t",
    "trailer: t, u, content-length",
    "connection: close",
    "connection: keep-alive",
    "connection: x, te",
    "keep-alive: timeout=5",
    "expect: 100-continue",
    "upgrade: websocket",
    "connection: upgrade",
    "content_length: 5",
    "via: 1.1 x",
    "x-forwarded-for: 1.2.3.4",
    "date: Thu, 01 Jan 1970 00:00:00 GMT",
    "x: \u{e9}",
    "!#$%&'*+-.^_`|~: 1",
];
const ODD_FIELDS: &[&str] = &[
    "x y: z",
    "x : y",
    " x: y",
    "x",
    ": y",
    "x: y\r\n z",
    "host: other",
    "host: test",
    "content-length: 3",
    "content-length: 0",
    "transfer-encoding: chunked",
    "transfer-encoding: identity",
    "expect: x",
    "x: \0",
    "x: \u{1}",
    "x: a\rb",
    "x: a\nb",
    "content-length : 3",
    "transfer-encoding:\u{b}chunked",
    "proxy-connection: close",
];
const CODINGS: &[&str] = &[
    "Chunked",
    "gzip, chunked",
    "chunked, chunked",
    "identity",
    "chunked;q=1",
    "xchunked",
    "",
    "chunked,",
    ", chunked",
];
const LENGTHS: &[&str] =
    &["+3", "3, 3", "3,4", "-1", "0x3", "", "3 3", "99999999999999999999", "03", "4\r\ncontent-length: 4"];
const EXTENSIONS: &[&str] =
    &[";x", ";x=y", " ; x", ";x = y", ";x=\"y\"", ";x=\"\\\"\";z", "\t;\tx=\"a b;c\\\\\""];
const ODD_EXTENSIONS: &[&str] =
    &[";", "; ", ";=x", ";x=", ";x=\"", " ", "\t", ";x=\"y\"z", " x", ";;", ";x\u{e9}", "\r"];
const TRAILERS: &[&str] = &["t: 1", "u:", "T:\t2 ", "content-length: 5", "host: x", "v: \u{e9}"];
const ODD_TRAILERS: &[&str] = &["t : 1", "t", " t: 1", ": 1", "t: \0", "t: 1\r\n 2", "t: a\rb", "t: a\nb"];

/// The request with this number: about half of them are as they should be.
pub(crate) fn request(seed: u64) -> Vec<u8> {
    let random = &mut Random::new(seed);
    let odd = random.percent(40);
    let mut out = Vec::new();
    let count = if random.percent(15) { 2 + random.below(2) } else { 1 };
    for _ in 0..count {
        put_request(random, odd, &mut out);
    }
    if random.percent(35) {
        mutate(random, &mut out);
    }
    out
}

fn put_request(random: &mut Random, odd: bool, out: &mut Vec<u8>) {
    if random.percent(5) {
        out.extend_from_slice(b"\r\n");
    }
    let is_odd = |random: &mut Random| odd && random.percent(12);
    let method = match random.below(10) {
        _ if is_odd(random) => random.pick(ODD_METHODS),
        0..4 => "GET",
        4..7 => "POST",
        _ => random.pick(METHODS),
    };
    let target = match random.below(10) {
        _ if is_odd(random) => random.pick(ODD_TARGETS),
        0..6 => "/",
        _ => random.pick(TARGETS),
    };
    let version = match random.below(20) {
        _ if is_odd(random) => random.pick(ODD_VERSIONS),
        0 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    put(out, &[method, " ", target, " ", version, "\r\n"]);
    if !is_odd(random) {
        put(out, &["host: test\r\n"]);
    }
    put_fields(random, odd, out);
    let bodiless = matches!(method, "GET" | "HEAD" | "OPTIONS") && random.percent(80);
    put_body(random, odd, bodiless, out);
}

fn put(out: &mut Vec<u8>, texts: &[&str]) {
    texts.iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
}

fn put_fields(random: &mut Random, odd: bool, out: &mut Vec<u8>) {
    for _ in 0..random.below(5) {
        let field = if odd && random.percent(10) { random.pick(ODD_FIELDS) } else { random.pick(FIELDS) };
        put(out, &[field, "\r\n"]);
    }
}

/// The framing, the end of the head, and what follows it.
fn put_body(random: &mut Random, odd: bool, bodiless: bool, out: &mut Vec<u8>) {
    let odd_framing = odd && random.percent(15);
    match random.below(10) {
        _ if bodiless => put(out, &["\r\n"]),
        0 => put(out, &["\r\n"]),
        1..5 => {
            let data = data(random);
            let off_by_one = usize::from(odd && random.percent(10));
            let length = (data.len() + off_by_one).to_string();
            let length = if odd_framing { random.pick(LENGTHS) } else { &length };
            put(out, &["content-length: ", length, "\r\n\r\n"]);
            out.extend_from_slice(&data);
        }
        _ => {
            let coding = if odd_framing { random.pick(CODINGS) } else { "chunked" };
            put(out, &["transfer-encoding: ", coding, "\r\n\r\n"]);
            put_chunks(random, odd, out);
        }
    }
}

/// Bytes among which there are some that look like framing.
fn data(random: &mut Random) -> Vec<u8> {
    const PIECES: &[&[u8]] =
        &[b"a", b"hello", b"\r\n", b"0\r\n\r\n", b"\0\xff", b"GET /inside HTTP/1.1\r\nhost: test\r\n\r\n"];
    let count = random.below(4);
    (0..count).flat_map(|_| random.pick(PIECES)).copied().collect()
}

fn put_chunks(random: &mut Random, odd: bool, out: &mut Vec<u8>) {
    let is_odd = |random: &mut Random| odd && random.percent(8);
    for _ in 0..random.below(4) {
        let data = data(random);
        if data.is_empty() {
            continue;
        }
        let size = data.len() + usize::from(is_odd(random));
        let size = match random.below(6) {
            0 => format!("{size:X}"),
            1 => format!("{size:04x}"),
            _ => format!("{size:x}"),
        };
        put(out, &[&size]);
        put_extension(random, odd, out);
        put(out, &["\r\n"]);
        out.extend_from_slice(&data);
        put(out, &[if is_odd(random) { random.pick(&["", "\n", "\r", "\r\n\r\n"]) } else { "\r\n" }]);
    }
    put(out, &[random.pick(&["0", "0", "0", "00"])]);
    put_extension(random, odd, out);
    put(out, &["\r\n"]);
    if random.percent(30) {
        for _ in 0..1 + random.below(3) {
            let trailer = if is_odd(random) { random.pick(ODD_TRAILERS) } else { random.pick(TRAILERS) };
            put(out, &[trailer, "\r\n"]);
        }
    }
    put(out, &["\r\n"]);
}

fn put_extension(random: &mut Random, odd: bool, out: &mut Vec<u8>) {
    match random.below(100) {
        0..8 if odd => put(out, &[random.pick(ODD_EXTENSIONS)]),
        8..25 => put(out, &[random.pick(EXTENSIONS)]),
        _ => {}
    }
}

/// The answer with this number, and the method that it answers.
pub(crate) fn answer(seed: u64) -> (&'static str, Vec<u8>) {
    const STATUSES: &[&str] =
        &["200 OK", "404 Not Found", "204 No Content", "304 Not Modified", "500", "206 \u{e9}", "299 "];
    const ODD_STATUSES: &[&str] = &[
        "200OK",
        "20",
        "1000 x",
        "abc",
        "101 Switching Protocols",
        "200 \0",
        " 200 OK",
        "099 x",
        "100 Continue",
    ];
    const INTERIM: &[&str] = &["100 Continue", "103 Early Hints", "102 Processing"];
    let random = &mut Random::new(seed ^ 0x5bf0_3635);
    let odd = random.percent(40);
    let method = if random.percent(10) { "HEAD" } else { "GET" };
    let end = if random.percent(5) { "\n" } else { "\r\n" };
    let mut out = Vec::new();
    if random.percent(15) {
        for _ in 0..1 + random.below(2) {
            put(&mut out, &["HTTP/1.1 ", random.pick(INTERIM), end, "link: </a>", end, end]);
        }
    }
    let is_odd = |random: &mut Random| odd && random.percent(12);
    let version = match random.below(10) {
        _ if is_odd(random) => random.pick(ODD_VERSIONS),
        0 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let status = match random.below(10) {
        _ if is_odd(random) => random.pick(ODD_STATUSES),
        0..6 => "200 OK",
        _ => random.pick(STATUSES),
    };
    put(&mut out, &[version, " ", status, end]);
    put_fields(random, odd, &mut out);
    let bodiless = method == "HEAD" || status.starts_with("204") || status.starts_with("304");
    if bodiless {
        put(
            &mut out,
            &[random.pick(&["", "content-length: 3\r\n", "transfer-encoding: chunked\r\n"]), "\r\n"],
        );
    } else if random.percent(15) {
        put(&mut out, &["\r\nuntil the end"]);
    } else {
        put_body(random, odd, false, &mut out);
    }
    if odd && random.percent(10) {
        put(&mut out, &["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"]);
    }
    if random.percent(35) {
        mutate(random, &mut out);
    }
    (method, out)
}
