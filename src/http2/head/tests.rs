use super::super::hpack::decoder::Decoder;
use super::*;

const MAX: usize = 32 << 10;

type Field<'a> = (&'a str, &'a str);

fn build(kind: BlockKind, fields: &[Field<'_>], ended: bool) -> Result<String, HeadError> {
    let mut head = HeadBuilder::new(kind, MAX);
    fields.iter().for_each(|(name, value)| head.field(name.as_bytes(), value.as_bytes()));
    head.finish(ended).map(|head| String::from_utf8(head.text.to_vec()).expect("text"))
}

fn decoded(block: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let read = Decoder::new(4096).decode(block, |name, value| fields.push((text(name), text(value))));
    read.expect("a block");
    fields
}

fn lines(fields: &[(String, String)]) -> Vec<String> {
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

const GET: [Field<'_>; 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/x?y=1"), (":authority", "a.test:8443")];

fn with<'a>(more: &[Field<'a>]) -> Vec<Field<'a>> {
    GET.iter().chain(more).copied().collect()
}

#[test]
fn a_request_is_written_as_http_1_1() {
    let fields = with(&[
        ("cookie", "a=1"),
        ("accept", "*/*"),
        ("host", "A.test:8443"),
        ("cookie", "b=2"),
        ("te", "trailers"),
    ]);
    assert_eq!(
        build(BlockKind::Request, &fields, true).as_deref(),
        Ok(
            "GET /x?y=1 HTTP/1.1\r\nhost: a.test:8443\r\naccept: */*\r\nte: trailers\r\ncookie: a=1; b=2\r\n\r\n"
        )
    );
    assert_eq!(
        build(BlockKind::Request, &with(&[("host", "b")]), false).as_deref(),
        Ok("GET /x?y=1 HTTP/1.1\r\nhost: a.test:8443\r\nhost: b\r\n\r\n"),
        "the parser refuses two hosts"
    );
    let no_authority = [&GET[..3], &[("host", "b"), ("content-length", "3")]].concat();
    assert_eq!(
        build(BlockKind::Request, &no_authority, false).as_deref(),
        Ok("GET /x?y=1 HTTP/1.1\r\nhost: b\r\ncontent-length: 3\r\n\r\n")
    );
    let connect = [(":method", "CONNECT"), (":authority", "a:443")];
    assert_eq!(
        build(BlockKind::Request, &connect, true).as_deref(),
        Ok("CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n")
    );
}

/// RFC 8441.
#[test]
fn an_extended_connect_is_the_get_of_an_upgrade() {
    const CONNECT: [Field<'_>; 5] = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat?a"),
        (":authority", "a.test"),
    ];
    let with = |more: &[Field<'static>]| [&CONNECT[..], more].concat();
    let kept = [("sec-websocket-key", "x"), ("sec-websocket-version", "13")];
    assert_eq!(
        build(BlockKind::Request, &with(&kept), false).as_deref(),
        Ok("GET /chat?a HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
            sec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n")
    );
    let of = |protocol| {
        let mut fields = CONNECT;
        fields[1].1 = protocol;
        build(BlockKind::Request, &fields, false).map(drop)
    };
    assert_eq!((of("WEBSOCKET"), of("connect-udp")), (Ok(()), Err(HeadError::Protocol)));
    assert_eq!((of(""), of("websocket ")), (Err(HeadError::Protocol), Err(HeadError::Protocol)));
    assert_eq!(build(BlockKind::Request, &CONNECT, true), Err(HeadError::Malformed), "it ends");
    for index in 0..5 {
        let mut fields = CONNECT.to_vec();
        let left_out = fields.remove(index);
        assert_eq!(
            build(BlockKind::Request, &fields, false),
            Err(HeadError::Malformed),
            "without {left_out:?}"
        );
    }
    for more in [("content-length", "0"), ("connection", "upgrade"), ("upgrade", "websocket"), CONNECT[1]] {
        assert_eq!(build(BlockKind::Request, &with(&[more]), false), Err(HeadError::Malformed), "{more:?}");
    }
}

/// A head of HTTP/2 has no field for it.
#[test]
fn a_body_of_unknown_length_is_told_by_the_stream() {
    for (fields, ended, expected) in [
        (&[][..], false, true),
        (&[], true, false),
        (&[("content-length", "3")], false, false),
        (&[("content-length", "0")], true, false),
    ] {
        let mut head = HeadBuilder::new(BlockKind::Request, MAX);
        with(fields).iter().for_each(|(name, value)| head.field(name.as_bytes(), value.as_bytes()));
        assert_eq!(head.finish(ended).map(|head| head.unknown_length), Ok(expected), "{fields:?} {ended}");
    }
}

#[test]
fn what_only_http_2_knows_is_judged() {
    let malformed: &[Field<'_>] = &[
        ("X-A", "1"),
        ("", "1"),
        ("x a", "1"),
        ("x:a", "1"),
        ("x", "a\r\nhost: b"),
        ("x", "a\nb"),
        ("x", "a\0"),
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "chunked"),
        ("content-length", "+1"),
        ("content-length", ""),
        ("content-length", "1234567890123456789"),
        (":path", "/"),
        (":status", "200"),
        (":protocol", "websocket"),
        (":", "x"),
    ];
    for field in malformed {
        assert_eq!(build(BlockKind::Request, &with(&[*field]), true), Err(HeadError::Malformed), "{field:?}");
    }
    let lengths = with(&[("content-length", "1"), ("content-length", "2")]);
    assert_eq!(build(BlockKind::Request, &lengths, false), Err(HeadError::Malformed));
    for index in 0..3 {
        let mut fields = GET.to_vec();
        fields.remove(index);
        assert_eq!(build(BlockKind::Request, &fields, true), Err(HeadError::Malformed), "without {index}");
        for value in ["", " ", "a b", "\r\n", "(x)"] {
            let mut fields = GET.to_vec();
            fields[index].1 = value;
            assert_eq!(build(BlockKind::Request, &fields, true), Err(HeadError::Malformed), "{value:?}");
        }
    }
    for path in ["a", "/#", "/a#b", "/a b", "/\u{7f}", "http://a/"] {
        let mut fields = GET.to_vec();
        fields[2].1 = path;
        assert_eq!(build(BlockKind::Request, &fields, true), Err(HeadError::Malformed), "{path:?}");
    }
    let late = [&GET[..3], &[("x", "1"), GET[3]]].concat();
    assert_eq!(build(BlockKind::Request, &late, true), Err(HeadError::Malformed));
}

#[test]
fn what_the_parser_judges_reaches_it() {
    for path in ["/<a>\"`{|}", "*", "?a", "/\u{e9}"] {
        let mut fields = GET.to_vec();
        fields[2].1 = path;
        let text = build(BlockKind::Request, &fields, true).expect("a head");
        assert!(text.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{text}");
    }
}

#[test]
fn the_size_of_fields_is_bounded() {
    let mut head = HeadBuilder::new(BlockKind::Request, 4 * 32 + 60);
    GET.iter().for_each(|(name, value)| head.field(name.as_bytes(), value.as_bytes()));
    assert!(head.finish(true).is_ok());
    let mut head = HeadBuilder::new(BlockKind::Request, 4 * 32 + 60);
    with(&[("x", "1")]).iter().for_each(|(name, value)| head.field(name.as_bytes(), value.as_bytes()));
    assert_eq!(head.finish(true), Err(HeadError::TooLarge));
}

#[test]
fn a_response_is_written_as_http_1_1() {
    let fields = [(":status", "404"), ("content-length", "3"), ("x", "1")];
    assert_eq!(
        build(BlockKind::Response, &fields, false).as_deref(),
        Ok("HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\nx: 1\r\n\r\n")
    );
    for status in ["", "20", "2000", "099", "2x0", "+20"] {
        assert_eq!(build(BlockKind::Response, &[(":status", status)], false), Err(HeadError::Malformed));
    }
    for fields in
        [&[("x", "1")][..], &[(":status", "200"), (":status", "200")], &[(":status", "200"), (":path", "/")]]
    {
        assert_eq!(build(BlockKind::Response, fields, false), Err(HeadError::Malformed));
    }
}

#[test]
fn trailers_go_there_and_back() {
    let text = build(BlockKind::Trailers, &[("grpc-status", "0"), ("grpc-message", "a b")], true);
    assert_eq!(text.as_deref(), Ok("grpc-status: 0\r\ngrpc-message: a b\r\n"));
    let mut block = BytesMut::new();
    assert_eq!(put_trailers(text.expect("trailers").as_bytes(), &mut block), Ok(()));
    assert_eq!(lines(&decoded(&block)), ["grpc-status=0", "grpc-message=a b"]);
    assert_eq!(build(BlockKind::Trailers, &[(":path", "/")], true), Err(HeadError::Malformed));
    assert_eq!(build(BlockKind::Trailers, &[("connection", "close")], true), Err(HeadError::Malformed));
}

#[test]
fn a_response_goes_without_fields_of_its_connection() {
    let text = b"HTTP/1.1 404 Not here\r\ncontent-length: 3\r\nconnection: close\r\nx: 1\r\nX:2\r\ntransfer-encoding: y\r\n\r\n";
    let mut block = BytesMut::new();
    assert_eq!(put_response(text, &mut block), Ok(false));
    assert_eq!(lines(&decoded(&block)), [":status=404", "x=1", "x=2", "content-length=3"]);
    let text = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc+proto\r\ncontent-length: 3\r\n\r\n";
    let mut block = BytesMut::new();
    assert_eq!(put_response(text, &mut block), Ok(true));
    assert_eq!(lines(&decoded(&block)), [":status=200", "content-type=application/grpc+proto"]);
}

fn request(text: &str) -> Vec<String> {
    let mut block = BytesMut::new();
    put_request(text.as_bytes(), Scheme::Http, &mut block).expect("a request");
    lines(&decoded(&block))
}

#[test]
fn a_request_goes_with_its_host_as_authority() {
    let text = "POST /a?b HTTP/1.1\r\nX-A: 1\r\nhost: b.test:80\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\nconnection: te\r\nte: x\r\n\r\n";
    assert_eq!(
        request(text),
        [":method=POST", ":scheme=http", ":path=/a?b", ":authority=b.test:80", "x-a=1", "te=trailers"]
    );
}

/// Else what stands after the line would be left out, and the head look whole.
#[test]
fn a_line_that_is_no_field_is_an_error() {
    for line in ["x: 1\n", "x 1\r\n", ": 1\r\n", "\r\n"] {
        let lines = format!("a: 1\r\n{line}b: 2\r\n\r\n");
        let response = format!("HTTP/1.1 200 OK\r\n{lines}");
        assert_eq!(put_response(response.as_bytes(), &mut BytesMut::new()), Err(InvalidHead), "{line:?}");
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}");
        assert_eq!(
            put_request(request.as_bytes(), Scheme::Http, &mut BytesMut::new()),
            Err(InvalidHead),
            "{line:?}"
        );
        assert_eq!(put_trailers(lines.as_bytes(), &mut BytesMut::new()), Err(InvalidHead), "{line:?}");
    }
}

/// What servers of HTTP/1.1 take goes to those of HTTP/2, too.
#[test]
fn any_head_can_be_said() {
    let fields = request("GET /<a>`{b}|\"^?q=<\u{e9}> HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(fields[2], ":path=/%3Ca%3E%60%7Bb%7D%7C%22%5E?q=%3C%C3%A9%3E");
    assert_eq!(
        request("OPTIONS * HTTP/1.1\r\nhost: \r\n\r\n"),
        [":method=OPTIONS", ":scheme=http", ":path=*", "te=trailers"]
    );
    let many: String = (0..300).map(|number| format!("x-{number}: {number}\r\n")).collect();
    assert_eq!(request(&format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n")).len(), 305);
    for cut in ["", "GET", "GET /", "GET /\r\n\r\n"] {
        assert_eq!(
            put_request(cut.as_bytes(), Scheme::Http, &mut BytesMut::new()),
            Err(InvalidHead),
            "{cut}"
        );
    }
}
