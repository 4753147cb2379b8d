//! Settings that no request meets are told, and others are not: random files with one dead setting each, and random
//! files whose routes are all reached by some request of a small world.

use fastrand::Rng;
use tollgate::plan::Plan;
use tollgate::route::RouteIndex;

use crate::harness::config::parse;
use crate::harness::sample_request::get;

const BEGIN: &str = "[upstreams]\ndemo = \"builtin:echo\"\n";
/// What the warnings about such settings have in common.
const WORDS: [&str; 7] = [
    "can never match",
    "gets no request",
    "refuses all its requests",
    "admits no client of it",
    "no such request is charged to it",
    "redirects in a circle",
    "no body is JSON and a form at once",
];

/// The warnings about settings that no request meets, one a line; or the faults of paths that no request can have as they
/// are spelled.
fn told(file: &str) -> Vec<String> {
    let warnings = match parse(file) {
        Ok(loaded) => loaded.warnings.to_string(),
        Err(report) => {
            let faults = report.to_string();
            let is_fault = |line: &&str| line.starts_with("error: ");
            return faults.lines().filter(is_fault).map(str::to_owned).collect();
        }
    };
    let is_it = |line: &&str| line.starts_with("warning: ") && WORDS.iter().any(|word| line.contains(word));
    warnings.lines().filter(is_it).map(str::to_owned).collect()
}

fn route(settings: &str) -> String {
    let action = if settings.contains("redirect") { "" } else { "upstream = \"demo\"\n" };
    format!("[[routes]]\n{action}{settings}\n")
}

fn routes(all: &[&str]) -> String {
    all.iter().map(|settings| route(settings)).collect()
}

fn limit(name: &str, settings: &str) -> String {
    format!("[limits.{name}]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"9/s\"\n{settings}\n")
}

fn word(random: &mut Rng) -> String {
    (0..random.usize(2..6)).map(|_| random.lowercase()).collect()
}

fn pick<'t>(random: &mut Rng, texts: &[&'t str]) -> &'t str {
    texts[random.usize(..texts.len())]
}

/// The routes of a file with one dead setting, of each kind in turn, and words of the warning that is due.
fn dead(kind: usize, random: &mut Rng) -> (String, &'static str) {
    let (w, v) = (format!("w{}", word(random)), format!("v{}", word(random)));
    let number = random.u8(1..100);
    match kind {
        0 => (routes(&[&format!("path = '~^{w}$'")]), "no request has a path"),
        1 => (routes(&[&format!("path = '~^/{w}//{v}$'")]), "no request has a path"),
        2 => (routes(&[&format!("path = '~^/{w}/([a-z]+ ){{2}}$'")]), "no request has a path"),
        3 => (routes(&[&format!("path = '~^/{w}/%61'")]), "no request has a path"),
        4 => (routes(&[&format!("path = '~^/{w}/\\.\\./{v}'")]), "no request has a path"),
        5 => {
            (routes(&[&format!("path = '~^/{w}'"), &format!("path = \"/{w}/*\"")]), "takes all its requests")
        }
        6 => {
            let all = [format!("path = \"/{w}\""), format!("path = '~^/{w}/'"), format!("path = \"/{w}/*\"")];
            (routes(&all.each_ref().map(String::as_str)), "together take all its requests")
        }
        7 => {
            let all = [format!("path = '~^/{w}/.*$'"), format!("path = '~^/{w}/v[0-9]+/{v}$'")];
            (routes(&all.each_ref().map(String::as_str)), "takes all its requests")
        }
        8 => {
            let all = [
                format!("path = '~^/{w}/[a-m]'"),
                format!("path = '~^/{w}/[n-z]'"),
                format!("path = '~^/{w}/[a-z]+/{v}'"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "together take all its requests")
        }
        9 => {
            let all = [
                format!("name = \"get\"\npath = \"/{w}/{{id}}\"\nmethods = [\"GET\"]"),
                format!("name = \"post\"\npath = \"/{w}/{{id}}\"\nmethods = [\"POST\"]"),
                format!("name = \"both\"\npath = \"/{w}/{{id}}\"\nmethods = [\"GET\", \"POST\"]"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "together take all its requests")
        }
        10 => {
            let all = [format!("path = \"/{w}/{{id}}\""), format!("path = '~^/{w}/[a-z]+$'")];
            (routes(&all.each_ref().map(String::as_str)), "takes all its requests")
        }
        11 => {
            let (a, b) = (format!("{w}.test"), format!("{v}.test"));
            let all = [
                format!("name = \"a\"\npath = \"/{w}/*\"\nhosts = [\"{a}\"]"),
                format!("name = \"b\"\npath = \"/{w}/*\"\nhosts = [\"{b}\", \"{a}\"]"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "gets no request for the host")
        }
        12 => {
            let all = [
                format!("name = \"a\"\npath = \"/{w}\"\nmethods = [\"PUT\"]"),
                format!("name = \"b\"\npath = \"/{w}\"\nmethods = [\"DELETE\", \"PUT\"]"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "gets no request with the method `PUT`")
        }
        13 => {
            let all = [
                format!("name = \"a\"\npath = \"/{w}\"\nclients = [\"10.{number}.0.0/17\"]"),
                format!("name = \"b\"\npath = \"/{w}\"\nclients = [\"10.{number}.128.0/17\"]"),
                format!("name = \"c\"\npath = \"/{w}\"\nclients = [\"10.{number}.0.0/16\"]"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "together take all its requests")
        }
        14 => {
            let all = [
                format!("name = \"a\"\npath = \"/{w}\"\nheaders = {{ x-{w} = \"{v}*\" }}"),
                format!("name = \"b\"\npath = \"/{w}\"\nheaders = {{ x-{w} = \"{v}{w}\" }}"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "takes all its requests")
        }
        _ => dead_settings(kind, random, (&w, &v)),
    }
}

/// The number of kinds of [`dead`].
const KINDS: usize = 30;

fn dead_settings(kind: usize, random: &mut Rng, (w, v): (&str, &str)) -> (String, &'static str) {
    let number = random.u8(1..100);
    let limited = |path: &str, more: &str| format!("path = \"{path}\"\nlimits = [\"{w}\"]\n{more}");
    match kind {
        15 => {
            let all = [limited("/*", ""), format!("path = \"/{v}\"")];
            let limit = limit(w, &format!("exempt = [\"path:/{v}\"]"));
            (routes(&all.each_ref().map(String::as_str)) + &limit, "no such request is charged to it")
        }
        16 => {
            let limit = limit(w, &format!("exempt = [\"path:/{v}/*\"]"));
            (route(&limited(&format!("/{w}/*"), "")) + &limit, "no such request is charged to it")
        }
        17 => {
            let limit = limit(w, &format!("exempt = [\"ip:10.{number}.0.0/16\"]"));
            (route(&limited("/*", "allow = [\"192.0.2.0/24\"]")) + &limit, "no such request is charged to it")
        }
        18 => {
            let rules = format!("clients = [\"10.{number}.0.0/16\"]\ndeny = [\"10.0.0.0/8\"]");
            (route(&format!("path = \"/{w}\"\n{rules}")), "refuses all its requests")
        }
        19 => {
            let rules =
                format!("allow = [\"10.{number}.2.7\", \"192.0.2.1\"]\ndeny = [\"10.{number}.0.0/16\"]");
            (route(&format!("path = \"/{w}\"\n{rules}")), "admits no client of it")
        }
        20 => (route(&format!("path = \"/{w}\"\nredirect = {{ to = \"/{w}/\" }}")), "redirects in a circle"),
        21 => (
            route(&format!("path = \"/{w}/*\"\nredirect = {{ to = \"/{w}/{{*}}\" }}")),
            "redirects in a circle",
        ),
        22 => {
            let all = [
                format!("path = \"/{w}\"\nredirect = {{ to = \"/{v}\" }}"),
                format!("path = \"/{v}\"\nredirect = {{ to = \"/{w}\", status = 302 }}"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "redirects in a circle")
        }
        23 => (
            route(&format!("path = \"/{w}/*\"\nredirect = {{ to = \"/{w}/{v}/{{*}}\" }}")),
            "redirects in a circle",
        ),
        24 => (
            route(&format!("path = \"/{{lang}}/{w}\"\nredirect = {{ to = \"/en/{w}\" }}")),
            "redirects in a circle",
        ),
        25 => (
            route(&format!(
                "path = \"/{w}\"\nheaders = {{ x-a = \"{v}*\" }}\nnot = {{ headers = {{ x-a = true }} }}"
            )),
            "its `not` excludes all its requests",
        ),
        26 => (
            route(&format!("path = \"/{w}/{v}\"\nnot = {{ path = \"/{w}/*\" }}")),
            "its `not` excludes all its requests",
        ),
        27 => (
            route(&format!(
                "path = \"/{w}\"\nmethods = [\"POST\", \"PUT\"]\nnot = {{ methods = [\"PUT\"] }}"
            )),
            "gets no request with the method `PUT`: its `not` excludes all of them",
        ),
        28 => {
            let all = [
                format!("name = \"a\"\npath = \"/{w}\"\nquery = {{ q = [\"*{v}*\", \"{w}\"] }}"),
                format!("name = \"b\"\npath = \"/{w}\"\nquery = {{ q = [\"x{v}*\", \"y{v}\", \"{w}\"] }}"),
            ];
            (routes(&all.each_ref().map(String::as_str)), "takes all its requests")
        }
        _ => {
            let limit = limit(w, "").replace("\"ip\"", &format!("[\"json:/{w}\", \"form:{v}\"]"));
            (route(&limited("/*", "")) + &limit, "no body is JSON and a form at once")
        }
    }
}

#[test]
fn a_setting_that_no_request_meets_is_told() {
    let mut random = Rng::with_seed(47);
    let (mut missed, count) = (Vec::new(), 210);
    for number in 0..count {
        let (routes, words) = dead(number % KINDS, &mut random);
        // Further routes, which take nothing from these.
        let live: String = (0..random.usize(..4)).map(|at| route(&live_alone(at, &mut random))).collect();
        let file = match random.bool() {
            true => format!("{BEGIN}{live}{routes}"),
            false => format!("{BEGIN}{routes}{live}"),
        };
        let told = told(&file);
        if told.len() != 1 || !told[0].contains(words) {
            missed.push(format!("kind {}: {told:#?}\n{file}", number % KINDS));
        }
    }
    assert!(missed.len() <= count / 20, "{} of {count} missed:\n{}", missed.len(), missed.join("\n"));
    assert_eq!(missed, Vec::<String>::new());
}

/// A route that lives whatever the others are.
fn live_alone(at: usize, random: &mut Rng) -> String {
    let name = format!("live{at}");
    let path = pick(random, &["/N/*", "/N", "/N/{id}", "~^/N/[0-9]+$", "~^/N(/.*)?$", "/N/{a}/x/*"]);
    let more = pick(
        random,
        &["", "methods = [\"GET\", \"POST\"]", "headers = { x-a = \"b*\" }", "hosts = [\"*.live.test\"]"],
    );
    format!("name = \"{name}\"\npath = '{}'\n{more}", path.replace('N', &name))
}

/// The world of random files: every request of it.
struct World {
    paths: Vec<String>,
}

const HOSTS: [&str; 3] = ["a.t", "b.a.t", "else"];
const METHODS: [&str; 3] = ["GET", "POST", "HEAD"];
const VALUES: [&str; 3] = ["", "12", "13"];
const CLIENTS: [&str; 3] = ["10.1.0.1", "10.200.0.1", "192.0.2.1"];

impl World {
    fn new() -> Self {
        let segments = ["a", "b", "1", "zz"];
        let mut paths = vec!["/".to_owned(), "/a/".to_owned(), "/zz/".to_owned()];
        for one in segments {
            paths.push(format!("/{one}"));
            paths.push(format!("/{one}/1/b"));
            paths.extend(segments.map(|two| format!("/{one}/{two}")));
        }
        Self { paths }
    }

    /// Calls `visit` with the route of each request until it returns `true`.
    fn each(&self, plan: &Plan, mut visit: impl FnMut(Option<RouteIndex>, &str, &str, &str) -> bool) {
        for host in HOSTS {
            for path in &self.paths {
                for method in METHODS {
                    for value in VALUES {
                        for client in CLIENTS {
                            let mut sample = get(path).host(host).method(method).from(client);
                            sample = sample.matched(plan.server.path_matching);
                            if !value.is_empty() {
                                sample = sample.header("x-v", value);
                            }
                            let found = sample.ask(|request| plan.table.find(request));
                            if visit(found, host, method, client) {
                                return;
                            }
                        }
                    }
                }
            }
        }
    }
}

fn random_route(random: &mut Rng, at: usize) -> String {
    let paths = [
        "/*",
        "/a/*",
        "/a",
        "/{x}",
        "/{x}/b",
        "/a/{x}",
        "/a/b",
        "/{x}/*",
        "/b/{x}/b",
        "~^/a",
        "~^/[a-z]+$",
        "~^/a/[0-9]$",
        "~/b$",
        "~^/(a|b)/",
        "~^/b(/.*)?$",
        "~^/zz",
        "/1/*",
        "/b/*",
    ];
    let mut text = format!("name = \"r{at}\"\npath = '{}'\n", pick(random, &paths));
    let some = |random: &mut Rng| random.u8(..3) == 0;
    if some(random) {
        text +=
            pick(random, &["hosts = [\"a.t\"]\n", "hosts = [\"*.a.t\", \"a.t\"]\n", "hosts = [\"b.a.t\"]\n"]);
    }
    if some(random) {
        text += pick(
            random,
            &["methods = [\"GET\"]\n", "methods = [\"POST\", \"GET\"]\n", "methods = [\"HEAD\"]\n"],
        );
    }
    if some(random) {
        text += pick(
            random,
            &[
                "headers = { x-v = \"1*\" }\n",
                "headers = { x-v = [\"12\", false] }\n",
                "headers = { x-v = \"*2\" }\n",
            ],
        );
    }
    if some(random) {
        text += pick(
            random,
            &[
                "not = { headers = { x-v = true } }\n",
                "not = { path = \"/a/*\" }\n",
                "not = { methods = [\"POST\"] }\n",
                "not = { hosts = [\"a.t\"], clients = [\"10.0.0.0/9\"] }\n",
                "not = { headers = { x-v = [\"*2\", false] } }\n",
            ],
        );
    }
    if some(random) {
        text += pick(
            random,
            &[
                "clients = [\"10.0.0.0/8\"]\n",
                "clients = [\"10.0.0.0/9\", \"10.128.0.0/9\"]\n",
                "clients = [\"10.128.0.0/9\", \"192.0.2.0/24\"]\n",
            ],
        );
    }
    text
}

/// What is said about random files is true, and of files in which every route, host and method has a request nothing is
/// said.
#[test]
fn what_requests_reach_is_never_told_as_dead() {
    let (mut random, world) = (Rng::with_seed(48), World::new());
    let (mut live, mut dead) = (0, 0);
    while live < 1_000 {
        let count = random.usize(1..5);
        let strict = if random.u8(..4) == 0 { "[server]\npath_matching = \"strict\"\n" } else { "" };
        let all: String = (0..count).map(|at| route(&random_route(&mut random, at))).collect();
        let file = format!("{strict}{BEGIN}{all}");
        // Routes with one path, methods and conditions are a fault.
        let Ok(loaded) = parse(&file) else { continue };
        let mut met = vec![Vec::new(); count];
        let needed: Vec<usize> = loaded.plan.routes.iter().map(needed_meetings).collect();
        world.each(&loaded.plan, |found, host, method, client| {
            if let Some(RouteIndex(index)) = found {
                note(&loaded.plan, (index, host, method, client), &mut met);
            }
            met.iter().zip(&needed).all(|(met, needed)| met.len() >= *needed)
        });
        let told = told(&file);
        for (index, met) in met.iter().enumerate() {
            let of_route =
                told.iter().filter(|line| line.starts_with(&format!("warning: route `r{index}` ")));
            for line in of_route {
                dead += 1;
                let is_false = met.iter().any(|item| line.contains(&format!("`{item}`")))
                    || line.contains("can never match") && !met.is_empty();
                assert!(!is_false, "{line}\n{met:?}\n{file}");
            }
        }
        if met.iter().zip(&needed).all(|(met, needed)| met.len() >= *needed) {
            assert_eq!(told, Vec::<String>::new(), "{file}");
            live += 1;
        }
    }
    assert!(dead > 200, "only {dead} warnings were compared");
}

/// The number of hosts, methods and networks that the conditions of a route list, at least one.
fn needed_meetings(route: &tollgate::plan::Route) -> usize {
    let listed = route.conditions.hosts.len() + route.conditions.methods.len() + networks(route).len();
    listed.max(1)
}

fn networks(route: &tollgate::plan::Route) -> &[ipnet::IpNet] {
    tollgate::witness::clients_of(&route.conditions)
}

/// Notes which of the listed hosts, methods and networks a request of the route has.
fn note(plan: &Plan, (index, host, method, client): (usize, &str, &str, &str), met: &mut [Vec<String>]) {
    let route = &plan.routes[index];
    let hosts =
        route.conditions.hosts.iter().filter(|pattern| pattern.matches(host)).map(ToString::to_string);
    let methods = route.conditions.methods.iter().map(ToString::to_string).filter(|named| named == method);
    let client = client.parse::<std::net::IpAddr>().unwrap();
    let networks =
        networks(route).iter().filter(|network| network.contains(&client)).map(ToString::to_string);
    let mut items: Vec<String> = hosts.chain(methods).chain(networks).collect();
    if items.is_empty() && needed_meetings(route) == 1 {
        items.push("any".to_owned());
    }
    for item in items {
        if !met[index].contains(&item) {
            met[index].push(item);
        }
    }
}

/// A route that many others surround is found alive or dead with little work.
#[test]
fn ten_thousand_routes_are_checked_together() {
    let mut file = BEGIN.to_owned();
    for number in 0..10_000 {
        let path = match number % 4 {
            0 => format!("/a{number}/*"),
            1 => format!("/a{number}/{{id}}"),
            2 => format!("~^/a{number}/[0-9]+$"),
            _ => format!("/b/a{number}"),
        };
        file += &route(&format!("path = '{path}'"));
    }
    assert_eq!(told(&file), Vec::<String>::new());
    file += &route("path = \"/dead/*\"\nname = \"dead\"");
    file += &route("path = '~^/dead'\nname = \"alive\"");
    assert_eq!(told(&file), ["warning: route `dead` can never match: route `alive` takes all its requests"]);
}
