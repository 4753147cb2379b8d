//! The other proxy with its own file, on ports of the test.

use std::net::SocketAddr;
use std::sync::Mutex;

use regex::{Captures, Regex};

use super::{Published, file_names};
use crate::harness::pages::Page;
use crate::harness::{Authority, Front, free_address};

/// The proxies that can be started, by the first file of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
    Traefik,
    Caddy,
}

impl Kind {
    const ALL: [(Kind, &str); 4] = [
        (Kind::Nginx, "text nginx.conf"),
        (Kind::Haproxy, "text haproxy.cfg"),
        (Kind::Traefik, "text rules.yml, the dynamic file"),
        (Kind::Caddy, "text Caddyfile"),
    ];

    /// Whose file the page has; none: a proxy that cannot be started.
    pub(super) fn of(page: &Page) -> Option<Kind> {
        let found = Self::ALL.iter().find(|(_, info)| page.blocks().iter().any(|block| block.info == *info));
        found.map(|(kind, _)| *kind)
    }

    fn info(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map(|(_, info)| *info).unwrap_or_default()
    }
}

/// A path that Traefik answers with 418 as soon as it has read its dynamic file.
pub(super) const READY: &str = "/ready-for-the-test";

/// The running proxy.
pub(super) struct Original {
    kind: Kind,
    listeners: Vec<(u16, SocketAddr)>,
    _front: Front,
}

impl Original {
    /// Starts it before these addresses, with the files of the folder.
    pub(super) fn start(
        kind: Kind,
        published: &Published,
        folder: &Authority,
        addresses: &[(&str, String)],
    ) -> Self {
        let page = published.page();
        let file = |info: &str| {
            let block = page.blocks().into_iter().find(|block| block.info == info).expect("its file");
            adapted(&block.text, published, folder, addresses)
        };
        let text = file(kind.info());
        for (from, _) in published.original {
            assert!(page.text.contains(from), "{} has `{from}`", page.path);
        }
        let listeners = Mutex::new(Vec::new());
        let place = |pattern: &str, text: &str, first| {
            let (text, found) = on_free_ports(pattern, text, first);
            *listeners.lock().expect("one thread") = found;
            text
        };
        let front = match kind {
            Kind::Nginx => Front::nginx_file(|first, _| {
                let text = place(r"listen +(?:[^ ;]+:)?([0-9]+)", &text, first);
                format!("events {{}}\nhttp {{\nserver_names_hash_bucket_size 128;\n{text}\n}}\n")
            }),
            Kind::Haproxy => Front::haproxy_file(|first| place(r"bind +[^ ]*:([0-9]+)", &text, first)),
            Kind::Traefik => {
                let fixed = file("text traefik.yml, the static file");
                let dynamic = with_default_certificate(&text, published, folder);
                let dynamic = dynamic.replacen("  routers:\n", &ready_router(published), 1);
                let pattern = r#"address: +":([0-9]+)"#;
                Front::traefik_files(|first| place(pattern, &fixed, first), &dynamic)
            }
            Kind::Caddy => Front::caddy_file(|first, directory| {
                let tls = free_address();
                let https = published.certificate.map(|_| (443, tls));
                *listeners.lock().expect("one thread") = [(80, first)].into_iter().chain(https).collect();
                let (plain, tls) = (first.port(), tls.port());
                let options = format!(
                    "admin off\n http_port {plain}\n https_port {tls}\n default_bind 127.0.0.1\n \
                     storage file_system {directory}\n"
                );
                match text.strip_prefix("{\n") {
                    Some(rest) => format!("{{\n {options}{rest}"),
                    None => format!("{{\n {options}}}\n{text}"),
                }
            }),
        };
        let listeners = listeners.into_inner().expect("one thread");
        let original = Self { kind, listeners, _front: front };
        original.wait();
        original
    }

    /// Waits until all listeners are there.
    fn wait(&self) {
        for (_, address) in &self.listeners {
            crate::harness::eventually("the proxy listens", || std::net::TcpStream::connect(address).ok());
        }
    }

    /// The ports in the file, and where they are.
    pub(super) fn listeners(&self) -> &[(u16, SocketAddr)] {
        &self.listeners
    }

    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Nginx => "nginx",
            Kind::Haproxy => "HAProxy",
            Kind::Traefik => "Traefik",
            Kind::Caddy => "Caddy",
        }
    }
}

/// The file with the addresses and paths of the test.
fn adapted(text: &str, published: &Published, folder: &Authority, addresses: &[(&str, String)]) -> String {
    let place = folder.path("").display().to_string();
    let mut text = text.to_owned();
    for (from, to) in published.original {
        text = text.replace(from, to);
    }
    for (written, address) in addresses {
        let plain = |url: &str| url.trim_start_matches("http://").to_owned();
        text = text.replace(&plain(written), &plain(address));
    }
    text = published.changed(&text);
    for at in ["/etc/nginx", "/etc/haproxy", "/srv/www"] {
        text = text.replace(at, place.trim_end_matches('/'));
    }
    for name in file_names(published, &published.page()) {
        let path = folder.path(&name).display().to_string();
        // HAProxy reads the certificate and its key from one file.
        let path_of_crt = path.trim_end_matches(".pem").to_owned() + ".both";
        text = text.replace(&format!(" crt {name}"), &format!(" crt {path_of_crt}"));
        let ends: &[&str] = if name.ends_with(".pem") { &[";", "\n", " "] } else { &[";", "\n"] };
        for end in ends {
            text = text.replace(&format!(" {name}{end}"), &format!(" {path}{end}"));
        }
    }
    text
}

/// The file with other ports: `first` for the first port of the file.
fn on_free_ports(pattern: &str, text: &str, first: SocketAddr) -> (String, Vec<(u16, SocketAddr)>) {
    let mut listeners: Vec<(u16, SocketAddr)> = Vec::new();
    let pattern = Regex::new(pattern).expect("it is one");
    let text = pattern.replace_all(text, |found: &Captures<'_>| {
        let port: u16 = found[1].parse().expect("a port");
        let known = listeners.iter().find(|(known, _)| *known == port).map(|(_, address)| *address);
        let address = known.unwrap_or_else(|| {
            let address = if listeners.is_empty() { first } else { free_address() };
            listeners.push((port, address));
            address
        });
        let word = found[0].split_whitespace().next().unwrap_or_default();
        let quote = if found[0].contains('"') { "\"" } else { "" };
        format!("{word} {quote}{address}")
    });
    (text.into_owned(), listeners)
}

/// The routers of Traefik, and one for [`READY`].
fn ready_router(published: &Published) -> String {
    let tls = if published.certificate.is_some() { ", tls: {}" } else { "" };
    format!(
        "  routers:\n    ready: {{ rule: \"Path(`{READY}`)\", service: noop@internal, priority: 9000{tls} }}\n"
    )
}

/// The certificate of the folder, which Traefik shows to all clients.
fn with_default_certificate(dynamic: &str, published: &Published, folder: &Authority) -> String {
    let Some((file, _)) = published.certificate else { return dynamic.to_owned() };
    let path = |end: &str| folder.path(&format!("{file}.{end}")).display().to_string();
    let (certificate, key) = (path("pem"), path("key"));
    format!(
        "{dynamic}\ntls:\n  stores:\n    default:\n      defaultCertificate: {{ certFile: \"{certificate}\", keyFile: \
         \"{key}\" }}\n"
    )
}
