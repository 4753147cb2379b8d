//! Spellings of one path that backends serve alike: limits hold for all of them, and each is forwarded as it is spelled.

use tollgate::route::path::PathMatching::{self, Lenient, Strict};
use tollgate::route::{Conditions, Criterion, Match, RouteIndex, RouteTable};

use crate::harness::sample_request::{get, narrow, route, with_header};
use crate::harness::{Backend, Gateway, Response, send};

fn find(routes: &[Conditions], path: &str, matching: PathMatching) -> Option<usize> {
    let table = RouteTable::new(routes.to_vec(), matching);
    get(path).matched(matching).ask(|request| table.find(request)).map(|index| index.0)
}

#[test]
fn another_spelling_is_the_same_route() {
    let routes = ["/*", "/login", "/Users/{id}", "/files/*"].map(route);
    let spellings = [
        ("/login", 1),
        ("/Login", 1),
        ("/LOGIN/", 1),
        ("/login;x", 1),
        ("/%4Cogin", 1),
        ("/login//", 1),
        ("/./LOGIN;a=b/", 1),
        ("/users/7", 2),
        ("/USERS/A;b/", 2),
        ("/FILES;v=2/a", 3),
        ("/files/", 3),
    ];
    for (path, expected) in spellings {
        assert_eq!(find(&routes, path, Lenient), Some(expected), "{path}");
    }
    for (path, expected) in
        [("/login%3Bx", 0), ("/login.", 0), ("/loginx", 0), ("/users/", 0), ("/users/;x", 0)]
    {
        assert_eq!(find(&routes, path, Lenient), Some(expected), "{path}");
    }
    for (path, expected) in [("/Login", 0), ("/login/", 0), ("/login;x", 0), ("/login", 1), ("/users/7", 0)] {
        assert_eq!(find(&routes, path, Strict), Some(expected), "{path}, strictly");
    }
}

#[test]
fn of_equal_routes_the_one_that_is_spelled_as_the_request_wins() {
    let routes = ["/Login", "/login", "/login/", "/LOGIN;v=2"].map(route);
    let spellings = [("/Login", 0), ("/login", 1), ("/login/", 2), ("/LOGIN;v=2", 3), ("/lOGIN", 0)];
    for (path, expected) in spellings {
        assert_eq!(find(&routes, path, Lenient), Some(expected), "{path}");
    }
    // What the order says comes first.
    let routes = [narrow("", "/a", ""), narrow("", "/A", "GET"), with_header(route("/A"), "x-plan", "gold")];
    assert_eq!(find(&routes, "/a", Lenient), Some(1), "methods");
    let routes = [narrow("a.test", "/A", ""), narrow("*.test", "/a", "")];
    let table = RouteTable::new(routes.to_vec(), Lenient);
    let found = get("/a").host("a.test").matched(Lenient).ask(|request| table.find(request));
    assert_eq!(found, Some(RouteIndex(0)), "hosts");
    // Hosts in common, but one of them closer.
    let routes = [narrow("a.test *.b.test", "/A", ""), narrow("*.test *.b.test", "/a", "")];
    let table = RouteTable::new(routes.to_vec(), Lenient);
    for (host, expected) in [("a.test", 0), ("x.b.test", 1)] {
        let found = get("/a").host(host).matched(Lenient).ask(|request| table.find(request));
        assert_eq!(found, Some(RouteIndex(expected)), "{host}");
    }
}

#[test]
fn routes_that_keep_slashes_are_spelled_apart_too() {
    let kept = |path| Conditions { merge_slashes: false, ..route(path) };
    let routes = [kept("/A"), route("/a")];
    assert_eq!(find(&routes, "/a", Lenient), Some(1));
    assert_eq!(find(&routes, "/A", Lenient), Some(0));
    assert_eq!(find(&routes, "//a", Lenient), Some(1), "kept, it is another path");
}

#[test]
fn explain_tells_that_the_spelling_decided() {
    let table = RouteTable::new(vec![route("/Login"), route("/login"), route("/LOGIN")], Lenient);
    let told = get("/login").matched(Lenient).ask(|request| table.explain(request));
    let beaten = Match::LessSpecific(RouteIndex(1), Criterion::Spelling);
    assert_eq!(told, [beaten.clone(), Match::Chosen, beaten]);
    let told = get("/lOGIN").matched(Lenient).ask(|request| table.explain(request));
    let beaten = Match::LessSpecific(RouteIndex(0), Criterion::Order);
    assert_eq!(told, [Match::Chosen, beaten.clone(), beaten]);
}

#[test]
fn a_route_that_is_spelled_otherwise_is_reachable_by_its_spelling() {
    let unreachable = |paths: &[&str]| {
        let table = RouteTable::new(paths.iter().map(|path| route(path)).collect(), Lenient);
        table.unreachable().len()
    };
    assert_eq!(unreachable(&["/Login", "/login", "/login/"]), 0);
    assert_eq!(unreachable(&["/login", "/login"]), 1);
    assert_eq!(unreachable(&["/{id}", "/{name}"]), 1);
}

#[test]
fn literals_that_take_spellings_from_a_parameter_are_found() {
    let taken = |routes: Vec<Conditions>| {
        RouteTable::taken_spellings(routes)
            .into_iter()
            .map(|(one, other)| (one.0, other.0))
            .collect::<Vec<_>>()
    };
    let of = |paths: &[&str]| taken(paths.iter().map(|path| route(path)).collect());
    assert_eq!(of(&["/users/{id}", "/users/me"]), [(1, 0)]);
    assert_eq!(of(&["/users/{id}/posts", "/users/me/posts", "/{kind}/me/{x}"]), [(1, 2)]);
    assert_eq!(of(&["/users/{id}/*", "/users/me/*", "/users/me"]), [(1, 0), (2, 0)]);
    assert_eq!(of(&["/users/{id}", "/users/42"]), []);
    assert_eq!(of(&["/users/{id}", "/users/me/*"]), [], "the parameter wins anyway");
    assert_eq!(of(&["/*", "/login", "/files/*"]), [], "a prefix is not told");
    assert_eq!(taken(vec![narrow("", "/{x}", "GET"), narrow("", "/me", "POST")]), []);
    assert_eq!(taken(vec![narrow("", "/{x}", ""), narrow("", "/me", "POST")]), [(1, 0)]);
    assert_eq!(taken(vec![narrow("a.test", "/{x}", ""), narrow("", "/me", "")]), [], "the host wins anyway");
    assert_eq!(taken(vec![narrow("*.test", "/{x}", ""), narrow("a.test", "/me", "")]), [(1, 0)]);
    assert_eq!(taken(vec![narrow("b.test", "/{x}", ""), narrow("a.test", "/me", "")]), []);
}

/// One request a client and path to `/login` and what is below `/api`; all others are free.
fn gateway(backend: &Backend, matching: &str) -> Gateway {
    Gateway::start(&format!(
        "[server]\n{matching}\n[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\nback = \"http://{}\"\n\
         [limits.login]\nalgorithm = \"fixed-window\"\nrate = \"1/366day\"\nkey = \"ip\"\n\
         [limits.paths]\nalgorithm = \"fixed-window\"\nrate = \"1/366day\"\nkey = [\"ip\", \"path\"]\nexempt = [\"path:/api/health\"]\n\
         [[routes]]\npath = \"/login\"\nupstream = \"back\"\nlimits = [\"login\"]\n\
         [[routes]]\npath = \"/api/*\"\nupstream = \"back\"\nstrip_prefix = \"/api\"\nlimits = [\"paths\"]\n\
         [[routes]]\npath = \"/*\"\nupstream = \"back\"\n",
        backend.addr()
    ))
}

fn statuses(gateway: &Gateway, paths: &[&str]) -> Vec<u16> {
    let ask = |path: &&str| send(gateway.addr(), format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
    paths.iter().map(ask).map(|response: Response| response.status).collect()
}

#[test]
fn no_spelling_escapes_a_limit() {
    let backend = Backend::ok();
    let spellings = [
        "/Login",
        "/login/",
        "/login;x",
        "/%4Cogin",
        "/login//",
        "/./LOGIN;a=b/",
        "/x/../login",
        "/login/;y",
    ];
    let lenient = gateway(&backend, "");
    assert_eq!(statuses(&lenient, &["/login"]), [200]);
    for spelling in spellings {
        assert_eq!(statuses(&lenient, &[spelling]), [429], "{spelling}");
    }
    assert_eq!(statuses(&lenient, &["/login%3Bx", "/loginx", "/"]), [200; 3], "other paths");
    assert_eq!(statuses(&lenient, &["/x/..;/login", "/..;/login"]), [400; 2], "read in two ways by backends");

    let strict = gateway(&backend, "path_matching = \"strict\"");
    assert_eq!(statuses(&strict, &["/login", "/login"]), [200, 429]);
    assert_eq!(statuses(&strict, &["/Login", "/login/", "/login;x", "/x/..login"]), [200; 4]);
}

/// What leaves `/public` for a backend that decodes separators or drops parameters before it resolves dot segments.
const ENCODED_DOTS: [&str; 10] = [
    "/public/..%2fadmin",
    "/public/%2e%2e%2fadmin",
    "/public/x%2f..%2f..%2fadmin",
    "/public/..%5cadmin",
    "/public/..%5C",
    "/public/..;/admin",
    "/public/.%2E;x=1/admin",
    "/public/..%3B/admin",
    "/public/a%2f../admin",
    "/public/.%2fadmin",
];

#[test]
fn encoded_dot_segments_are_refused() {
    for matching in ["", "path_matching = \"strict\""] {
        let backend = Backend::ok();
        let gateway = gateway(&backend, matching);
        for path in ENCODED_DOTS {
            let response = send(gateway.addr(), format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
            assert_eq!(response.status, 400, "{path}");
            assert!(response.text().contains("an encoded dot segment"), "{}", response.text());
        }
        assert_eq!(backend.count(), 0, "the backend sees none of them");
        let others = ["/public/..%252fadmin", "/public/a%2Fb", "/public;/../admin", "/x/%2e%2e/y"];
        for (path, target) in others.iter().zip(["/public/..%252fadmin", "/public/a%2Fb", "/admin", "/y"]) {
            assert_eq!(statuses(&gateway, &[path]), [200], "{path}");
            assert_eq!(backend.latest().target(), target);
        }
    }
}

#[test]
fn encoded_dot_segments_pass_where_the_file_says_so() {
    let backend = Backend::ok();
    for matching in ["", "path_matching = \"strict\"\n"] {
        let gateway = gateway(&backend, &format!("{matching}encoded_dots = \"pass\""));
        for (path, target) in
            [("/Public/..%2fadmin", "/Public/..%2Fadmin"), ("/public/..;X/admin", "/public/..;X/admin")]
        {
            assert_eq!(statuses(&gateway, &[path]), [200], "{path}");
            assert_eq!(backend.latest().target(), target, "as it is spelled");
        }
        let file = std::fs::read_to_string(gateway.config_path()).expect("the file");
        let changed = file.replace("\"pass\"", "\"reject\"");
        gateway.reload(&changed, "server: encoded_dots pass → reject");
        assert_eq!(statuses(&gateway, &["/public/..%2fadmin"]), [400]);
    }
}

#[test]
fn paths_are_forwarded_as_spelled_and_counted_as_folded() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let seen = |path: &str| {
        assert_eq!(statuses(&gateway, &[path]), [200], "{path}");
        backend.latest().target().to_owned()
    };
    assert_eq!(seen("/Login;x=1/?Q=1"), "/Login;x=1/?Q=1");
    assert_eq!(seen("/API;v=2/Users/A"), "/Users/A");
    assert_eq!(statuses(&gateway, &["/api/users/a/", "/api/USERS;x/a"]), [429; 2], "one key");
    assert_eq!(seen("/api/users/b"), "/users/b");
    // An exemption holds for the one spelling that the file names.
    assert_eq!(
        statuses(&gateway, &["/api/health", "/api/health", "/api/Health", "/api/Health"]),
        [200, 200, 200, 429]
    );
    let key = gateway.admin("/api/v1/limits/paths/keys/127.0.0.1,%2FApi%2FUsers%2FA%2F");
    assert_eq!(key.status, 200, "{}", key.text());
    assert!(key.text().contains("\"remaining\":0"), "the key is found by any spelling: {}", key.text());
}

#[test]
fn a_reload_changes_how_paths_are_matched() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "path_matching = \"strict\"");
    assert_eq!(statuses(&gateway, &["/login", "/LOGIN"]), [200, 200]);
    let file = std::fs::read_to_string(gateway.config_path()).expect("the file");
    gateway.reload(&file.replace("strict", "lenient"), "reloaded: ");
    assert_eq!(statuses(&gateway, &["/LOGIN"]), [429]);
}
