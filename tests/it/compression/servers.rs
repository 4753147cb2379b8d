//! Beside real programs: a file server behind the gateway, nginx' own compression, curl, and a browser.

use std::process::Command;

use super::compressing;
use crate::harness::{Backend, Front, Gateway, Next, content_coding, everything_to, get_with, tools};

/// nginx that serves a file of 20,000 bytes, `/page.txt`; `http` stands in its `http`.
fn files() -> Front {
    Front::nginx_file(|address, directory| {
        std::fs::write(format!("{directory}/page.txt"), "some text of a page\n".repeat(1_000))
            .expect("a file");
        format!(
            "events {{}}\nhttp {{ types {{ text/plain txt; }} server {{ listen {address}; root {directory}; }} }}\n"
        )
    })
}

fn before(files: &Front, rest: &str) -> Gateway {
    let url = format!("http://{}", files.addr());
    Gateway::start(&format!(
        "[upstreams]\nfiles = \"{url}\"\n[[routes]]\npath = \"/*\"\nupstream = \"files\"\n{rest}\n"
    ))
}

#[test]
fn a_file_server_confirms_the_copy_that_came_compressed() {
    let files = files();
    let gateway = before(&files, "compress = true");
    let get = |fields: &str| get_with(gateway.addr(), "/page.txt", fields);
    let plain = get("").expect(200);
    let tag = plain.header("etag").expect("nginx has tags").to_owned();
    assert_eq!(plain.header("accept-ranges"), Some("bytes"));
    let compressed = get("accept-encoding: br\r\n").expect(200);
    let weak = compressed.header("etag").expect("a tag").to_owned();
    assert_eq!(weak, format!("W/{tag}"));
    assert_eq!(content_coding::whole("br", &compressed.body), plain.body);
    for (mine, coding) in [(&weak, "br"), (&tag, "identity")] {
        let again = get(&format!("accept-encoding: {coding}\r\nif-none-match: {mine}\r\n")).expect(304);
        assert_eq!(again.header("etag"), Some(mine.as_str()), "the copy is current");
    }
    // A part of the file as it is, also for a client that accepts codings.
    let part = get("accept-encoding: gzip\r\nrange: bytes=5-8\r\n").expect(206);
    assert_eq!((part.body.as_slice(), part.header("content-encoding")), (&b"text"[..], None));
    let stale =
        get(&format!("accept-encoding: gzip\r\nrange: bytes=5-8\r\nif-range: {weak}\r\n")).expect(200);
    assert_eq!(stale.header("content-encoding"), Some("gzip"), "a weak tag confirms no range");
}

#[test]
fn nginx_compresses_the_same_responses() {
    let backend = Backend::start(|exchange| {
        let fields = exchange.field("x-answer").unwrap_or_default().replace('|', "\r\n");
        let body = "text ".repeat(400);
        exchange.write(format!("HTTP/1.1 200 OK\r\n{fields}\r\ncontent-length: 2000\r\n\r\n{body}"));
        Next::KeepAlive
    });
    let http = "gzip on; gzip_types text/plain application/json; gzip_vary on; gzip_proxied any; gzip_min_length 1024;";
    let nginx = Front::nginx_with(backend.addr(), http, "proxy_http_version 1.1;");
    let gateway = Gateway::start(&compressing(&backend, "{ encodings = [\"gzip\"] }", ""));
    let kind = |address, accepted: &str, fields: &str| {
        let fields = format!("accept-encoding: {accepted}\r\nx-answer: {fields}\r\n");
        let answer = get_with(address, "/", &fields).expect(200);
        let text = |name: &str| answer.header(name).map(str::to_ascii_lowercase);
        (text("content-encoding"), text("etag"), text("vary"), text("accept-ranges"))
    };
    for accepted in ["gzip", "gzip, br", "x, gzip;q=0.5", "gzip;q=0", "identity", "br", "*", "gzip;q=0.001"] {
        for fields in [
            "content-type: text/plain|etag: \"a\"|accept-ranges: bytes",
            "content-type: text/plain|etag: W/\"a\"",
            "content-type: application/json",
            "content-type: image/png|etag: \"a\"",
            "content-type: text/plain|content-encoding: br",
        ] {
            let (here, there) =
                (kind(gateway.addr(), accepted, fields), kind(nginx.addr(), accepted, fields));
            // nginx does not know that `*` stands for gzip, too.
            if accepted != "*" {
                assert_eq!(here, there, "{accepted}: {fields}");
            }
        }
    }
}

#[test]
fn curl_decodes_what_it_accepts() {
    let files = files();
    let gateway = before(&files, "compress = true");
    let url = format!("http://{}/page.txt", gateway.addr());
    for arguments in [&["--compressed"][..], &["--compressed", "--http2-prior-knowledge"], &[]] {
        let mut curl: Command = tools::needed("curl");
        let output = curl.args(["-sS"]).args(arguments).arg(&url).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout.len(), 20_000, "{arguments:?}");
    }
}

#[test]
fn a_browser_reads_a_compressed_page() {
    let backend = Backend::start(|exchange| {
        let body = format!("<title>page</title><p id=it>{}</p>", "words ".repeat(1_000));
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        Next::KeepAlive
    });
    let log = "[log]\nfields = [\"response_header:content-encoding\"]\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("compress = true\n{log}")));
    let mut browser = Command::new(tools::browser());
    let page = format!("http://localhost:{}/", gateway.addr().port());
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", &page]);
    let folder = tempfile::tempdir().expect("a folder");
    browser.arg(format!("--user-data-dir={}", folder.path().display()));
    let output = browser.output().expect("it runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    assert_eq!(dom.matches("words ").count(), 1_000, "{dom}");
    let line = &gateway.access_log(1)[0];
    assert_eq!(line["response_header:content-encoding"], "zstd", "{line}");
}
