//! An authority that speaks ACME (RFC 8555), for one gateway: it looks at no signature, but it looks at challenges, and
//! walks through the states of orders. A test may have any of its steps fail, or hang.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PublicKeyData, SignatureAlgorithm,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use super::backend::{Backend, Exchange, Next};

/// What a gateway asks an authority for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The URLs.
    Directory,
    /// A nonce.
    Nonce,
    /// An account.
    Account,
    /// An order.
    Order,
    /// What proves a name.
    Authorization,
    /// To look at a challenge.
    Challenge,
    /// The state of an order.
    Poll,
    /// To issue.
    Finalize,
    /// The certificate.
    Certificate,
    /// When to renew.
    RenewalInfo,
}

/// What the authority does instead, once.
#[derive(Clone, Debug)]
pub(crate) enum Instead {
    /// Answers with these bytes.
    Answer(String),
    /// Waits until the test ends.
    Hang,
}

/// How a challenge is looked at: its type, the name, the token, and the account's fingerprint.
type Validator = Box<dyn Fn(&str, &str, &str) -> Result<(), String> + Send + Sync>;

/// The authority. Stops when dropped.
pub(crate) struct AcmeServer {
    backend: Backend,
    state: Arc<State>,
}

struct State {
    issuer: Issuer<'static, KeyPair>,
    root: String,
    validator: Mutex<Validator>,
    data: Mutex<Data>,
}

#[derive(Default)]
struct Data {
    steps: Vec<Step>,
    instead: BTreeMap<Step, VecDeque<Instead>>,
    orders: Vec<OrderData>,
    accounts: usize,
    /// How long certificates are valid, from an hour ago.
    lifetime: Option<Duration>,
    /// Names that certificates have instead.
    other_names: Option<Vec<String>>,
    /// The window of renewals: begin and end in seconds since 1970.
    window: Option<(i64, i64)>,
    /// The certificates that orders replace.
    replaced: Vec<String>,
    bindings: Vec<String>,
}

struct OrderData {
    names: Vec<String>,
    proven: Vec<bool>,
    fault: Option<String>,
    chain: Option<String>,
}

impl AcmeServer {
    /// An authority that takes each challenge for answered.
    pub(crate) fn start() -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "authority of tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.key_identifier_method = KeyIdMethod::Sha256;
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("a certificate").pem();
        let state = Arc::new(State {
            issuer: Issuer::new(params, key),
            root,
            validator: Mutex::new(Box::new(|_, _, _| Ok(()))),
            data: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        Self { backend: Backend::start(move |exchange| serve(exchange, &shared)), state }
    }

    /// The URL of its directory.
    pub(crate) fn directory(&self) -> String {
        format!("{}/directory", self.backend.url())
    }

    /// Looks at challenges like this: it is given the type, the name and the token.
    pub(crate) fn validate(
        &self,
        how: impl Fn(&str, &str, &str) -> Result<(), String> + Send + Sync + 'static,
    ) {
        *self.state.validator.lock().expect("no panic inside") = Box::new(how);
    }

    /// Does this instead at the next such step, after what was said so before.
    pub(crate) fn instead(&self, step: Step, what: Instead) {
        self.data(|data| data.instead.entry(step).or_default().push_back(what));
    }

    /// Answers a problem of this type at the next such step, with further header lines.
    pub(crate) fn refuse(&self, step: Step, status: u16, kind: &str, lines: &str) {
        let body = json!({
            "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": format!("refused by the test: {kind}"),
            "status": status,
        });
        self.instead(step, Instead::Answer(response(status, &body.to_string(), lines)));
    }

    /// How long certificates are valid that are issued from now on.
    pub(crate) fn set_lifetime(&self, lifetime: Duration) {
        self.data(|data| data.lifetime = Some(lifetime));
    }

    /// Certificates are for these names from now on, whatever was ordered.
    pub(crate) fn set_other_names(&self, names: Option<&[&str]>) {
        let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        self.data(|data| data.other_names = names);
    }

    /// Suggests to renew in this window, in seconds since 1970.
    pub(crate) fn suggest(&self, window: (i64, i64)) {
        self.data(|data| data.window = Some(window));
    }

    /// What it was asked for so far.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.data(|data| data.steps.clone())
    }

    /// How often it was asked for this.
    pub(crate) fn count(&self, step: Step) -> usize {
        self.steps().iter().filter(|one| **one == step).count()
    }

    /// The accounts that it has made.
    pub(crate) fn accounts(&self) -> usize {
        self.data(|data| data.accounts)
    }

    /// The names of all orders.
    pub(crate) fn orders(&self) -> Vec<Vec<String>> {
        self.data(|data| data.orders.iter().map(|order| order.names.clone()).collect())
    }

    /// What orders have said that they replace.
    pub(crate) fn replaced(&self) -> Vec<String> {
        self.data(|data| data.replaced.clone())
    }

    /// The names of the keys that accounts were bound by.
    pub(crate) fn bindings(&self) -> Vec<String> {
        self.data(|data| data.bindings.clone())
    }

    fn data<T>(&self, ask: impl FnOnce(&mut Data) -> T) -> T {
        ask(&mut self.state.data.lock().expect("no panic inside"))
    }
}

/// Looks at the token of http-01 at this address, as an authority does.
pub(crate) fn look_by_http(address: SocketAddr, name: &str, token: &str) -> Result<(), String> {
    let path = format!("/.well-known/acme-challenge/{token}");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
    let response = crate::harness::send(address, request);
    match response.status == 200 && response.text().starts_with(&format!("{token}.")) {
        true => Ok(()),
        false => Err(format!("{} at {path}: {}", response.status, response.text())),
    }
}

fn response(status: u16, body: &str, lines: &str) -> String {
    let nonce = BASE64_URL_SAFE_NO_PAD.encode(format!("nonce {}", fastrand::u64(..)));
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\nreplay-nonce: {nonce}\r\ncontent-length: {length}\r\n{lines}\r\n{body}"
    )
}

fn step_of(target: &str) -> Option<Step> {
    let mut parts = target.trim_start_matches('/').split('/');
    Some(match parts.next()? {
        "directory" => Step::Directory,
        "nonce" => Step::Nonce,
        "account" => Step::Account,
        "new-order" => Step::Order,
        "authorization" => Step::Authorization,
        "challenge" => Step::Challenge,
        "order" => Step::Poll,
        "finalize" => Step::Finalize,
        "certificate" => Step::Certificate,
        "renewal-info" => Step::RenewalInfo,
        _ => return None,
    })
}

fn serve(exchange: &mut Exchange<'_>, state: &State) -> Next {
    let body = exchange.read_body();
    let target = exchange.target().to_owned();
    let host = exchange.field("host").expect("a host");
    let Some(step) = step_of(&target) else {
        exchange.write(response(404, "{}", ""));
        return Next::Close;
    };
    let instead = {
        let mut data = state.data.lock().expect("no panic inside");
        data.steps.push(step);
        data.instead.get_mut(&step).and_then(VecDeque::pop_front)
    };
    match instead {
        Some(Instead::Answer(bytes)) => _ = exchange.write(bytes),
        Some(Instead::Hang) => exchange.hang(),
        None => {
            let payload = payload(&body);
            let answer = answer(step, &target, &payload, &format!("http://{host}"), state);
            let head = exchange.head.starts_with("HEAD ");
            let answer = if head {
                answer.split_inclusive("\r\n\r\n").next().unwrap_or("").to_owned()
            } else {
                answer
            };
            exchange.write(answer);
        }
    }
    Next::Close
}

/// What a message of JWS says.
fn payload(body: &[u8]) -> Value {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = message["payload"].as_str().unwrap_or_default();
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64url");
    serde_json::from_slice(&decoded).unwrap_or_default()
}

fn answer(step: Step, target: &str, payload: &Value, base: &str, state: &State) -> String {
    let numbers: Vec<usize> = target.split('/').filter_map(|part| part.parse().ok()).collect();
    let mut data = state.data.lock().expect("no panic inside");
    match step {
        Step::Directory => {
            let urls = json!({
                "newNonce": format!("{base}/nonce"), "newAccount": format!("{base}/account"),
                "newOrder": format!("{base}/new-order"),
                "renewalInfo": data.window.map(|_| format!("{base}/renewal-info")),
            });
            response(200, &urls.to_string(), "")
        }
        Step::Nonce => response(200, "", ""),
        Step::Account => {
            data.accounts += 1;
            let binding = payload["externalAccountBinding"]["protected"].as_str().map(|text| {
                let header = BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64url");
                let header: Value = serde_json::from_slice(&header).expect("JSON");
                header["kid"].as_str().expect("a name").to_owned()
            });
            data.bindings.extend(binding);
            let location = format!("location: {base}/accounts/{}\r\n", data.accounts);
            response(201, r#"{"status":"valid"}"#, &location)
        }
        Step::Order => {
            let names = payload["identifiers"].as_array().into_iter().flatten();
            let names: Vec<_> = names.map(|one| one["value"].as_str().expect("a name").to_owned()).collect();
            data.replaced.extend(payload["replaces"].as_str().map(str::to_owned));
            let proven = vec![false; names.len()];
            data.orders.push(OrderData { names, proven, fault: None, chain: None });
            let number = data.orders.len() - 1;
            let location = format!("location: {base}/order/{number}\r\n");
            let mut order = order_json(&data.orders[number], number, base);
            order["replaces"] = payload["replaces"].clone();
            response(201, &order.to_string(), &location)
        }
        Step::Poll => response(200, &order_json(&data.orders[numbers[0]], numbers[0], base).to_string(), ""),
        Step::Authorization => {
            let order = &data.orders[numbers[0]];
            response(200, &authorization_json(order, numbers[0], numbers[1], base).to_string(), "")
        }
        Step::Challenge => {
            let (order, name) = (numbers[0], numbers[1]);
            let (token, host) = (token(order, name), data.orders[order].names[name].clone());
            let kind = if target.contains("http-01") { "http-01" } else { "tls-alpn-01" };
            drop(data);
            // As long as it takes: the gateway answers meanwhile.
            let looked = (state.validator.lock().expect("no panic inside"))(kind, &host, &token);
            let mut data = state.data.lock().expect("no panic inside");
            match looked {
                Ok(()) => data.orders[order].proven[name] = true,
                Err(fault) => data.orders[order].fault = Some(fault),
            }
            response(200, &challenge_json(&data.orders[order], order, name, kind, base).to_string(), "")
        }
        Step::Finalize => {
            let request = BASE64_URL_SAFE_NO_PAD.decode(payload["csr"].as_str().expect("a request"));
            let names = data.other_names.clone().unwrap_or_else(|| data.orders[numbers[0]].names.clone());
            let lifetime = data.lifetime.unwrap_or(Duration::from_secs(90 * 86_400));
            let chain = issue(state, &request.expect("base64url"), names, lifetime);
            data.orders[numbers[0]].chain = Some(chain);
            response(200, &order_json(&data.orders[numbers[0]], numbers[0], base).to_string(), "")
        }
        Step::Certificate => response(200, data.orders[numbers[0]].chain.as_deref().expect("issued"), ""),
        Step::RenewalInfo => {
            let (start, end) = data.window.expect("a window");
            let moment = |at: i64| jiff::Timestamp::from_second(at).expect("a moment").to_string();
            let window = json!({ "suggestedWindow": { "start": moment(start), "end": moment(end) } });
            response(200, &window.to_string(), "retry-after: 21600\r\n")
        }
    }
}

/// The token of a name.
fn token(order: usize, name: usize) -> String {
    format!("token-of-order-{order:04}-and-name-{name:04}")
}

fn order_json(order: &OrderData, number: usize, base: &str) -> Value {
    let status = match (&order.fault, &order.chain) {
        (Some(_), _) => "invalid",
        (None, Some(_)) => "valid",
        (None, None) if order.proven.iter().all(|proven| *proven) => "ready",
        (None, None) => "pending",
    };
    let authorizations: Vec<_> =
        (0..order.names.len()).map(|name| format!("{base}/authorization/{number}/{name}")).collect();
    let mut json = json!({
        "status": status, "authorizations": authorizations, "finalize": format!("{base}/finalize/{number}"),
    });
    if order.chain.is_some() {
        json["certificate"] = format!("{base}/certificate/{number}").into();
    }
    json
}

fn authorization_json(order: &OrderData, number: usize, name: usize, base: &str) -> Value {
    let status = match (order.fault.is_some(), order.proven[name]) {
        (true, _) => "invalid",
        (false, true) => "valid",
        (false, false) => "pending",
    };
    let challenges: Vec<_> = ["http-01", "tls-alpn-01"]
        .iter()
        .map(|kind| challenge_json(order, number, name, kind, base))
        .collect();
    json!({
        "status": status, "challenges": challenges, "identifier": { "type": "dns", "value": order.names[name] },
    })
}

fn challenge_json(order: &OrderData, number: usize, name: usize, kind: &str, base: &str) -> Value {
    let mut json = json!({
        "type": kind, "url": format!("{base}/challenge/{number}/{name}/{kind}"), "token": token(number, name),
        "status": if order.proven[name] { "valid" } else { "pending" },
    });
    if let Some(fault) = &order.fault {
        json["status"] = "invalid".into();
        json["error"] = json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": fault });
    }
    json
}

/// The public key of a request.
struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn issue(state: &State, request: &[u8], names: Vec<String>, lifetime: Duration) -> String {
    let (_, parsed) = X509CertificationRequest::from_der(request).expect("a request");
    let key = parsed.certification_request_info.subject_pki.subject_public_key.data.to_vec();
    let mut params = CertificateParams::new(names).expect("names");
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let now = OffsetDateTime::now_utc();
    params.not_before = now;
    params.not_after = now + lifetime;
    let certificate = params.signed_by(&RequestedKey(key), &state.issuer).expect("a certificate");
    format!("{}{}", certificate.pem(), state.root)
}
