//! What the fuzz targets assert of credentials, of patterns for values, and of the files of consumers and networks.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::path::PathBuf;

use http::HeaderName;
use tollgate::config;
use tollgate::http1::request::RequestHead;
use tollgate::route::RouteRequest;
use tollgate::route::client::ClientRule;
use tollgate::route::condition::{Condition, ValuePattern};
use tollgate::route::credential::{Credential, CredentialSource, without_cookies, without_credentials};
use tollgate::route::path::{Path, PathMatching};

/// What is read of a request as a credential stands in it; without it there is none.
pub(crate) fn credentials(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (query, lines) = text.split_once('\n').unwrap_or((text, ""));
    let lines: String = lines.lines().map(|line| format!("{line}\r\n")).collect();
    let head = format!("GET /a?{query} HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
    let mut spans = Vec::new();
    let Ok(head) = RequestHead::parse(head.as_bytes(), &mut spans) else { return };
    let path = Path::parse("/a", PathMatching::Strict).expect("a path");
    let client = ClientRule::default().client(IpAddr::from([192, 0, 2, 1]));
    let request = |query| RouteRequest {
        method: &head.method,
        host: "a",
        path: &path,
        query,
        headers: head.fields,
        body: head.body,
        client,
        certificate: None,
        listener: None,
        content: &tollgate::route::content::RequestContent::Unknown,
        consumer: None,
        upstream: None,
    };
    let of = |source: &str| CredentialSource::parse(source).expect("a place");
    let parsed = ["header:x-api-key", "bearer", "query:key", "cookie:key"].map(of);
    parsed.iter().for_each(|source| assert_eq!(of(&source.to_string()), *source));
    for source in parsed.iter().chain([&CredentialSource::Basic]) {
        let found = source.find(&request(head.target.query));
        // Escapes make text shorter, never longer.
        assert!(
            !matches!(&found, Credential::Single(value) if value.is_empty() || value.len() >= text.len())
        );
        let (carried, repeated) = (found != Credential::Missing, found == Credential::Repeated);
        let is_field = |field: &_| source.is_field(field) || source.is_twin(field);
        let fields = || head.fields.iter().filter(|field| is_field(field));
        match source {
            CredentialSource::Header(_) | CredentialSource::Bearer | CredentialSource::Basic => {
                assert!(!carried || repeated || fields().next().is_some());
            }
            CredentialSource::Request => {}
            CredentialSource::Query(_) => {
                let source = source.clone();
                let rest = without_credentials(head.target.query.unwrap_or_default(), [&source].into_iter());
                assert!(!carried || rest.is_some());
                if let Some(rest) = &rest {
                    let second = RouteRequest { query: Some(rest), ..request(None) };
                    assert_eq!(source.find(&second), Credential::Missing, "{rest}");
                    assert_eq!(without_credentials(rest, [&source].into_iter()), None);
                }
            }
            CredentialSource::Cookie(_) => {
                let mut cuts = head.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"cookie"));
                let cut = |value: &[u8]| without_cookies(value, [source].into_iter());
                assert!(!carried || cuts.clone().any(|field| cut(field.value).is_some()));
                assert!(cuts.all(|field| cut(field.value).is_none_or(|rest| cut(&rest).is_none())));
            }
        }
    }
}

/// A folder of this thread, removed at its end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads a `gateway.toml` beside this content in `table`.
fn load_beside(table: &[u8], toml: &str) -> Result<config::LoadedConfig, config::Report> {
    thread_local! {
        static FOLDER: OnceCell<Folder> = const { OnceCell::new() };
    }
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| {
            let name = format!("tollgate-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).expect("a folder");
            Folder(folder)
        });
        let Folder(folder) = folder;
        std::fs::write(folder.join("table"), table).expect("it can be written");
        let path = folder.join("gateway.toml");
        config::parse(toml.as_bytes(), path.to_str().expect("text"), &|_| None)
    })
}

/// Part of every key of the corpus: it is in no report.
const KEY_PART: &str = "hushhush";

/// A file of consumers is a table, or a report that shows nothing of it; lines behind it change nothing.
pub(crate) fn consumers_file(data: &[u8]) {
    const TOML: &str = "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\n\
        [auth.keys]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"table\"\n";
    let loaded = match load_beside(data, TOML) {
        Ok(loaded) => loaded,
        Err(report) => {
            let text = format!("{report}{:?}", report.error_lines());
            return assert!(report.errors() > 0 && !text.contains(KEY_PART), "{text}");
        }
    };
    assert!(!loaded.warnings.to_string().contains(KEY_PART));
    let rows = |loaded: &config::LoadedConfig| -> Vec<(String, Option<String>)> {
        let consumers = &loaded.plan.auths[0].api_keys().expect("API keys").consumers;
        let lines = 1 + data.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
        assert!(consumers.names() <= consumers.keys() && consumers.keys() < lines.max(2));
        let row = |one: tollgate::route::consumers::Consumer<'_>| {
            (one.name().to_owned(), one.tier().map(str::to_owned))
        };
        consumers.iter().map(row).collect()
    };
    let found = rows(&loaded);
    assert!(found.iter().all(|(name, _)| !name.is_empty() && !name.chars().any(char::is_control)));
    let more = load_beside(&[data, b"\r\n\n"].concat(), TOML).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(rows(&more), found);
}

/// A file of networks is the set of its lines, or has a fault for each line that is none.
pub(crate) fn networks_file(data: &[u8]) {
    const TOML: &str = "[server]\ndeny = [\"file:table\"]\n[upstreams]\ndemo = \"builtin:echo\"\n\
        [[routes]]\npath = \"/*\"\nupstream = \"demo\"\n";
    let text = data.strip_prefix("\u{feff}".as_bytes()).unwrap_or(data);
    let mut networks: Vec<ipnet::IpNet> = Vec::new();
    let mut faults = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        let line = String::from_utf8_lossy(line);
        match (line.parse::<IpAddr>(), line.parse::<ipnet::IpNet>()) {
            (Ok(address), _) => networks.push(address.to_canonical().into()),
            (_, Ok(network)) => networks.push(network),
            _ => faults += usize::from(!line.is_empty()),
        }
    }
    let loaded = match load_beside(data, TOML) {
        Ok(loaded) => loaded,
        Err(report) => {
            assert!(!report.to_string().contains(KEY_PART));
            return assert_eq!(report.errors(), faults);
        }
    };
    assert_eq!(faults, 0);
    let set = loaded.plan.server.addresses.deny.as_ref().expect("a set");
    assert_eq!(set.len(), networks.len());
    let edges = networks.iter().flat_map(|network| [network.network(), network.broadcast(), network.addr()]);
    for address in
        edges.chain(["10.0.0.1", "::1", "::ffff:10.0.0.1"].map(|text| text.parse().expect("an address")))
    {
        let address = address.to_canonical();
        let covers = |network: &ipnet::IpNet| match (network, address) {
            // A network in IPv4-mapped form contains IPv4 addresses.
            (ipnet::IpNet::V6(v6), IpAddr::V4(v4)) => {
                v6.prefix_len() >= 96 && v6.contains(&v4.to_ipv6_mapped())
            }
            _ => network.contains(&address),
        };
        assert_eq!(set.contain(address), networks.iter().any(covers), "{address}");
    }
}

/// A pattern, and below it values of a header: what the pattern is shown as stands for the same values.
pub(crate) fn value_pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (text, values) = text.split_once('\n').unwrap_or((text, ""));
    // A variable's text from the first blank on.
    let literal = text.find(' ').map(|start| start..text.len());
    let _ = ValuePattern::parse_with(text, literal.as_slice());
    let Ok(pattern) = ValuePattern::parse(text) else { return };
    let again = ValuePattern::parse(&pattern.to_string()).expect("a pattern");
    let lines: String = values.lines().map(|line| format!("x: {line}\r\n")).collect();
    let head = format!("GET /a HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
    let mut spans = Vec::new();
    let Ok(head) = RequestHead::parse(head.as_bytes(), &mut spans) else { return };
    let path = Path::parse("/a", PathMatching::Strict).expect("a path");
    let request = RouteRequest {
        method: &head.method,
        host: "a",
        path: &path,
        query: None,
        headers: head.fields,
        body: head.body,
        client: ClientRule::default().client(IpAddr::from([192, 0, 2, 1])),
        certificate: None,
        listener: None,
        content: &tollgate::route::content::RequestContent::Unknown,
        consumer: None,
        upstream: None,
    };
    let name = HeaderName::from_static("x");
    let holds = |patterns: Vec<ValuePattern>| Condition::header(name.clone(), patterns).holds(&request);
    // A long list has an index.
    let others = || (0..8).map(|number| ValuePattern::Exact(format!("\u{1}{number}").into_bytes().into()));
    let expected = holds(vec![pattern.clone()]);
    assert_eq!(holds(vec![again]), expected, "{text:?}");
    assert_eq!(holds(others().chain([pattern]).collect()), expected, "{text:?}");
}
