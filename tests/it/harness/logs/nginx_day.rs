//! A day of an nginx server, made from a seed: people, an office behind one address, crawlers, a monitor, a scraper, and an
//! attack on the login.

use std::fmt::Write as _;

/// The address of the scraper.
pub(crate) const SCRAPER: &str = "192.0.2.10";
/// The address that tries passwords.
pub(crate) const ATTACKER: &str = "192.0.2.66";
/// The address of the office.
pub(crate) const OFFICE: &str = "198.51.100.20";

const DAY: u64 = 86_400_000;
const HOUR: u64 = 3_600_000;
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0";

/// One request: milliseconds of the day, and its line without the time.
struct Hit {
    at: u64,
    client: String,
    request: String,
    status: u16,
    bytes: u64,
    agent: &'static str,
}

struct Day {
    random: u64,
    hits: Vec<Hit>,
}

/// The log in the combined format, in the order of time, of 2026-11-20.
pub(crate) fn nginx_day(seed: u64) -> String {
    let mut day = Day { random: seed.wrapping_mul(2).wrapping_add(1), hits: Vec::new() };
    for person in 0..700 {
        let client = format!("198.18.{}.{}", person / 200, person % 200 + 1);
        for _ in 0..=day.below(3) {
            let start = day.waking_hour();
            day.visit(start, &client);
        }
    }
    for _ in 0..24 {
        let start = 8 * HOUR + day.below(9 * HOUR);
        day.visit(start, OFFICE);
    }
    day.crawl(
        "198.51.100.66",
        90_000,
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    );
    day.crawl(
        "198.51.100.67",
        150_000,
        "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    );
    day.repeat("198.51.100.80", (0, DAY), 120_000, "GET /health", 200, "UptimeMonitor/1.4");
    for page in 0..12_000_u64 {
        let request = format!("GET /products?page={page}");
        let at = 2 * HOUR + page * 300 + day.below(100);
        day.hit(at, SCRAPER, &request, 200, "python-requests/2.32.3");
    }
    day.repeat(ATTACKER, (13 * HOUR, 13 * HOUR + HOUR / 4), 200, "POST /login", 401, BROWSER);
    day.lines()
}

impl Day {
    fn below(&mut self, end: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    /// More in the evening than in the morning, and hardly any at night.
    fn waking_hour(&mut self) -> u64 {
        let (one, other) = (self.below(16 * HOUR), self.below(16 * HOUR));
        6 * HOUR + one.max(other)
    }

    fn hit(&mut self, at: u64, client: &str, request: &str, status: u16, agent: &'static str) {
        let bytes = 400 + self.below(30_000);
        let (client, request) = (client.to_owned(), request.to_owned());
        self.hits.push(Hit { at, client, request, status, bytes, agent });
    }

    /// Pages with their assets, and time to read in between; some people log in.
    fn visit(&mut self, start: u64, client: &str) {
        let mut now = start;
        if self.below(4) == 0 {
            for status in [401, 302].into_iter().skip(usize::from(self.below(3) > 0)) {
                self.hit(now, client, "POST /login", status, BROWSER);
                now += 4_000 + self.below(9_000);
            }
        }
        for _ in 0..2 + self.below(9) {
            let page =
                ["/", "/products", "/about", "/cart", "/news"][usize::try_from(self.below(5)).unwrap()];
            self.hit(now, client, &format!("GET {page}"), 200, BROWSER);
            for _ in 0..2 + self.below(4) {
                let (asset, later) = (self.below(40), 80 + self.below(900));
                self.hit(now + later, client, &format!("GET /assets/{asset}.js"), 200, BROWSER);
            }
            now += 3_000 + self.below(50_000);
        }
    }

    fn crawl(&mut self, client: &str, every: u64, agent: &'static str) {
        let mut now = self.below(every);
        while now < DAY {
            let page = self.below(4_000);
            self.hit(now, client, &format!("GET /products/{page}"), 200, agent);
            now += every / 2 + self.below(every);
        }
    }

    fn repeat(
        &mut self,
        client: &str,
        (from, to): (u64, u64),
        every: u64,
        request: &str,
        status: u16,
        agent: &'static str,
    ) {
        for number in 0..(to - from) / every {
            let at = from + number * every + self.below(every / 4);
            self.hit(at, client, request, status, agent);
        }
    }

    fn lines(mut self) -> String {
        self.hits.retain(|hit| hit.at < DAY);
        self.hits.sort_by_key(|hit| hit.at);
        let mut text = String::new();
        for Hit { at, client, request, status, bytes, agent } in self.hits {
            let seconds = at / 1_000;
            let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            let time = format!("20/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000");
            writeln!(text, "{client} - - [{time}] \"{request} HTTP/1.1\" {status} {bytes} \"-\" \"{agent}\"")
                .unwrap();
        }
        text
    }
}
