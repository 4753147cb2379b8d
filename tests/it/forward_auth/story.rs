//! Story D: a service in the way of oauth2-proxy in front of an application in Python.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::harness::{Gateway, Response, get_with, tools};

/// The application trusts `x-auth-request-email`, and keeps a session of its own.
const APPLICATION: &str = r#"
import http.server

class Application(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        email, groups = self.headers["x-auth-request-email"], self.headers["x-auth-request-groups"]
        body = f"{self.path}: {email} of {groups}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A log-in service: `/oauth2/auth` answers 202 or 401, `/oauth2/start` sends to the provider and back, and the root
/// answers 302 for those without a session. Its session is a signed cookie.
const LOGIN: &str = r#"
import hashlib, hmac, http.server, urllib.parse

SECRET = b"of this test"

def sign(email):
    return hmac.new(SECRET, email.encode(), hashlib.sha256).hexdigest()

class Login(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def session(self):
        for part in (self.headers["cookie"] or "").split(";"):
            name, _, value = part.strip().partition("=")
            email, _, signature = value.rpartition("|")
            if name == "_oauth2_proxy" and hmac.compare_digest(sign(email), signature):
                return email

    def answer(self, status, *fields):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/oauth2/callback":
            query = urllib.parse.parse_qs(url.query)
            email = query["code"][0]
            cookie = f"_oauth2_proxy={email}|{sign(email)}; Path=/; HttpOnly; SameSite=Lax"
            return self.answer(302, ("location", query["state"][0]), ("set-cookie", cookie))
        email = self.session()
        if email:
            return self.answer(202, ("x-auth-request-email", email), ("x-auth-request-groups", "staff"),
                               ("x-auth-request-plan", "pro" if email.startswith("ann") else "free"))
        wanted = f"{self.headers['x-forwarded-proto']}://{self.headers['x-forwarded-host']}{self.headers['x-forwarded-uri']}"
        if "text/html" in (self.headers["accept"] or ""):
            state = urllib.parse.quote(wanted, safe="")
            return self.answer(302, ("location", f"/oauth2/start?rd={state}"),
                               ("set-cookie", "_oauth2_proxy_csrf=1; Path=/; HttpOnly"))
        self.answer(401)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Login)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
"#;

struct Script {
    child: Child,
    port: u16,
}

impl Script {
    fn start(text: &str) -> Self {
        let mut child =
            tools::python(&[]).args(["-c", text]).stdout(Stdio::piped()).spawn().expect("Python starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn people_log_in_and_get_the_allowance_of_their_plan() {
    let (application, login) = (Script::start(APPLICATION), Script::start(LOGIN));
    let gateway = Gateway::start(&format!(
        "[upstreams]\napp = \"http://127.0.0.1:{}\"\nlogin = \"http://127.0.0.1:{port}\"\n\
         [auth.sso]\ntype = \"forward\"\nurl = \"http://127.0.0.1:{port}/\"\ntimeout = \"30s\"\n\
         headers = [\"x-auth-request-email\", \"x-auth-request-groups\"]\nname = \"header:x-auth-request-email\"\n\
         tier = \"header:x-auth-request-plan\"\n\
         [limits.plan]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"consumer\"\nrate = \"2/day\"\n\
         [limits.plan.tiers.pro]\nrate = \"5/day\"\n\
         [[routes]]\npath = \"/oauth2/*\"\nupstream = \"login\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"app\"\nauth = \"sso\"\nlimits = [\"plan\"]\n",
        application.port,
        port = login.port,
    ));
    let get = |path: &str, fields: &str| -> Response { get_with(gateway.addr(), path, fields) };
    get("/report?year=2026", "x-auth-request-email: root@example.com\r\n").expect(401);
    let sent = get("/report?year=2026", "accept: text/html\r\n").expect(302);
    let location = sent.header("location").expect("a location").to_owned();
    assert!(location.starts_with("/oauth2/start?rd=http%3A%2F%2F"), "{location}");
    assert!(location.ends_with("%2Freport%3Fyear%3D2026"), "{location}");
    assert!(sent.header("set-cookie").is_some_and(|cookie| cookie.contains("_csrf")));
    let log_in = |email: &str| {
        let back = get(&format!("/oauth2/callback?code={email}&state=/report"), "").expect(302);
        let cookie =
            back.header("set-cookie").expect("a cookie").split(';').next().expect("a value").to_owned();
        format!("cookie: {cookie}\r\n")
    };
    let (ann, bob) = (log_in("ann@example.com"), log_in("bob@example.com"));
    let forged = format!("{ann}x-auth-request-email: root@example.com\r\nx_auth_request_groups: admins\r\n");
    let response = get("/report", &forged).expect(200);
    assert_eq!(response.text(), "/report: ann@example.com of staff");
    (0..4).for_each(|_| drop(get("/report", &ann).expect(200)));
    get("/report", &ann).expect(429);
    (0..2).for_each(|_| drop(get("/report", &bob).expect(200)));
    get("/report", &bob).expect(429);
    get("/report", "cookie: _oauth2_proxy=ann@example.com|0000\r\n").expect(401);
}
