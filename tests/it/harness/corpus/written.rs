//! Messages written by hand: those of the other tests of framing, and what lies beside them.

/// Whole requests that are taken, each up to the end of its message.
pub(crate) const GOOD: &[&str] = &[
    "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHOST:a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: \t a \t\r\nx:\t y\t \r\n\r\n",
    "\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "\r\n\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n",
    "GET /a?b=c?d/e HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a{b}|c?q=\"x\"<y>&z=`1`^ HTTP/1.1\r\nHost: test\r\nX-MiXeD:\t 1 \t\r\nx-next:2\r\nX-Last: 3\r\n\r\n",
    "GET http://a/x?y HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET HTTP://a:80 HTTP/1.1\r\nhost: A\r\n\r\n",
    "GET //b/./c/../%61 HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx:\r\ny: \r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: \u{e9}\u{fc}\r\n\r\n",
    "GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n",
    "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
    "DELETE /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    "OPTIONS /x HTTP/1.1\r\nhost: a\r\n\r\n",
    "M-SEARCH /x HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 005\r\n\r\nhello",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 38\r\n\r\nGET /inside HTTP/1.1\r\nhost: inside\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: x, x-a\r\nx-a: 1\r\nx: 2\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabcPOST /2 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHEAD /3 HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /continue HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi",
    "POST /continue HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "HEAD / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\ntrailer: x, y\r\nte: trailers\r\n\r\n5\r\nhello\r\n0\r\nx: 1\r\nhost: b\r\nY: 2\r\nz: 3\r\n\r\n",
];

/// Chunked bodies that are taken: behind [`CHUNKED`].
pub(crate) const GOOD_CHUNKS: &[&str] = &[
    "0\r\n\r\n",
    "000\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "0005\r\nhello\r\n0\r\n\r\n",
    "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
    "5\r\n0\r\n\r\n\r\n0\r\n\r\n",
    "1\r\n\r\r\n1\r\n\n\r\n2\r\n\r\n\r\n0\r\n\r\n",
    "2;x\r\nab\r\n0\r\n\r\n",
    "2;x=y\r\nab\r\n0;z\r\n\r\n",
    "2 ;x\r\nab\r\n0\r\n\r\n",
    "2\t ; \tx = y ; z\r\nab\r\n0\r\n\r\n",
    "2;a=\"q\\\"x\"\r\nab\r\n0\r\n\r\n",
    "2;a=\"\";b=\" ;\t,\\\\\"\r\nab\r\n0;c=\"x\"\r\n\r\n",
    "1\r\na\r\n0\r\nx: 1\r\n\r\n",
    "1\r\na\r\n0\r\nx:\r\ny:\t 1 \r\n\r\n",
    "1\r\na\r\n0\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nhost: b\r\n\r\n",
];

/// Chunked bodies that break: behind [`CHUNKED`].
pub(crate) const BAD_CHUNKS: &[&str] = &[
    "+1\r\na\r\n0\r\n\r\n",
    "-1\r\na\r\n0\r\n\r\n",
    " 1\r\na\r\n0\r\n\r\n",
    "1 \r\na\r\n0\r\n\r\n",
    "1\t\r\na\r\n0\r\n\r\n",
    "0x1\r\na\r\n0\r\n\r\n",
    "1_0\r\na\r\n0\r\n\r\n",
    "g\r\na\r\n0\r\n\r\n",
    "\r\na\r\n0\r\n\r\n",
    ";x\r\na\r\n0\r\n\r\n",
    "10000000000000000\r\na\r\n0\r\n\r\n",
    "ffffffffffffffff1\r\na\r\n0\r\n\r\n",
    "1\na\r\n0\r\n\r\n",
    "1\ra\r\n0\r\n\r\n",
    "1\r\r\na\r\n0\r\n\r\n",
    "1\r\na\n0\r\n\r\n",
    "1\r\na\r0\r\n\r\n",
    "1\r\na\r\r\n0\r\n\r\n",
    "1\r\nab\r\n0\r\n\r\n",
    "1\r\na0\r\n\r\n",
    "1\r\na\r\n\r\n0\r\n\r\n",
    "1;\r\na\r\n0\r\n\r\n",
    "1; \r\na\r\n0\r\n\r\n",
    "1;=x\r\na\r\n0\r\n\r\n",
    "1;x=\r\na\r\n0\r\n\r\n",
    "1;x;\r\na\r\n0\r\n\r\n",
    "1;x=\"y\r\na\r\n0\r\n\r\n",
    "1;x=\"y\"z\r\na\r\n0\r\n\r\n",
    "1;x=\"y\\\r\na\r\n0\r\n\r\n",
    "1;x y\r\na\r\n0\r\n\r\n",
    "1 x\r\na\r\n0\r\n\r\n",
    "1;x=y z\r\na\r\n0\r\n\r\n",
    "1;x\ny\r\na\r\n0\r\n\r\n",
    "1;x\ry\r\na\r\n0\r\n\r\n",
    "1;x\0\r\na\r\n0\r\n\r\n",
    "1;\u{e9}\r\na\r\n0\r\n\r\n",
    "5\r\nhello\r\nzz\r\n\r\n",
    "1\r\na\r\n0\r\nbad trailer\r\n\r\n",
    "1\r\na\r\n0\r\nx: y\n\r\n",
    "1\r\na\r\n0\r\nx: y\r\r\n\r\n",
    "1\r\na\r\n0\r\nx: y\rz: 1\r\n\r\n",
    "1\r\na\r\n0\r\nx : y\r\n\r\n",
    "1\r\na\r\n0\r\nx: \0\r\n\r\n",
    "1\r\na\r\n0\r\n x: y\r\n\r\n",
    "1\r\na\r\n0\r\nx: y\r\n z\r\n\r\n",
    "1\r\na\r\n0\r\n: y\r\n\r\n",
    "1\r\na\r\n0\r\n\n",
    "1\r\na\r\n0\r\n\rx",
    "1\r\na\r\n0\n\r\n",
];

/// Heads, some with a body, that are refused.
pub(crate) const BAD: &[&str] = &[
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: user@a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a:port\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: [::1\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: http://a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost:\r\n\r\n",
    "GET http://a/ HTTP/1.1\r\nhost: b\r\n\r\n",
    "GET http://a:81/ HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://user@a/ HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ntransfer-encoding: identity\r\n\r\n",
    "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\nhost: a\n\n",
    "GET / HTTP/1.1\r\nhost: a\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\n\r\n",
    "GET / HTTP/1.1\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\rz\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\r\n\r\n",
    "GET / HTTP/1.1\r\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\rhost: a\r\n\r\n",
    "\rGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\n\rGET /x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\0z\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx\0: y\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n z\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n\tz\r\n\r\n",
    "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncontent-length\t: 5\r\n\r\nhello",
    "GET / HTTP/1.1\r\n host: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx(y): z\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\n: z\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\u{7f}z\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\u{1}z\r\n\r\n",
    "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /  HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET\t/\tHTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / x HTTP/1.1\r\nhost: a\r\n\r\n",
    " GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "Get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "G(T / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /#fragment HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a\u{7f} HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a\u{1} HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET * HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET a HTTP/1.1\r\nhost: a\r\n\r\n",
    "PRI * HTTP/1.1\r\nhost: a\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\nx",
    "PRI * HTTP/2.0\r\nx: y\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n",
    "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.2\r\nhost: a\r\n\r\n",
    "GET / HTTP/2.0\r\nhost: a\r\n\r\n",
    "GET / HTTP/0.9\r\nhost: a\r\n\r\n",
    "GET / http/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.10\r\nhost: a\r\n\r\n",
    "GET / HTTP/01.1\r\nhost: a\r\n\r\n",
    "GET /\r\n\r\n",
    "GET /\r\n",
    "GET / HTTP/1.2\r\nhost: a\r\n",
    "HEAD x HTTP/1.1\r\nhost: a\r\n",
    "HEAD / HTTP/1.1\r\nhost: a\r\nx: y\u{1}z\r\n\r\n",
    "OPTIONS /x HTTP/1.1\r\nhost:\r\n\r\n",
    // Wrong in two ways: which of the two is told must not depend on how it comes.
    "get / HTTP/1.1\r\nhost: a\n\r\n",
    "GET / HTTP/1.2\r\nhost: a\r\nx: y\n\r\n",
    "TRACE / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
    "GET / HTTP/2.0\nhost: a\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nhost: a\rx\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /x HTTP/1.1\r\nno colon\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabcdef\r\n\r\n",
];

/// Values of `content-length` that are refused.
pub(crate) const BAD_LENGTHS: &[&str] = &[
    "+5",
    "-5",
    "5 5",
    "5,5",
    "5, 5",
    "5,6",
    "0x5",
    "5.0",
    "",
    "a",
    "5a",
    "9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999",
    "5\r\ncontent-length: 5",
    "5\r\ncontent-length: 6",
    "5\r\nContent-Length: 0",
];

/// Values of `transfer-encoding` that are refused.
pub(crate) const BAD_CODINGS: &[&str] = &[
    "xchunked",
    "chunked, chunked",
    "chunked,",
    "identity",
    "gzip, chunked",
    "gzip",
    "chunked, gzip",
    "\u{b}chunked",
    "chunked\u{b}",
    "\"chunked\"",
    "chunked;q=1",
    "",
    "chunked\r\ntransfer-encoding: chunked",
    "identity\r\ntransfer-encoding: chunked",
    "chunked\r\nTransfer-Encoding: x",
];

/// Before the chunked bodies above.
pub(crate) const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";

/// Requests that are not whole: more is to come.
const PARTS: &[&str] = &[
    "",
    "G",
    "PRI * HT",
    "GET / HTTP/1.1\r\nhost: a",
    "GET / HTTP/1.1\r\nhost: a\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\n\r",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y",
];

/// Requests that are taken.
pub(crate) fn good_requests() -> Vec<Vec<u8>> {
    let chunked = GOOD_CHUNKS.iter().map(|body| format!("{CHUNKED}{body}").into_bytes());
    let mut all: Vec<Vec<u8>> = GOOD.iter().map(|text| text.as_bytes().to_vec()).chain(chunked).collect();
    let trailers = "x-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(400);
    all.push(format!("{CHUNKED}1\r\na\r\n0\r\n{trailers}\r\n").into_bytes());
    all.push(format!("{CHUNKED}1;x={}\r\na\r\n0\r\n\r\n", "y".repeat(900)).into_bytes());
    all.push(format!("{CHUNKED}8000\r\n{}\r\n0\r\n\r\n", "z".repeat(0x8000)).into_bytes());
    all.push(format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "t".repeat(8_000)).into_bytes());
    all
}

/// Requests that are refused, in their head or in their body.
pub(crate) fn bad_requests() -> Vec<Vec<u8>> {
    let lengths = BAD_LENGTHS
        .iter()
        .map(|length| format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\nhello"));
    let codings = BAD_CODINGS
        .iter()
        .map(|coding| format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n"));
    let chunks = BAD_CHUNKS.iter().map(|body| format!("{CHUNKED}{body}"));
    let heads = BAD.iter().map(|&text| text.to_owned());
    let mut all: Vec<String> = heads.chain(lengths).chain(codings).chain(chunks).collect();
    all.push(format!("{CHUNKED}1;{}\r\na\r\n0\r\n\r\n", "x".repeat(2_000)));
    all.push(format!(
        "{CHUNKED}1\r\na\r\n0\r\n{}\r\n",
        "x-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(1_000)
    ));
    all.push(format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "t".repeat(9_000)));
    all.push(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(17_000)));
    all.push(format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(101)));
    all.push(format!(
        "GET / HTTP/1.1\r\nhost: a\r\n{}\r\n",
        format!("x: {}\r\n", "y".repeat(4_000)).repeat(10)
    ));
    all.push(format!("{} / HTTP/1.1\r\nhost: a\r\n\r\n", "M".repeat(257)));
    all.into_iter().map(String::into_bytes).collect()
}

/// All of them, those that are not whole included.
pub(super) fn requests() -> Vec<Vec<u8>> {
    let parts = PARTS.iter().map(|text| text.as_bytes().to_vec());
    good_requests().into_iter().chain(bad_requests()).chain(parts).collect()
}

/// Whole answers, with the method that each answers.
const GOOD_ANSWERS: &[(&str, &str)] = &[
    ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ("GET", "HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok"),
    ("GET", "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 Fine So Far\nX-One:1\nx-two:   2  \r\ncontent-length: 2, 2\n\nok"),
    ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok"),
    ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"),
    ("GET", "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ("GET", "HTTP/1.0 200 OK\r\n\r\nuntil the end"),
    ("GET", "HTTP/1.1 200 OK\r\n\r\n0\r\n\r\nuntil the end"),
    ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
    ("GET", "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"),
    ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\netag: \"x\"\r\n\r\n"),
    ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
    ("HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
    ("HEAD", "HTTP/1.1 200 OK\r\n\r\n"),
    ("GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    (
        "GET",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ),
    ("GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    (
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2;x=\"\\\"\"\r\nok\r\n3 ; y\r\nfoo\r\n0\r\n\r\n",
    ),
    ("GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n"),
    (
        "GET",
        "HTTP/1.1 200 OK\r\ntrailer: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: 1\r\ny: 2\r\nhost: z\r\n\r\n",
    ),
    ("GET", "HTTP/1.1 200 OK\r\nx: \u{e9}\r\ncontent-length: 0\r\n\r\n"),
    ("GET", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nkeep-alive: timeout=5\r\n\r\n"),
    ("GET", "HTTP/1.1 999 ?\r\ncontent-length: 0\r\n\r\n"),
];

/// Answers that become a 502, or are cut where their head is out.
const BAD_ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nok",
    "HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok",
    "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nok",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 2OO OK\r\n\r\n",
    "HTTP/1.1 099 x\r\n\r\n",
    "HTTP/1.1  200 OK\r\n\r\n",
    "HTTP/1.1 2000 OK\r\n\r\n",
    "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.2 200 OK\r\ncontent-length: 0\r\n\r\n",
    "http/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    " HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "SSH-2.0-OpenSSH\r\n\r\n",
    "\0\0\0\0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nx y: z\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\n: z\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nno colon\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nlocation: /a\rset-cookie: x=1\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nlocation: /a\0\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nlocation: /a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 O\rK\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\rcontent-length: 0\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "HTTP/1.1 100 Continue\r\nno colon\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
];

/// Before the chunked bodies above, as a backend sends them.
const CHUNKED_ANSWER: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// Chunked bodies that break in a request, but not in an answer: blanks behind a size.
pub(crate) const LENIENT_CHUNKS: &[&str] = &["1 \r\na\r\n0\r\n\r\n", "1\t\r\na\r\n0\r\n\r\n"];

/// Answers that end before they are whole.
const CUT_ANSWERS: &[&str] = &[
    "",
    "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r",
    "HTTP/1.1 100 Continue\r\n\r\n",
];

/// Answers with bytes behind their end.
const LONG_ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
];

/// Answers that are taken, with the method that each answers.
pub(crate) fn good_answers() -> Vec<(&'static str, Vec<u8>)> {
    let chunked = GOOD_CHUNKS.iter().chain(LENIENT_CHUNKS);
    let chunked = chunked.map(|body| ("GET", format!("{CHUNKED_ANSWER}{body}").into_bytes()));
    let plain = GOOD_ANSWERS.iter().map(|&(method, text)| (method, text.as_bytes().to_vec()));
    plain.chain(chunked).collect()
}

/// Answers that break, in their head or in their body.
pub(crate) fn bad_answers() -> Vec<(&'static str, Vec<u8>)> {
    let chunked = BAD_CHUNKS.iter().filter(|body| !LENIENT_CHUNKS.contains(body));
    let chunked = chunked.map(|body| ("GET", format!("{CHUNKED_ANSWER}{body}").into_bytes()));
    BAD_ANSWERS.iter().map(|text| ("GET", text.as_bytes().to_vec())).chain(chunked).collect()
}

/// All of them, those that are too short and too long included.
pub(super) fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let rest = CUT_ANSWERS.iter().chain(LONG_ANSWERS).map(|text| ("GET", text.as_bytes().to_vec()));
    good_answers().into_iter().chain(bad_answers()).chain(rest).collect()
}
