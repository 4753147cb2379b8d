//! A split by a cookie that new clients lack: the gateway's own cookie keeps them at their upstream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::explain::{ExplainRequest, explain};

use crate::harness::config::parse;
use crate::harness::{AllVersions, Backend, Client, Gateway, Next, Response, h2_get};

const OWN: &str = "tollgate-split";

/// An application that answers with its name, and gives a client without a session one.
fn application(name: &'static str) -> Backend {
    let sessions = AtomicUsize::new(0);
    Backend::start(move |exchange| {
        exchange.read_body();
        let has_session = exchange.head.contains("session=");
        let session = match has_session {
            true => String::new(),
            false => {
                let number = sessions.fetch_add(1, Ordering::SeqCst);
                format!("set-cookie: session={name}{number}; Path=/\r\n")
            }
        };
        exchange.write(format!("HTTP/1.1 200 OK\r\n{session}content-length: {}\r\n\r\n{name}", name.len()));
        Next::KeepAlive
    })
}

/// Everything to these upstreams by these shares. `routes`: more of the file.
fn file(upstreams: &[(&str, &Backend)], shares: &str, routes: &str) -> String {
    let upstreams: Vec<_> =
        upstreams.iter().map(|(name, backend)| format!("{name} = \"{}\"\n", backend.url())).collect();
    format!(
        "[upstreams]\n{}[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = {shares}\n\
         upstream_key = \"cookie:session\"\n{routes}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        upstreams.concat()
    )
}

/// The cookies of a client.
#[derive(Clone, Debug, Default)]
struct Jar(BTreeMap<String, String>);

impl Jar {
    fn take(&mut self, response: &Response) {
        response.header_all("set-cookie").into_iter().for_each(|set| self.set(set));
    }

    fn set(&mut self, set: &str) {
        let pair = set.split(';').next().unwrap_or_default();
        let (name, value) = pair.split_once('=').expect("a cookie");
        self.0.insert(name.to_owned(), value.to_owned());
    }

    fn pairs(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}"))
    }

    fn line(&self) -> String {
        let pairs = self.pairs().collect::<Vec<_>>().join("; ");
        if pairs.is_empty() { pairs } else { format!("cookie: {pairs}\r\n") }
    }

    /// The answer's text, after one more request.
    fn get(&mut self, client: &mut Client, path: &str) -> String {
        let response = client.get(path, &self.line()).expect(200);
        self.take(&response);
        response.text()
    }
}

fn renewed(response: &Response) -> bool {
    response.header_all("set-cookie").iter().any(|set| set.starts_with(OWN))
}

#[test]
fn no_session_changes_its_upstream() {
    let (blue, green) = (application("blue"), application("green"));
    let gateway =
        Gateway::start(&file(&[("blue", &blue), ("green", &green)], "{ blue = 80, green = 20 }", ""));
    let mut client = Client::connect(gateway.addr());
    let mut counts = BTreeMap::<String, usize>::new();
    for number in 0..1_000 {
        let mut jar = Jar::default();
        let answers = [0, 1, 2].map(|_| jar.get(&mut client, "/"));
        assert!(answers.iter().all(|answer| *answer == answers[0]), "session {number}: {answers:?}");
        assert_eq!(jar.0.len(), 2, "the application's own cookie passes, too");
        *counts.entry(answers[0].clone()).or_default() += 1;
    }
    // Eight standard deviations.
    assert!((99..=301).contains(&counts["green"]), "{counts:?}");
    let requests = |name: &str| {
        gateway
            .metric("tollgate_upstream_responses_total", &[&format!("upstream=\"{name}\""), "class=\"2xx\""])
    };
    assert_eq!(["blue", "green"].map(requests), ["blue", "green"].map(|name| counts[name] as f64 * 3.0));
}

#[test]
fn the_cookie_is_set_once_and_names_no_upstream() {
    let (blue, green) = (application("blue"), application("green"));
    let gateway = Gateway::start(&file(&[("blue", &blue), ("green", &green)], "{ blue = 1, green = 1 }", ""));
    let mut client = Client::connect(gateway.addr());
    let first = client.get("/", "").expect(200);
    let set = first.header_all("set-cookie");
    assert_eq!(set.len(), 2, "{set:?}");
    let (value, attributes) = set[1].split_once(';').expect("attributes");
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax");
    assert_eq!(value.len(), OWN.len() + 1 + 22, "{value}");
    let second = client.get("/", &format!("cookie: {value}\r\n")).expect(200);
    assert!(!renewed(&second));
    assert_eq!(second.text(), first.text());
    // Upstreams get it with the other cookies.
    let seen = if first.text() == "blue" { blue.latest() } else { green.latest() };
    assert_eq!(seen.header("cookie").as_deref(), Some(value));
    // A client with the application's cookie alone is placed by it.
    let keyed = client.get("/", "cookie: session=7\r\n").expect(200);
    assert!(!renewed(&keyed));
    for _ in 0..5 {
        assert_eq!(client.get("/", "cookie: session=7\r\n").expect(200).text(), keyed.text());
    }
}

#[test]
fn only_a_kept_cookie_chooses() {
    let (blue, green) = (application("blue"), application("green"));
    let gateway = Gateway::start(&file(&[("blue", &blue), ("green", &green)], "{ blue = 1, green = 1 }", ""));
    let mut client = Client::connect(gateway.addr());
    let mut jar = Jar::default();
    jar.get(&mut client, "/");
    let good = jar.0[OWN].clone();
    let mut others: Vec<_> = (0..good.len()).map(|end| good[..end].to_owned()).collect();
    others.extend([format!("{good}A"), "blue".to_owned(), "0".to_owned(), ".".repeat(500)]);
    for other in others {
        let response = client.get("/", &format!("cookie: {OWN}={other}\r\n")).expect(200);
        assert!(renewed(&response), "{other}");
    }
}

#[test]
fn the_cookies_of_split_and_servers_stand_together() {
    let (blue, green) = (application("blue"), application("green"));
    let mut text = file(&[], "{ blue = 1, green = 1 }", "").replace("[upstreams]\n", "");
    for (name, backend) in [("blue", &blue), ("green", &green)] {
        text += &format!(
            "[upstreams.{name}]\nservers = [\"{}\"]\nsticky = {{ cookie = \"at-{name}\", same_site = \"strict\", \
             path = \"/shop\", max_age = \"1h\", secure = true }}\n",
            backend.url()
        );
    }
    let gateway = Gateway::start(&text);
    let mut client = Client::connect(gateway.addr());
    let mut jar = Jar::default();
    let first = client.get("/", "").expect(200);
    jar.take(&first);
    let names: Vec<_> = jar.0.keys().cloned().collect();
    assert_eq!(names, [&format!("at-{}", first.text()), "session", OWN]);
    let set =
        first.header_all("set-cookie").into_iter().find(|set| set.starts_with("at-")).expect("it is set");
    let (_, attributes) = set.split_once(';').expect("attributes");
    assert_eq!(attributes, " Path=/shop; HttpOnly; SameSite=Strict; Max-Age=3600; Secure");
    let second = client.get("/", &jar.line()).expect(200);
    assert!(second.header_all("set-cookie").is_empty());
    assert_eq!(second.text(), first.text());
}

/// A client, its upstream and its cookies.
fn clients(gateway: &Gateway, count: usize) -> Vec<(String, Jar)> {
    let mut client = Client::connect(gateway.addr());
    let mut one = || {
        let mut jar = Jar::default();
        (jar.get(&mut client, "/"), jar)
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn reloads_move_the_clients_of_drained_and_removed_upstreams_only() {
    let [blue, green, red] = ["blue", "green", "red"].map(application);
    let all = [("blue", &blue), ("green", &green), ("red", &red)];
    let gateway = Gateway::start(&file(&all, "{ blue = 1, green = 1, red = 1 }", ""));
    let mut clients = clients(&gateway, 60);
    let mut visit = |gateway: &Gateway, may_stay: &dyn Fn(&str) -> bool| {
        let mut client = Client::connect(gateway.addr());
        for (at, jar) in &mut clients {
            let now = jar.get(&mut client, "/");
            assert!(now == *at || !may_stay(at), "from {at} to {now}");
            assert!(may_stay(&now), "{now}");
            *at = now;
            assert_eq!(jar.get(&mut client, "/"), *at, "it stays");
        }
    };
    // Other weights move no client.
    gateway.reload(&file(&all, "{ blue = 1000, green = 1, red = 1 }", ""), "reloaded");
    visit(&gateway, &|_| true);
    gateway.reload(&file(&all, "{ blue = 1, green = 1, red = 0 }", ""), "reloaded");
    visit(&gateway, &|name| name != "red");
    // Clients of red stay where they are, too.
    gateway.reload(&file(&all, "{ blue = 1, green = 1, red = 1 }", ""), "reloaded");
    visit(&gateway, &|_| true);
    gateway.reload(&file(&all[1..], "{ green = 1, red = 1 }", ""), "reloaded");
    visit(&gateway, &|name| name != "blue");
}

#[test]
fn routes_with_the_same_upstreams_agree_and_others_have_their_own() {
    let [blue, green, old, new] = ["blue", "green", "old", "new"].map(application);
    let all = [("blue", &blue), ("green", &green), ("old", &old), ("new", &new)];
    let routes = "[[routes]]\npath = \"/api/*\"\nupstream = { green = 5, blue = 1 }\nupstream_key = [\"cookie:session\", \"ip\"]\n\
                  [[routes]]\npath = \"/search/*\"\nupstream = { old = 1, new = 1 }\nupstream_key = \"cookie:session\"\n";
    let gateway = Gateway::start(&file(&all, "{ blue = 1, green = 1 }", routes));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..50 {
        let mut jar = Jar::default();
        let page = jar.get(&mut client, "/");
        let search = jar.get(&mut client, "/search/a");
        jar.0.remove("session");
        for _ in 0..3 {
            assert_eq!(jar.get(&mut client, "/api/a"), page);
            assert_eq!(jar.get(&mut client, "/search/a"), search);
            assert_eq!(jar.get(&mut client, "/"), page);
        }
    }
}

#[test]
fn streams_keep_their_upstream_too() {
    let (blue, green) = (application("blue"), application("green"));
    let gateway =
        AllVersions::start(&file(&[("blue", &blue), ("green", &green)], "{ blue = 1, green = 1 }", ""));
    for client in gateway.clients() {
        for _ in 0..50 {
            let mut jar = Jar::default();
            let mut visit = || {
                let mut request = h2_get("/");
                for pair in jar.pairs() {
                    request.headers_mut().append("cookie", pair.parse().expect("a value"));
                }
                let answer = client.exchange(request, &b""[..]).expect("an answer").expect(200);
                for set in answer.headers.get_all("set-cookie") {
                    jar.set(set.to_str().expect("text"));
                }
                answer.body
            };
            let first = visit();
            assert!(first == visit() && first == visit());
        }
    }
}

#[test]
fn explain_says_what_chooses() {
    let text = "[upstreams]\nblue = \"http://10.0.0.1:80\"\ngreen = \"http://10.0.0.2:80\"\n[[routes]]\npath = \"/*\"\n\
                upstream = { blue = 3, green = 1 }\nupstream_key = \"cookie:session\"\n";
    let plan = parse(text).expect("a good file").plan;
    let told = |headers: &[&str]| {
        let headers: Vec<String> = headers.iter().copied().map(str::to_owned).collect();
        let request = ExplainRequest::new("GET", "http://a.test/", &headers, None).expect("a request");
        explain(&plan, &request).to_string()
    };
    let drawn = "one of `blue` (10.0.0.1:80) (weight 3), `green` (10.0.0.2:80) (weight 1)";
    assert!(told(&[]).contains(drawn), "{}", told(&[]));
    assert!(
        told(&["cookie: session=1"]).contains("(chosen per cookie `session`)"),
        "{}",
        told(&["cookie: session=1"])
    );
}
