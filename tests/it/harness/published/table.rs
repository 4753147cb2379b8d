//! The pages, and what their files are adapted to.

use super::Published;

/// All pages of `tests/migrate/`.
pub(crate) const ALL: [Published; 15] = [
    OPEN_FOOD_FACTS,
    NGINX_MASTODON,
    NGINX_API_KEYS,
    HAPROXY_MAPS,
    HAPROXY_CLOUD_FOUNDRY,
    HAPROXY_COUCHDB,
    TRAEFIK_AUTHELIA,
    TRAEFIK_LOTTERY,
    TRAEFIK_MIRROR_NODE,
    CADDY_RATE_LIMIT,
    CADDY_NETBIRD,
    CADDY_STICKY,
    SUPABASE_KONG,
    KONG_JOURNALS,
    KONG_CLINIC,
];

const PLAIN: Published = Published {
    name: "",
    certificate: None,
    clients: &[],
    upstreams: &[],
    changes: &[],
    original: &[],
    questions: &[],
};

const OPEN_FOOD_FACTS: Published = Published {
    name: "open-food-facts",
    certificate: Some(("openfoodfacts.org", &["openfoodfacts.org", "*.openfoodfacts.org", "example.org"])),
    upstreams: &[
        ("product-opener", "10.1.0.113:80"),
        ("query", "10.1.0.105:16001"),
        ("images", "10.1.0.114:80"),
    ],
    changes: &[("10.1.0.0/16", "127.0.1.0/24")],
    original: &[
        ("proxy_cache mycache;", ""),
        ("proxy_cache      mycache;", ""),
        ("rate=15r/m", "rate=1r/m"),
        ("rate=30000r/m", "rate=1r/m"),
        ("rate=200r/m", "rate=1r/m"),
        // With its rate the zone lets all requests of the test pass.
        ("zone=off-all nodelay", "zone=off-all burst=49 nodelay"),
        ("zone=off-api-all nodelay", "zone=off-api-all burst=49 nodelay"),
    ],
    ..PLAIN
};

const HAPROXY_MAPS: Published = Published {
    name: "haproxy-maps",
    upstreams: &[("ui", "10.0.1.1:9001"), ("api", "10.0.1.2:9002"), ("docs", "10.0.1.3:9003")],
    changes: &[
        ("192.0.2.0/24", "127.9.0.0/24"),
        ("127.0.0.1:8901", "127.0.0.1:0"),
        // Each request of the test has a connection of its own.
        ("\"21/10s\"", "\"1000/10s\""),
    ],
    original: &[
        ("expire 10s", "expire 1d"),
        ("rate(10s)", "rate(1d)"),
        ("timeout tarpit 2s", "timeout tarpit 10ms"),
        ("table_conn_rate(st_global) gt 21", "table_conn_rate(st_global) gt 1000"),
    ],
    ..PLAIN
};

const TRAEFIK_AUTHELIA: Published = Published {
    name: "traefik-authelia",
    certificate: Some(("example.com", &["*.example.com"])),
    upstreams: &[
        ("authelia", "authelia:9091"),
        ("adguard", "192.168.1.110:80"),
        ("haos", "192.168.1.123:8123"),
        ("tautulli", "192.168.1.111:8181"),
    ],
    changes: &[("127.0.0.1:9900", "127.0.0.1:0")],
    original: &[
        ("$TAUTULLI_API_KEY", "tautulli-5d1c9b7e"),
        ("average: 100, burst: 50", "average: 1, period: 1h, burst: 50"),
    ],
    questions: &["/api/verify"],
    ..PLAIN
};

const SUPABASE_KONG: Published = Published {
    name: "supabase-kong",
    upstreams: &[
        ("auth", "auth:9999"),
        ("rest", "rest:3000"),
        ("storage", "storage:5000"),
        ("functions", "functions:9000"),
        ("meta", "meta:8080"),
        ("studio", "studio:3000"),
        ("realtime", "http://realtime-dev.supabase-realtime:4000"),
    ],
    ..PLAIN
};

const CADDY_RATE_LIMIT: Published = Published {
    name: "caddy-rate-limit",
    certificate: Some(("example.com", &["*.example.com"])),
    upstreams: &[("api", "10.0.1.1:3000"), ("files", "10.0.1.2:8080"), ("web", "10.0.1.3:3000")],
    changes: &[("192.168.0.0/16", "127.9.0.0/24")],
    ..PLAIN
};

const NGINX_MASTODON: Published = Published {
    name: "nginx-mastodon",
    certificate: Some(("example.com", &["example.com"])),
    upstreams: &[("web", "127.0.0.1:3000"), ("streaming", "127.0.0.1:4000"), ("acme", "127.0.0.1:8402")],
    ..PLAIN
};

const NGINX_API_KEYS: Published = Published {
    name: "nginx-api-keys",
    certificate: Some(("example.com", &["*.example.com"])),
    upstreams: &[("inventory", "10.0.0.1:80"), ("pricing", "10.0.0.7:80")],
    original: &[("rate=200r/s", "rate=1r/m")],
    ..PLAIN
};

const HAPROXY_CLOUD_FOUNDRY: Published = Published {
    name: "haproxy-cloud-foundry",
    certificate: Some(("example.com", &["*.example.com", "*.internal.example.com"])),
    clients: &["device-7"],
    upstreams: &[("routers", "10.0.1.1:80"), ("images", "10.0.2.1:80")],
    changes: &[("10.0.0.0/8", "127.9.0.0/24")],
    original: &[("expire 10s", "expire 1d"), ("rate(10s)", "rate(1d)"), ("maxconn 64000", "maxconn 1000")],
    ..PLAIN
};

const HAPROXY_COUCHDB: Published = Published {
    name: "haproxy-couchdb",
    upstreams: &[
        ("couchdbs", "127.0.0.1:15984"),
        ("away", "127.0.0.1:25984"),
        ("couchdbs", "127.0.0.1:35984"),
    ],
    changes: &[("127.0.0.1:9900", "127.0.0.1:0")],
    questions: &["/_up"],
    ..PLAIN
};

const TRAEFIK_LOTTERY: Published = Published {
    name: "traefik-lottery",
    certificate: Some(("example.com", &["example.com", "*.example.com"])),
    upstreams: &[
        ("front", "front:3000"),
        ("auth", "auth:8083"),
        ("users", "users:8081"),
        ("results", "results:8082"),
        ("away", "results-2:8082"),
        ("status", "status:9100"),
    ],
    changes: &[("10.0.0.0/8", "127.9.0.0/24")],
    original: &[("/etc/traefik", "/srv/www"), ("period: 1m", "period: 1h")],
    ..PLAIN
};

const TRAEFIK_MIRROR_NODE: Published = Published {
    name: "traefik-mirror-node",
    upstreams: &[("rosetta", "10.2.0.1:5700"), ("web3", "10.2.0.2:8545")],
    original: &[("average: 10, burst: 10,", "average: 1, period: 1h, burst: 10,")],
    questions: &["/health/readiness", "/actuator/health/readiness"],
    ..PLAIN
};

const CADDY_NETBIRD: Published = Published {
    name: "caddy-netbird",
    certificate: Some(("example.com", &["netbird.example.com"])),
    upstreams: &[
        ("signal", "signal:10000"),
        ("management", "management:443"),
        ("management-api", "management:80"),
        ("provider", "zitadel:8080"),
        ("dashboard", "dashboard:80"),
    ],
    // The backends of the test speak HTTP/1.1.
    changes: &[("protocol = \"http2\"", "protocol = \"http1\"")],
    original: &[("h2c://", "http://")],
    ..PLAIN
};

const CADDY_STICKY: Published = Published {
    name: "caddy-sticky",
    upstreams: &[("app", "10.3.0.11:8080"), ("away", "10.3.0.12:8080")],
    questions: &["/health/ready"],
    ..PLAIN
};

const KONG_JOURNALS: Published = Published {
    name: "kong-journals",
    upstreams: &[("articles", "articles:8080"), ("annotations", "annotations:8081"), ("admin", "admin:8090")],
    ..PLAIN
};

const KONG_CLINIC: Published = Published {
    name: "kong-clinic",
    upstreams: &[("clinical", "clinical-1:3003"), ("away", "clinical-2:3003"), ("patients", "patients:3001")],
    changes: &[("192.168.0.0/16", "127.9.0.0/24")],
    questions: &["/health"],
    ..PLAIN
};
