//! The pages that a reader can follow as they stand: their files, servers and commands, and what each promises beyond
//! the output that it shows.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::acme_server::{AcmeServer, look_by_http};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::pages::root;
use crate::harness::{Client, Front, Redis, eventually, tools};

/// Follows a page with a gateway before `server.py`.
fn follow_recipe(page: &str, then: impl Fn(&PageRun)) {
    follow_page(&format!("docs/recipes/{page}"), |page| {
        page.serve("server.py", 9001, &[]);
        page.gateway();
        let faults = page.sessions();
        if faults.is_empty() {
            then(page);
        }
        faults
    });
}

/// The statuses of requests from one address, each on a connection of its own, all at the same time.
fn statuses(from: u8, to: SocketAddr, request: &str, count: usize) -> BTreeMap<u16, usize> {
    let send = || Client::connect_from(Ipv4Addr::new(127, 0, 0, from).into(), to).exchange(request).status;
    std::thread::scope(|scope| {
        let requests: Vec<_> = (0..count).map(|_| scope.spawn(send)).collect();
        requests.into_iter().fold(BTreeMap::new(), |mut statuses, request| {
            *statuses.entry(request.join().expect("a response")).or_default() += 1;
            statuses
        })
    })
}

#[test]
fn consumers() {
    follow_page("docs/consumers.md", |page| {
        page.serve("service.py", 9001, &[]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn behind_a_load_balancer() {
    follow_recipe("behind-a-load-balancer.md", |page| {
        let (http, tcp) = (page.address(8080), page.address(8081));
        let nginx = Front::nginx(http, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;");
        let haproxy = Front::haproxy_file(|address| {
            format!(
                "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
                 listen all\n bind {address}\n server one {tcp} send-proxy-v2\n"
            )
        });
        // The clients' own claims do not count.
        let request = "GET / HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 198.51.100.1\r\n\r\n";
        for (front, client) in [(&nginx, 2), (&nginx, 3), (&haproxy, 3), (&haproxy, 4)] {
            let expected = BTreeMap::from([(200, 5)]);
            assert_eq!(statuses(client, front.addr(), request, 5), expected, "127.0.0.{client}");
        }
        let keys = page.run(&format!(
            "curl '{}/api/v1/limits/per-client/keys?by=requests' | jq -c '.keys[] | [.key[0], .requests]' | sort",
            page.address(9900)
        ));
        // Those of the page's sessions, and the clients of the proxies, through whichever of the two.
        let expected = "[\"127.0.0.1\",1]\n[\"127.0.0.2\",5]\n[\"127.0.0.3\",10]\n[\"127.0.0.4\",5]\n\
                        [\"203.0.113.7\",2]\n[\"203.0.113.8\",1]\n";
        assert_eq!(keys, expected);
    });
}

#[test]
fn tests_of_limits() {
    follow_page("docs/policy-tests.md", |page| page.sessions());
}

#[test]
fn limits_under_test_in_ci() {
    follow_recipe("policy-tests.md", |_| ());
}

#[test]
fn api_keys_with_plans() {
    follow_recipe("api-keys-with-plans.md", |_| ());
}

#[test]
fn move_api_keys() {
    follow_recipe("move-api-keys.md", |_| ());
}

#[test]
fn monthly_quotas() {
    follow_page("docs/recipes/monthly-quotas.md", |page| {
        // A busy machine may need more than the default, and then this process would decide by what it knows.
        page.edit("gateway.toml", "backend = \"redis\"", "timeout = \"5s\"\nbackend = \"redis\"");
        let _redis = Redis::start_at(page.address(6379).port()).expect("the port is ours");
        page.serve("server.py", 9001, &[]);
        page.gateway();
        page.sessions()
    });
}

/// Played with Redis, and with Valkey where the machine has it.
#[test]
fn quotas_that_survive() {
    let valkey = "valkey-server";
    for program in [None, Some(valkey)] {
        if program.is_some() && tools::is_left_out(valkey) {
            continue;
        }
        follow_page("docs/recipes/quotas-that-survive.md", |page| {
            // A busy machine may need more than the default, and then this process would decide by what it knows.
            page.edit("gateway.toml", "[store]", "[store]\ntimeout = \"5s\"");
            let port = page.address(6379).port();
            let _redis = match program {
                None => Redis::start_at(port),
                Some(program) => Redis::start_on(program, port, &[]),
            };
            page.serve("server.py", 9001, &[]);
            page.gateway();
            page.sessions()
        });
    }
}

#[test]
fn ipv6_networks() {
    follow_recipe("ipv6-networks.md", |_| ());
}

#[test]
fn roll_out_a_limit() {
    follow_recipe("roll-out-a-limit.md", |_| ());
}

#[test]
fn login_protection() {
    follow_recipe("login-protection.md", |page| {
        let body = "user=anna&password=guess";
        let request =
            format!("POST /login HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let at_once = statuses(2, page.address(8080), &request, 9);
        assert_eq!(at_once, BTreeMap::from([(401, 5), (429, 4)]), "attempts at the same time");
    });
}

#[test]
fn overload() {
    follow_recipe("overload.md", |_| ());
}

#[test]
fn llm_tokens() {
    follow_recipe("llm-tokens.md", |_| ());
}

#[test]
fn models() {
    follow_page("docs/models.md", |page| {
        page.serve("server.py", 9001, &[]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn event_streams() {
    follow_page("docs/event-streams.md", |page| {
        page.serve("events.py", 9001, &["blue"]);
        page.serve("events.py", 9002, &["green"]);
        page.set("STICKY_SECRET", "c0ffee00c0ffee00c0ffee00c0ffee00");
        page.gateway();
        page.sessions()
    });
}

#[test]
fn billing() {
    follow_page("docs/billing.md", |page| {
        page.serve("server.py", 9001, &[]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn which_limit() {
    follow_page("docs/which-limit.md", |page| {
        page.serve("server.py", 9001, &[]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn capacity() {
    follow_page("docs/capacity.md", |page| {
        page.serve("server.py", 9001, &[]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn mcp() {
    follow_recipe("mcp.md", |_| ());
}

#[test]
fn grpc() {
    follow_page("docs/recipes/grpc.md", |page| {
        page.serve("greeter.py", 50051, &[]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn websocket() {
    follow_recipe("websocket.md", |page| {
        let opened = |printed: String| printed.contains("101 Switching Protocols, echo: hello").then_some(());
        eventually("the places are free again", || opened(page.run("python3 sockets.py 1")));
    });
}

#[test]
fn mirror() {
    follow_page("docs/recipes/mirror.md", |page| {
        page.serve("server.py", 9001, &["blue"]);
        page.serve("server.py", 9002, &["green"]);
        page.gateway();
        page.sessions()
    });
}

#[test]
fn blue_green() {
    follow_page("docs/recipes/blue-green.md", |page| {
        page.serve("server.py", 9001, &["blue"]);
        page.serve("server.py", 9002, &["green"]);
        page.gateway();
        let faults = page.sessions();
        if faults.is_empty() {
            switch_under_load(page);
        }
        faults
    });
}

/// The traffic goes from one server to the other, back and over again while clients send requests: each gets its answer.
fn switch_under_load(page: &PageRun) {
    let (address, ended) = (page.address(8080), AtomicBool::new(false));
    let request = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    let names = std::thread::scope(|scope| {
        let send = || {
            let (mut client, mut names) = (Client::connect(address), BTreeMap::<String, usize>::new());
            while !ended.load(Ordering::Relaxed) {
                let response = client.exchange(request);
                let name = response.expect(200).text().split(':').next().unwrap_or_default().to_owned();
                *names.entry(name).or_default() += 1;
            }
            names
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
        let (both, green) = ("/# green/s/^#/ /", "/# blue/s/^ /#/");
        for edit in [both, green, "/# blue/s/^#/ /", green] {
            page.run(&format!("sed -i '{edit}' gateway.toml && systemctl reload tollgate"));
        }
        ended.store(true, Ordering::Relaxed);
        let names = clients.into_iter().map(|client| client.join().expect("no request is lost"));
        names.flatten().fold(BTreeMap::<String, usize>::new(), |mut sum, (name, count)| {
            *sum.entry(name).or_default() += count;
            sum
        })
    });
    assert!(names.keys().eq(["blue", "green"]), "{names:?}");
    let last = Client::connect(address).exchange(request).text();
    assert!(last.starts_with("green"), "the last switch is in force: {last}");
}

#[test]
fn compress() {
    follow_recipe("compress.md", |_| ());
}

#[test]
fn certificates() {
    follow_page("docs/recipes/acme.md", |page| {
        let (authority, address) = (AcmeServer::start(), page.address(8080));
        authority.validate(move |_, name, token| look_by_http(address, name, token));
        let trials = "https://acme-staging-v02.api.letsencrypt.org/directory";
        page.edit("gateway.toml", trials, &authority.directory());
        page.serve("server.py", 9001, &[]);
        page.gateway();
        let faults = page.sessions();
        assert_eq!(authority.orders().len(), 1);
        faults
    });
}

#[cfg(feature = "http3")]
#[test]
fn http3() {
    use crate::harness::{Authority, Http3};

    follow_page("docs/recipes/http3.md", |page| {
        let authority = Authority::new();
        authority.certify("example.com", &["example.com", "a.test"]);
        for file in ["example.com.pem", "example.com.key"] {
            std::fs::copy(authority.path(file), page.path(file)).expect("it can be copied");
        }
        page.serve("server.py", 9001, &[]);
        page.gateway();
        let browser = Http3::connect(page.address(8443), &authority.client_offering(&["h3"]));
        let shown = browser.get("/").expect(200);
        assert!(shown.body.starts_with(b"backend: GET /"), "{:?}", shown.body);
        page.sessions()
    });
}

#[test]
fn maintenance_mode() {
    follow_recipe("maintenance-mode.md", |_| ());
}

#[test]
fn fleet_with_redis() {
    follow_page("docs/recipes/fleet-with-redis.md", |page| {
        tools::needed("redis-cli");
        let _redis = Redis::start_at(page.address(6379).port()).expect("the port is ours");
        page.serve("server.py", 9001, &[]);
        page.set("STORE_SECRET", "c0ffee00c0ffee00c0ffee00c0ffee00");
        for [listen, admin] in [[8081, 9901], [8080, 9900]] {
            page.set("LISTEN", page.address(listen));
            page.set("ADMIN", page.address(admin));
            page.gateway();
        }
        page.sessions()
    });
}

#[test]
fn prometheus_and_grafana() {
    follow_page("docs/recipes/prometheus-and-grafana.md", |page| {
        page.serve("server.py", 9001, &[]);
        page.set("PROMETHEUS_TOKEN", "c0ffee00c0ffee00c0ffee00c0ffee00");
        page.gateway();
        page.sessions()
    });
}

#[test]
fn debugging_a_refusal() {
    follow_recipe("debugging-a-refusal.md", |_| ());
}

#[test]
fn each_recipe_is_followed_and_listed() {
    let tests = [
        include_str!("recipes.rs"),
        include_str!("../peers/asking/applications.rs"),
        include_str!("../peers/asking/caddy.rs"),
        include_str!("../peers/asking/envoy.rs"),
        include_str!("../peers/asking/nginx.rs"),
        include_str!("../peers/asking/traefik.rs"),
        include_str!("../peers/editor.rs"),
    ];
    let directory = root().join("docs/recipes");
    let list = std::fs::read_to_string(directory.join("README.md")).expect("the list of recipes");
    let files = std::fs::read_dir(directory).expect("the recipes").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let names: Vec<_> = names.filter(|name| name != "README.md").collect();
    assert_eq!(names.len(), 29, "{names:?}");
    for name in names {
        assert!(list.contains(&format!("]({name})")), "README.md does not list {name}");
        assert!(tests.iter().any(|tests| tests.contains(&name)), "no test follows {name}");
    }
}
